// Messages between two endpoints, and to oneself.
#include <gtest/gtest.h>

#include "mx/endpoint_pair.hpp"

namespace viaduct::mx::testing {
namespace {

class Endpoints : public Pair {};

TEST_F(Endpoints, AMessageOfEverySizeArrives) {
  for (const std::size_t size : {0u, 1u, 8u, 32u, 44u, 45u, 128u, 4096u, 16375u, 16376u, 16377u, 32767u, 32768u, 32769u,
                                 65536u, 1000000u, 4u << 20}) {
    for (const bool expected : {true, false}) {
      Buffer out(size, 3), in(size, 99);
      Request* receiving = expected ? receive(*b, in, 5) : nullptr;
      Request* const sending = send(*a, to_b, out, 5);
      if (!expected) {
        Waiting waiting;
        ASSERT_TRUE(until([&] { return b->probe({.match = 5}, waiting); }));
        EXPECT_EQ(waiting.length, size);
        receiving = receive(*b, in, 5);
      }
      const Completion received = complete(*b, receiving);
      EXPECT_EQ(received.status, Status::success) << size;
      EXPECT_EQ(received.length, size);
      EXPECT_EQ(received.transferred, size);
      EXPECT_EQ(received.partner, to_a);
      EXPECT_EQ(complete(*a, sending).status, Status::success);
      EXPECT_TRUE(in.holds(3, size)) << size;
    }
  }
}

TEST_F(Endpoints, ALongerMessageIsCutOff) {
  for (const std::size_t size : {100u, 20000u, 32768u, 100000u}) {
    for (const bool expected : {true, false}) {
      Buffer out(size, 1), in(size / 2 + 7, 50);
      Request* receiving = expected ? receive(*b, in, 5) : nullptr;
      Request* const sending = send(*a, to_b, out, 5);
      if (!expected) {
        Waiting waiting;
        ASSERT_TRUE(until([&] { return b->probe({.match = 5}, waiting); }));
        receiving = receive(*b, in, 5);
      }
      const Completion received = complete(*b, receiving);
      EXPECT_EQ(received.status, Status::truncated);
      EXPECT_EQ(received.length, size);
      EXPECT_EQ(received.transferred, size / 2 + 7);
      EXPECT_EQ(complete(*a, sending).status, Status::success);
      EXPECT_TRUE(in.holds(1, size / 2 + 7));
    }
  }
}

TEST_F(Endpoints, WhatGoesToOneselfArrives) {
  for (const std::size_t size : {0u, 100u, 32768u, 100000u}) {
    for (const bool expected : {true, false}) {
      Buffer out(size, 9), in(size);
      Request* receiving = expected ? receive(*a, in, 5) : nullptr;
      Request* const sending = send(*a, a->self(), out, 5);
      if (!expected) receiving = receive(*a, in, 5);
      const Completion received = complete(*a, receiving);
      EXPECT_EQ(received.status, Status::success);
      EXPECT_EQ(received.partner, a->self());
      EXPECT_EQ(complete(*a, sending).status, Status::success);
      EXPECT_TRUE(in.holds(9, size));
    }
  }
}

TEST_F(Endpoints, ManyMessagesKeepTheirOrder) {
  constexpr std::size_t kMany = 3000;
  std::vector<Buffer> out;
  std::vector<Request*> sending;
  for (std::size_t i = 0; i < kMany; ++i) out.emplace_back(i * 37 % 5000, static_cast<std::uint8_t>(i));
  for (std::size_t i = 0; i < kMany; ++i) sending.push_back(send(*a, to_b, out[i], 1));
  for (std::size_t i = 0; i < kMany; ++i) {
    Buffer in(5000);
    const Completion received = complete(*b, receive(*b, in, 0, 0));
    ASSERT_EQ(received.length, i * 37 % 5000);
    ASSERT_TRUE(in.holds(static_cast<std::uint8_t>(i), received.length));
  }
  for (Request* const one : sending) EXPECT_EQ(complete(*a, one).status, Status::success);
}

TEST_F(Endpoints, ASendUntilMatchedWaitsForItsReceive) {
  for (const std::size_t size : {10u, 30000u, 100000u}) {
    Buffer out(size, 4), in(size);
    Request* const sending = send(*a, to_b, out, 5, true);
    Waiting waiting;
    ASSERT_TRUE(until([&] { return b->probe({.match = 5}, waiting); }));
    for (int i = 0; i < 100; ++i) a->progress(), b->progress();
    EXPECT_FALSE(a->is_done(sending));
    Request* const receiving = receive(*b, in, 5);
    EXPECT_EQ(complete(*a, sending).status, Status::success);
    EXPECT_EQ(complete(*b, receiving).status, Status::success);
  }
}

TEST_F(Endpoints, AClaimedMessageIsItsOwners) {
  for (const std::size_t size : {100u, 30000u, 100000u}) {
    Buffer out(size, 4), in(size), other(size);
    Request* const sending = send(*a, to_b, out, 5);
    Waiting waiting;
    Message* claimed = nullptr;
    ASSERT_TRUE(until([&] { return (claimed = b->claim({.match = 5}, waiting)) != nullptr; }));
    EXPECT_FALSE(b->probe({.match = 5}, waiting));
    Request* const later = receive(*b, other, 5);
    const iovec piece = in.piece();
    EXPECT_EQ(complete(*b, b->receive_claimed(claimed, {.into = {&piece, 1}})).status, Status::success);
    EXPECT_TRUE(in.holds(4, size));
    EXPECT_EQ(complete(*a, sending).status, Status::success);
    EXPECT_TRUE(b->cancel(later));
    EXPECT_EQ(complete(*b, later).status, Status::cancelled);
    EXPECT_EQ(b->view().unexpected_bytes, 0u);
  }
  // Its sender goes before it is received.
  Buffer out(100000, 4), in(100000);
  (void)send(*a, to_b, out, 5);
  Waiting waiting;
  Message* claimed = nullptr;
  ASSERT_TRUE(until([&] { return (claimed = b->claim({.match = 5}, waiting)) != nullptr; }));
  a.reset();
  ASSERT_TRUE(until([&] { return !b->is_connected(to_a); }));
  const iovec piece = in.piece();
  EXPECT_EQ(complete(*b, b->receive_claimed(claimed, {.into = {&piece, 1}})).status, Status::endpoint_closed);
  EXPECT_EQ(b->view().unexpected_bytes, 0u);
}

// Memory of one that the other reads and writes.
TEST_F(Endpoints, ExposedMemoryIsReached) {
  Buffer there(200'000, 1), here(200'000, 9);
  const Memory memory = b->expose(there.bytes.data(), there.bytes.size(), kRemoteRead | kRemoteWrite);
  ASSERT_NE(memory.key, 0u);
  const auto address = reinterpret_cast<std::uint64_t>(there.bytes.data());
  const iovec piece = here.piece();
  const Status got = complete(*a, a->get(to_b, {&piece, 1}, memory.key, address, nullptr)).status;
  if (got == Status::no_resources) GTEST_SKIP() << "no way into the memory of other processes here";
  EXPECT_EQ(got, Status::success);
  EXPECT_TRUE(here.holds(1, 200'000));
  here = Buffer(200'000, 7);
  const iovec again = here.piece();
  EXPECT_EQ(complete(*a, a->put(to_b, {&again, 1}, memory.key, address, nullptr)).status, Status::success);
  EXPECT_TRUE(there.holds(7, 200'000));
  EXPECT_EQ(complete(*a, a->get(to_b, {&again, 1}, memory.key, address + 1, nullptr)).status, Status::bad_window);
  EXPECT_EQ(complete(*a, a->get(to_b, {&again, 1}, memory.key + 65536, address, nullptr)).status, Status::bad_window);
  b->withdraw(memory, there.bytes.data());
  EXPECT_EQ(complete(*a, a->get(to_b, {&again, 1}, memory.key, address, nullptr)).status, Status::bad_window);
}

TEST_F(Endpoints, WhenItClosesOthersHearOfIt) {
  Buffer out(100, 1), big(100000, 2), in(100);
  EXPECT_EQ(complete(*a, send(*a, to_b, out, 1)).status, Status::success);
  Request* const never = send(*a, to_b, big, 2);
  ASSERT_TRUE(until([&] { return b->view().unexpected == 2; }));
  b.reset();
  EXPECT_EQ(complete(*a, never).status, Status::endpoint_closed);
  EXPECT_FALSE(a->is_connected(to_b));
}

}  // namespace
}  // namespace viaduct::mx::testing
