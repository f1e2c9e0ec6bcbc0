// Two ends of a link for tests: one here, one in a forked child that never returns into GoogleTest.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <viaduct/adma.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "base/random.hpp"
#include "copy/link.hpp"

namespace viaduct::copy::testing {

using viaduct::testing::Child;
using viaduct::testing::HangGuard;

inline Deadline soon() {
  return Deadline::after_ns(Clock::steady(), 20'000'000'000);
}

// A token that one process hands to another; `take` waits for it.
class Baton {
 public:
  Baton() : pipe_(std::move(*make_pipe())) {}
  void give() { ASSERT_EQ(::write(pipe_.second.get(), "x", 1), 1); }
  bool take() {
    char token;
    return ::read(pipe_.first.get(), &token, 1) == 1;
  }

 private:
  FdPair pipe_;
};

// The child attaches with `theirs`, runs body(Link&) and leaves with its return value.
class LinkedChild {
 public:
  template <class Body>
  explicit LinkedChild(Body body, const Link::Options& ours = {}, const Link::Options& theirs = {})
      : pair_(std::move(*make_socket_pair(SOCK_STREAM))), child_([&] {
          pair_.first.reset();
          auto link = Link::attach(std::move(pair_.second), soon(), theirs);
          CHILD_EXPECT(link.ok());
          return body(**link);
        }) {
    pair_.second.reset();
    auto attached = Link::attach(std::move(pair_.first), soon(), ours);
    EXPECT_TRUE(attached.ok()) << attached.error().message();
    if (attached) link_ = std::move(*attached);
  }

  Link& link() { return *link_; }
  Child& child() { return child_; }
  void close() { link_.reset(); }

  // Without a call into the link: the child's thread is inside a wait and sleeps.
  void until_asleep() {
    const std::string path = "/proc/" + std::to_string(child_.pid()) + "/stat";
    for (;;) {
      std::ifstream file(path);
      std::string line;
      std::getline(file, line);
      const auto name_end = line.rfind(')');
      auto& sides = link_->table().sides;
      const bool sleeps = sides[0].sleeping.load() + sides[1].sleeping.load() > 0;
      if (sleeps && name_end != std::string::npos && line.at(name_end + 2) == 'S') return;
      std::this_thread::yield();
    }
  }

 private:
  FdPair pair_;
  Child child_;
  std::unique_ptr<Link> link_;
};

// Both ends in this process.
struct LinkedPair {
  std::unique_ptr<Link> first, second;

  explicit LinkedPair(const Link::Options& options = {}) {
    auto pair = std::move(*make_socket_pair(SOCK_STREAM));
    std::thread other([&] { second = std::move(*Link::attach(std::move(pair.second), soon(), options)); });
    first = std::move(*Link::attach(std::move(pair.first), soon(), options));
    other.join();
  }
};

inline Link::Outcome read(Link& link, void* buffer, std::size_t length) {
  const std::int64_t cookie = link.post(Direction::read, buffer, length, true);
  return cookie < 0 ? Link::Outcome{static_cast<int>(-cookie), 0} : link.wait(cookie);
}
inline Link::Outcome write(Link& link, const void* buffer, std::size_t length) {
  const std::int64_t cookie = link.post(Direction::write, const_cast<void*>(buffer), length, true);
  return cookie < 0 ? Link::Outcome{static_cast<int>(-cookie), 0} : link.wait(cookie);
}
inline std::int64_t iread(Link& link, void* buffer, std::size_t length) {
  return link.post(Direction::read, buffer, length);
}
inline std::int64_t iwrite(Link& link, const void* buffer, std::size_t length) {
  return link.post(Direction::write, const_cast<void*>(buffer), length);
}

// Ordinary or engine-owned memory; what a process forked from the owner has is ordinary.
class Buffer {
 public:
  enum class Kind { ordinary, engine };
  Buffer(Kind kind, std::size_t size) : kind_(kind), size_(size) {
    memory_ = static_cast<std::byte*>(kind == Kind::engine ? adma_alloc(size) : ::calloc(size + 1, 1));
  }
  ~Buffer() { kind_ == Kind::engine ? adma_free(memory_) : ::free(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return memory_; }
  std::size_t size() const { return size_; }

  void fill(std::uint64_t seed) { fill(seed, size_); }
  void fill(std::uint64_t seed, std::size_t size) {
    Random random(seed);
    for (std::size_t i = 0; i < size; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(memory_ + i, &word, std::min<std::size_t>(8, size - i));
    }
  }
  bool holds(std::uint64_t seed, std::size_t size) const {
    Random random(seed);
    for (std::size_t i = 0; i < size; i += 8) {
      const std::uint64_t word = random();
      if (std::memcmp(memory_ + i, &word, std::min<std::size_t>(8, size - i)) != 0) return false;
    }
    return true;
  }
  bool holds(std::uint64_t seed) const { return holds(seed, size_); }

 private:
  Kind kind_;
  std::size_t size_;
  std::byte* memory_;
};

// A way for bytes to travel: what memory both sides use, and whether cross-memory attach is allowed.
struct Way {
  const char* name;
  Buffer::Kind writer, reader;
  Link::Options options;
  const char* path;
};

inline const Way kWays[] = {
    {"mapped", Buffer::Kind::engine, Buffer::Kind::engine, {}, "mapped"},
    {"cma", Buffer::Kind::ordinary, Buffer::Kind::ordinary, {}, "cma"},
    {"bounce", Buffer::Kind::ordinary, Buffer::Kind::ordinary, {.cma = false}, "bounce"},
    {"mapped_source", Buffer::Kind::engine, Buffer::Kind::ordinary, {.cma = false}, "mapped"},
    {"mapped_destination", Buffer::Kind::ordinary, Buffer::Kind::engine, {.cma = false}, "mapped"},
    {"mapped_or_cma", Buffer::Kind::engine, Buffer::Kind::ordinary, {}, nullptr},
    {"unmappable", Buffer::Kind::engine, Buffer::Kind::engine, {.cma = false, .map_regions = false}, "bounce"},
};

inline std::string name_of_way(const ::testing::TestParamInfo<Way>& way) {
  return way.param.name;
}

}  // namespace viaduct::copy::testing
