// For tests: the fake driver loaded, operations submitted to a channel on it, and mapped memory.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/waiter.hpp"
#include "copy/cuda_channel.hpp"
#include "copy/fake_cuda/fake_cuda.h"

namespace viaduct::copy::testing {

inline const FakeCudaControls& fake() {
  static const FakeCudaControls* const controls = [] {
    void* const library = ::dlopen(FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const auto get = reinterpret_cast<decltype(&fake_cuda_controls)>(
        library == nullptr ? nullptr : ::dlsym(library, "fake_cuda_controls"));
    if (get == nullptr) ADD_FAILURE() << FAKE_CUDA_LIBRARY << " cannot be loaded";
    return get();
  }();
  return *controls;
}

inline OperationTable& operations() {
  static OperationTable table(1);
  return table;
}

class OnFakeGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    static const bool can_pin = fake().can_pin();
    if (!can_pin)
      GTEST_SKIP() << "NOT TESTED: the fake GPU pins with io_uring, which is not permitted here or may not lock 128 MB "
                      "(run as root, or raise RLIMIT_MEMLOCK)";
    fake().reset();
  }
  void TearDown() override { fake().reset(); }

  // Small chunks, so that little memory already needs many.
  static CudaSettings settings() {
    CudaSettings settings;
    settings.library = FAKE_CUDA_LIBRARY;
    settings.measure = false;
    settings.tuning.least_chunk = 64 << 10;
    settings.tuning.most_chunk = 1 << 20;
    settings.tuning.bounce_chunk = 64 << 10;
    settings.tuning.spin_ns = 20'000;
    return settings;
  }
  static std::unique_ptr<CudaChannel> channel(const CudaSettings& with = settings()) {
    auto made = make_cuda_channel(with, operations());
    if (!made) throw std::runtime_error(made.error().message());
    return std::move(*made);
  }
};

// An operation of one test. Its destructor waits.
class Submitted {
 public:
  Submitted(Channel& channel, const void* source, void* destination, std::size_t length) {
    record_->source = static_cast<const std::byte*>(source);
    record_->destination = static_cast<std::byte*>(destination);
    record_->length = length;
    channel.submit(*record_);
  }
  Submitted(Channel& channel, const std::vector<Piece>& pieces) {
    record_->pieces = pieces;
    for (const Piece& piece : pieces) record_->length += piece.length;
    channel.submit(*record_);
  }
  ~Submitted() {
    (void)wait();
    operations().drop(*record_);
  }
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;

  int wait() {
    Waiter waiter(50'000);
    FutexSleeper sleeper;
    const auto finished = [&] { return record_->finished(); };
    while (waiter.wait(record_->done_word(), sleeper, Deadline::never(), finished) != WaitResult::ready) continue;
    return record_->error();
  }
  OperationRecord& record() { return *record_; }

 private:
  OperationRecord* const record_ = operations().claim();
};

inline int copy_by(Channel& channel, const void* source, void* destination, std::size_t length) {
  Submitted submitted(channel, source, destination, length);
  return submitted.wait();
}

struct PlaceTaken : std::runtime_error {
  PlaceTaken() : runtime_error("mmap: the place is taken") {}
};

// Anonymous memory at a place of its own, or at a given one.
class Mapping {
 public:
  explicit Mapping(std::size_t length, void* at = nullptr) : length_(length) {
    void* const memory = ::mmap(at, length, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (memory == MAP_FAILED) throw PlaceTaken();
    memory_ = static_cast<unsigned char*>(memory);
  }
  ~Mapping() { unmap(); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void unmap() {
    if (memory_ != nullptr) ::munmap(memory_, length_);
    memory_ = nullptr;
  }
  // The memory is somebody else's business now.
  void forget() { memory_ = nullptr; }

  unsigned char* data() const { return memory_; }
  std::size_t size() const { return length_; }
  void fill(unsigned char byte) const { std::memset(memory_, byte, length_); }
  bool holds(unsigned char byte) const {
    return memory_[0] == byte && std::memcmp(memory_, memory_ + 1, length_ - 1) == 0;
  }

 private:
  std::size_t length_;
  unsigned char* memory_ = nullptr;
};

}  // namespace viaduct::copy::testing
