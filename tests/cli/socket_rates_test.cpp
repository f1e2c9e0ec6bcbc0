#include "cli/socket_rates.hpp"

#include <gtest/gtest.h>

namespace viaduct::cli {
namespace {

using sockets_view::Route;
using sockets_view::Socket;

constexpr std::uint64_t kSecond = 1'000'000'000;

Socket connection(int pid, int fd, std::uint64_t messages, const std::string& peer = "127.0.0.1:80") {
  Socket socket;
  socket.pid = pid;
  socket.command = "program";
  socket.fd = fd;
  socket.peer = peer;
  socket.state = "ESTAB";
  socket.attached = true;
  socket.out = {Route::ring, messages * 10, messages, messages / 2};
  socket.in = {Route::ring, messages * 100, messages, 0};
  return socket;
}

TEST(SocketRates, SumsUpTheConnectionsOfAProcess) {
  SocketRates rates;
  Socket listener = connection(1, 3, 0), plain = connection(1, 6, 0);
  listener.state = "LISTEN";
  plain.attached = false;
  plain.out.route = plain.in.route = Route::tcp;
  const auto seen = rates.update({listener, connection(1, 4, 10), connection(1, 5, 20), plain, connection(2, 4, 5)}, 1);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].connected, 3u);
  EXPECT_EQ(seen[0].on_rings, 2u);
  EXPECT_EQ(seen[0].out.bytes, 300u);
  EXPECT_EQ(seen[0].in.messages, 30u);
  EXPECT_EQ(seen[0].out.wakes, 15u);
  EXPECT_FALSE(seen[0].rates) << "nothing to compare with yet";
  EXPECT_EQ(seen[0].connections[0].socket.fd, 5) << "the busiest first";
}

TEST(SocketRates, TellsTheGrowthPerSecond) {
  SocketRates rates;
  (void)rates.update({connection(1, 4, 10), connection(1, 5, 20)}, kSecond);
  const auto seen = rates.update({connection(1, 4, 30), connection(1, 5, 21)}, 3 * kSecond);
  ASSERT_TRUE(seen.at(0).rates);
  EXPECT_DOUBLE_EQ(seen[0].rates->out.messages, 10.5);
  EXPECT_DOUBLE_EQ(seen[0].rates->out.bytes, 105);
  EXPECT_DOUBLE_EQ(seen[0].rates->in.bytes, 1050);
  EXPECT_DOUBLE_EQ(seen[0].rates->out.wakes, 5);
  EXPECT_EQ(seen[0].connections[0].socket.fd, 4) << "the busiest now, not the one with the most so far";
  EXPECT_DOUBLE_EQ(seen[0].connections[0].rates->out.messages, 10);
}

TEST(SocketRates, ANewConnectionBeganAtZero) {
  SocketRates rates;
  Socket listener = connection(1, 3, 0);
  listener.state = "LISTEN";
  (void)rates.update({listener}, kSecond);
  EXPECT_DOUBLE_EQ(rates.update({listener, connection(1, 4, 8)}, 2 * kSecond)[0].rates->out.messages, 8);
  // The same descriptor, another peer; and the same peer again, with less than before.
  EXPECT_DOUBLE_EQ(rates.update({connection(1, 4, 9, "127.0.0.1:81")}, 3 * kSecond)[0].rates->out.messages, 9);
  EXPECT_DOUBLE_EQ(rates.update({connection(1, 4, 2, "127.0.0.1:81")}, 4 * kSecond)[0].rates->out.messages, 2);
}

TEST(SocketRates, AProcessSeenForTheFirstTimeHasNoRate) {
  SocketRates rates;
  (void)rates.update({connection(1, 4, 1)}, kSecond);
  const auto seen = rates.update({connection(1, 4, 1), connection(2, 4, 1'000'000)}, 2 * kSecond);
  EXPECT_TRUE(seen.at(0).rates);
  EXPECT_FALSE(seen.at(1).rates);
}

TEST(SocketRates, WhatEndsDoesNotCountBackwards) {
  SocketRates rates;
  (void)rates.update({connection(1, 4, 100), connection(1, 5, 10)}, kSecond);
  EXPECT_DOUBLE_EQ(rates.update({connection(1, 5, 15)}, 2 * kSecond)[0].rates->out.messages, 5);
}

}  // namespace
}  // namespace viaduct::cli
