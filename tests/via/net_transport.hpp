// Channels over the network for the conformance tests: two engines in one process over a wire or the loopback
// interface, each in a thread where roles want that, or in two processes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "via/port/net_channel.hpp"
#include "via/port/net_handshake.hpp"

namespace viaduct::via::testing {

// Tests run side by side: each process has a well-known port of its own, below those that the kernel gives out.
inline std::uint16_t port_of_this_test() {
  return static_cast<std::uint16_t>(11'000 + ::getpid() % 9'000);
}

// One side: registered memory, and its end of the network.
struct NetSide {
  std::unique_ptr<Registrations> registrations = std::move(*Registrations::make());
  std::shared_ptr<Network> network;

  static NetSide on_udp(std::uint16_t port) {
    NetSide side;
    auto opened = Network::open(*side.registrations, {.port = port});
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message());
    side.network = std::move(*opened);
    return side;
  }
  static NetSide on(std::unique_ptr<nic::Mac> mac) {
    NetSide side;
    auto opened = Network::over(std::move(mac), *side.registrations, {});
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message());
    side.network = std::move(*opened);
    return side;
  }
};

// Until nothing is under way between them.
inline void settle(NetSide& first, NetSide& second) {
  net::Engine& one = first.network->engine();
  net::Engine& two = second.network->engine();
  while (!one.drain(0) | !two.drain(0)) continue;
}

inline Terms terms_for(const ChannelOptions& options) {
  Terms terms;
  terms.rights = kRdmaRead | kRdmaWrite;
  terms.options = options;
  return terms;
}

inline constexpr const char* kMeetingName = "conformance";

// The side that is asked. Null: nobody came.
inline Connection accept_one(NetSide& side, const ChannelOptions& options, std::uint64_t within_ns = 20'000'000'000) {
  net::Failure why;
  if (!side.network->offer(kMeetingName, why)) return {};
  const std::uint64_t end = Clock::steady().now_ns() + within_ns;
  net::Incoming incoming;
  for (;;) {
    const std::uint64_t seen = side.network->engine().news();
    side.network->engine().progress();
    if (side.network->take_incoming(kMeetingName, incoming)) break;
    const std::uint64_t now = Clock::steady().now_ns();
    if (now >= end) return {};
    side.network->engine().sleep(seen, end - now);
  }
  NetHandshake handshake(side.network, std::move(incoming));
  return handshake.accept(terms_for(options), {}) ? handshake.take() : Connection{};
}

inline Connection ask(NetSide& side, const ChannelOptions& options, std::uint64_t within_ns = 20'000'000'000) {
  const Deadline deadline = Deadline::after_ns(Clock::steady(), within_ns);
  NetHandshake handshake(side.network, "127.0.0.1", kMeetingName, terms_for(options), {}, deadline);
  const Handshake::Step step = handshake.run(deadline, [] { return false; });
  return step == Handshake::Step::done ? handshake.take() : Connection{};
}

// Both sides in one thread: everything that was said has arrived before anybody looks.
struct NetPair {
  NetSide first, second;
  Connection near, far;

  void settle() { testing::settle(first, second); }
  bool connect(const ChannelOptions& options) {
    net::Failure why;
    if (!second.network->offer(kMeetingName, why)) return false;
    NetHandshake asking(first.network, "127.0.0.1", kMeetingName, terms_for(options), {}, Deadline::never());
    net::Incoming incoming;
    while (!second.network->take_incoming(kMeetingName, incoming)) {
      if (asking.advance() == Handshake::Step::failed) return false;
      second.network->engine().progress();
    }
    NetHandshake asked(second.network, std::move(incoming));
    if (!asked.accept(terms_for(options), {})) return false;
    while (asking.advance() == Handshake::Step::pending) second.network->engine().progress();
    near = asking.take();
    far = asked.take();
    settle();
    return near.channel != nullptr && far.channel != nullptr;
  }
};

class SettledChannel final : public Channel {
 public:
  SettledChannel(std::shared_ptr<NetPair> pair, Connection NetPair::*which) : pair_(std::move(pair)), which_(which) {}
  ~SettledChannel() override {
    connection() = {};
    pair_->settle();
  }

  Sent try_send(std::span<const iovec> pieces, std::uint32_t immediate, bool more) override {
    const Sent sent = channel().try_send(pieces, immediate, more);
    if (sent != Sent::full) return sent;
    pair_->settle();
    return channel().try_send(pieces, immediate, more);
  }
  std::size_t largest_fragment() const override { return channel().largest_fragment(); }
  std::size_t credits(std::size_t length) override { return pair_->settle(), channel().credits(length); }
  std::uint64_t delivered() const override { return pair_->settle(), channel().delivered(); }
  std::uint64_t taken() const override { return channel().taken(); }
  void tell_when_delivered(std::uint64_t fragments) override { channel().tell_when_delivered(fragments); }
  Got peek(Fragment& fragment) override { return pair_->settle(), channel().peek(fragment); }
  void consume() override { channel().consume(); }
  void finish_sending() override { channel().finish_sending(); }
  CloseReason close_reason() const override {
    pair_->settle();
    return channel().close_reason();
  }
  std::error_code wait_to_receive(int timeout_ms) override {
    return pair_->settle(), channel().wait_to_receive(timeout_ms);
  }
  std::error_code wait_to_send(std::size_t length, int timeout_ms) override {
    return pair_->settle(), channel().wait_to_send(length, timeout_ms);
  }
  bool progress() override { return channel().progress(); }
  Statistics statistics() const override { return channel().statistics(); }
  std::error_code enter(ReadyEntrance& entrance, std::uint64_t tag) override { return channel().enter(entrance, tag); }
  void leave(ReadyEntrance& entrance) override { channel().leave(entrance); }

 private:
  Connection& connection() const { return (*pair_).*which_; }
  Channel& channel() const { return *connection().channel; }

  const std::shared_ptr<NetPair> pair_;
  Connection NetPair::*const which_;
};

inline ChannelPair settled_pair(NetSide first, NetSide second, const ChannelOptions& options) {
  auto pair = std::make_shared<NetPair>();
  pair->first = std::move(first);
  pair->second = std::move(second);
  EXPECT_TRUE(pair->connect(options));
  return {std::make_unique<SettledChannel>(pair, &NetPair::near),
          std::make_unique<SettledChannel>(pair, &NetPair::far)};
}

}  // namespace viaduct::via::testing
