// Endpoints for tests: two in one process, which one thread drives.
#pragma once

#include <gtest/gtest.h>
#include <viaduct/mx.hpp>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace viaduct::mx::testing {

inline constexpr std::uint64_t kLoopback = 0x0200'7f00'0001;

// A family of its own for each test process: tests run side by side.
inline std::string family_of_this_test() {
  return "test" + std::to_string(::getpid());
}

inline std::unique_ptr<Endpoint> open(Options options = {}) {
  if (options.nic == 0) options.nic = kLoopback;
  options.family = family_of_this_test();
  Failure why;
  auto endpoint = Endpoint::open(options, why);
  EXPECT_NE(endpoint, nullptr) << why.message;
  return endpoint;
}

struct Buffer {
  explicit Buffer(std::size_t size, std::uint8_t seed = 0) : bytes(size) {
    for (std::size_t i = 0; i < size; ++i) bytes[i] = value(i, seed);
  }
  static std::uint8_t value(std::size_t i, std::uint8_t seed) {
    return static_cast<std::uint8_t>(i * 131 + (i >> 8) * 7 + seed);
  }
  // Of the first `length` bytes.
  bool holds(std::uint8_t seed, std::size_t length) const {
    for (std::size_t i = 0; i < length; ++i)
      if (bytes[i] != value(i, seed)) return false;
    return true;
  }
  iovec piece() { return {bytes.data(), bytes.size()}; }
  std::vector<std::uint8_t> bytes;
};

class Pair : public ::testing::Test {
 protected:
  void SetUp() override { connect(); }
  void connect(Options first = {}, Options second = {}) {
    a = open(first);
    b = open(second);
    to_b = a->partner(b->name(), second.key);
    to_a = b->partner(a->name(), first.key);
  }

  Request* send(Endpoint& from, Partner* to, Buffer& buffer, std::uint64_t match, bool until_matched = false) {
    const iovec piece = buffer.piece();
    return from.send({.to = to, .bytes = {&piece, 1}, .match = match, .until_matched = until_matched});
  }
  Request* receive(Endpoint& at, Buffer& buffer, std::uint64_t match, std::uint64_t mask = kExactly) {
    const iovec piece = buffer.piece();
    return at.receive({.into = {&piece, 1}, .match = match, .mask = mask});
  }
  template <class Ready>
  bool until(Ready ready, int seconds = 20) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!ready()) {
      if (a) a->progress();
      if (b) b->progress();
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }
  Completion complete(Endpoint& at, Request* request) {
    Completion done;
    done.status = Status::pending;
    EXPECT_TRUE(until([&] { return at.take(request, done); }));
    return done;
  }

  std::unique_ptr<Endpoint> a, b;
  Partner* to_b = nullptr;
  Partner* to_a = nullptr;
};

}  // namespace viaduct::mx::testing
