// Two ends of SOVIA in two processes, and streams whose every byte is known to both.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "bench/sovia_end.hpp"

namespace viaduct::bench {

// One byte of a stream that never repeats within any buffer.
inline std::byte byte_at(std::uint64_t position, int seed) {
  return static_cast<std::byte>(position * 131 + (position >> 8) * 7 + (position >> 16) + static_cast<unsigned>(seed));
}

// A stream as its writer and as its reader see it: both go through it in steps of their own.
class Writer {
 public:
  Writer(SoviaEnd& end, int seed) : end_(end), seed_(seed) {}
  // From a new buffer each time, which is spoilt afterwards: what was sent by reference must have left.
  void write(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = byte_at(position_++, seed_);
    end_.send(bytes);
    std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
  }

 private:
  SoviaEnd& end_;
  int seed_;
  std::uint64_t position_ = 0;
};

class Reader {
 public:
  Reader(SoviaEnd& end, int seed) : end_(end), seed_(seed) {}
  // All of it, at most `step` at a time. False: a byte is wrong, or the stream has ended.
  bool read(std::size_t size, std::size_t step) {
    std::vector<std::byte> bytes(step);
    while (size > 0) {
      const std::size_t part = end_.recv(std::span(bytes).first(std::min(size, step)));
      if (part == 0) return false;
      for (std::size_t i = 0; i < part; ++i)
        if (bytes[i] != byte_at(position_++, seed_)) return false;
      size -= part;
    }
    return true;
  }
  bool at_end() {
    std::byte none;
    return end_.recv({&none, 1}) == 0;
  }

 private:
  SoviaEnd& end_;
  int seed_;
  std::uint64_t position_ = 0;
};

// `there` runs in a child on the other end, and returns its exit code; the parent's end is `here`. Both close.
class SoviaPair {
 public:
  SoviaPair(const SoviaOptions& options, std::function<int(SoviaEnd&)> there)
      : name_(unique_name()),
        child_([&] {
          SoviaEnd end(options);
          end.connect(Conduit::Side::there, name_);
          const int code = there(end);
          end.close();
          return code;
        }),
        here_(options) {
    here_.connect(Conduit::Side::here, name_);
  }
  SoviaEnd& here() { return here_; }
  int finish() {
    here_.close();
    return child_.wait();
  }

 private:
  static std::string unique_name() {
    static int number = 0;
    return "sovia-test." + std::to_string(::getpid()) + "." + std::to_string(++number);
  }
  testing::HangGuard guard_;
  const std::string name_;
  testing::Child child_;
  SoviaEnd here_;
};

}  // namespace viaduct::bench
