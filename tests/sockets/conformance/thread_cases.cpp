// Several threads on one connection.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"

using namespace conformance;

CASE(process, threads_both_ways, "two threads receive and two send on one connection: every byte once") {
  Link link = run.warm();
  constexpr int kBytes = 200'000;
  std::vector<unsigned> seen(256);
  std::atomic<int> left{kBytes};
  run.agent.begin(Order::send, link.number, kBytes);
  std::vector<std::vector<unsigned>> counts(2, std::vector<unsigned>(256));
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t)
    readers.emplace_back([&, t] {
      unsigned char in[777];
      while (left.load() > 0) {
        pollfd entry{link.fd, POLLIN, 0};
        ::poll(&entry, 1, 50);
        const ssize_t got = ::recv(link.fd, in, sizeof in, MSG_DONTWAIT);
        if (got <= 0) continue;
        for (ssize_t i = 0; i < got; ++i) ++counts[static_cast<std::size_t>(t)][in[i]];
        left.fetch_sub(static_cast<int>(got));
      }
    });
  for (auto& reader : readers) reader.join();
  run.agent.end();
  std::uint64_t sum = 0;
  for (int value = 0; value < 256; ++value) {
    const unsigned count = counts[0][static_cast<std::size_t>(value)] + counts[1][static_cast<std::size_t>(value)];
    sum = sum * 31 + count;
  }
  note("left %d, counts %llx", left.load(), static_cast<unsigned long long>(sum));
  run.agent.begin(Order::receive_to_end, link.number);
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t)
    writers.emplace_back([&] {
      char same[500];
      std::memset(same, 'z', sizeof same);
      for (int i = 0; i < 300; ++i)
        if (::send(link.fd, same, sizeof same, 0) != sizeof same) note("send failed");
    });
  for (auto& writer : writers) writer.join();
  ::shutdown(link.fd, SHUT_WR);
  const Answer answer = run.agent.end();
  note("peer got %d, digest %llx", static_cast<int>(answer.result), static_cast<unsigned long long>(answer.digest));
}

CASE(process, threads_sleeping, "two threads asleep in recv on one connection: each gets one of two bytes") {
  Link link = run.warm();
  std::atomic<int> got{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t)
    readers.emplace_back([&] {
      char byte;
      if (::recv(link.fd, &byte, 1, 0) == 1) got.fetch_add(1);
    });
  ::usleep(30'000);
  run.peer_sends(link, 1);
  ::usleep(30'000);
  run.peer_sends(link, 1);
  for (auto& reader : readers) reader.join();
  note("got %d", got.load());
}

CASE(process, shutdown_wakes, "shutdown in one thread wakes another that sleeps in recv") {
  Link link = run.warm();
  ssize_t got = -2;
  std::thread reader([&] {
    char byte;
    got = ::recv(link.fd, &byte, 1, 0);
  });
  ::usleep(30'000);
  call("shutdown", ::shutdown(link.fd, SHUT_RDWR));
  reader.join();
  note("recv gave %zd", got);
}

CASE(process, sender_wakes_at_close, "a sender blocked by a full connection learns that the peer has closed") {
  Link link = run.warm();
  ssize_t result = 0;
  int error = 0;
  std::thread sender([&] {
    std::vector<char> much(std::size_t{1} << 20);
    while ((result = ::send(link.fd, much.data(), much.size(), MSG_NOSIGNAL)) > 0) {
    }
    error = errno;
  });
  ::usleep(50'000);
  run.peer_says("peer closes", Order::close, link);
  sender.join();
  note("send = %zd %s", result, error == EPIPE || error == ECONNRESET ? "broken" : strerrorname_np(error));
}

CASE(process, large_sends_are_whole,
     "two threads send once each, much, on a connection that is new: one after the other") {
  if (!run.agent.is_process()) return skip();
  int mixed = 0;
  for (int round = 0; round < 12; ++round) {
    const OwnPair pair;
    constexpr std::size_t kSize = 100'000;
    std::atomic<int> ready{0}, cut{0};
    const auto send_all = [&](char byte) {
      const std::vector<char> bytes(kSize, byte);
      ++ready;
      while (ready < 2) continue;
      if (::send(pair.client, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(kSize)) ++cut;
    };
    std::thread first(send_all, 'a'), second(send_all, 'b');
    std::vector<char> in(2 * kSize);
    const ssize_t got = ::recv(pair.server, in.data(), in.size(), MSG_WAITALL);
    first.join();
    second.join();
    if (cut != 0 || got != static_cast<ssize_t>(in.size()) || in[0] != in[kSize - 1] ||
        in[kSize] != in[2 * kSize - 1] || in[0] == in[kSize] ||
        std::count(in.begin(), in.end(), 'a') != static_cast<std::ptrdiff_t>(kSize))
      ++mixed;
  }
  note("mixed %d", mixed);
}
