// Two engines that talk to each other, for tests: over the loopback interface or over a wire with faults.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>
#include <viaduct/net.hpp>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "net/units.hpp"

namespace viaduct::net {

// Memory under one tag, for whoever asks.
class TaggedMemory final : public RegisteredMemory {
 public:
  static constexpr std::uint64_t kTag = 5;
  Reached reach(std::uint64_t user, std::uint64_t tag, std::uint64_t address, std::uint64_t length, Access) override {
    last_user = user;
    if (tag != kTag) return {TransferStatus::no_such_tag};
    if (address > bytes.size() || length > bytes.size() - address) return {TransferStatus::out_of_bounds};
    return {TransferStatus::done, bytes.data() + address};
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(1 << 20);
  std::uint64_t last_user = 0;
};

// Tests run side by side: each has a well-known port of its own, which its children share, below those that the kernel
// gives out.
inline std::uint16_t port_of_this_test() {
  static const auto port = static_cast<std::uint16_t>(20'000 + ::getpid() % 9'000);
  return port;
}

// A program of one engine: accepts everybody, echoes if told to, and notes what it sees.
struct Program {
  TaggedMemory memory;
  std::shared_ptr<Engine> engine;
  bool echoes = false;
  bool accepts = true;
  std::vector<Incoming> incoming;
  std::map<std::uint64_t, FlowId> flows;  // by the word of each
  std::map<std::uint64_t, std::vector<FlowEvent>> events;
  std::map<std::uint64_t, std::vector<std::string>> heard;
  std::uint64_t next_user = 1000;

  explicit Program(EngineOptions options = {}) {
    options.port = port_of_this_test();
    Failure why;
    engine = Engine::open(options, memory, why);
    EXPECT_NE(engine, nullptr) << why.message;
  }
  explicit Program(std::unique_ptr<nic::Mac> mac) {
    Failure why;
    engine = Engine::over(std::move(mac), {}, memory, why);
    EXPECT_NE(engine, nullptr) << why.message;
  }

  void offer(const std::string& name) {
    Failure why;
    EXPECT_TRUE(engine->offer(name, why)) << why.message;
  }
  FlowId connect(std::uint64_t user, const std::string& name, std::uint64_t within_ns = 10 * kSecond,
                 const std::string& host = "127.0.0.1") {
    Failure why;
    const std::string request = "request of " + std::to_string(user);
    flows[user] = engine->connect(
        host, name, {.user = user, .request = std::as_bytes(std::span(request)), .within_ns = within_ns}, why);
    EXPECT_NE(flows[user], 0U) << why.message;
    return flows[user];
  }
  Sent say(std::uint64_t user, std::string text) {
    const iovec piece{text.data(), text.size()};
    return engine->try_send(flows.at(user), {&piece, 1});
  }

  bool turn() {
    bool moved = engine->progress();
    Incoming comes;
    while (engine->take_incoming(comes)) {
      moved = true;
      incoming.push_back(comes);
      if (!accepts) continue;
      const std::string answer = "answer to " + comes.name;
      flows[next_user] = comes.flow;
      EXPECT_TRUE(engine->accept(comes.flow, next_user++, {}, std::as_bytes(std::span(answer))));
    }
    std::uint64_t users[8];
    while (const std::size_t count = engine->take_ready(users)) {
      moved = true;
      for (const std::uint64_t user : std::span(users).first(count)) look_at(user);
    }
    return moved;
  }
  void look_at(std::uint64_t user) {
    FlowEvent event;
    const FlowId flow = flows.at(user);
    while (engine->take_event(flow, event)) {
      if (event.kind != FlowEvent::Kind::readable) events[user].push_back(event);
    }
    std::span<const std::byte> message;
    while (engine->peek(flow, message)) {
      heard[user].emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
      if (echoes) say(user, heard[user].back());
      engine->consume(flow);
    }
  }
  bool has(std::uint64_t user, FlowEvent::Kind kind) const { return find(user, kind) != nullptr; }
  const FlowEvent* find(std::uint64_t user, FlowEvent::Kind kind) const {
    const auto found = events.find(user);
    if (found == events.end()) return nullptr;
    for (const FlowEvent& event : found->second) {
      if (event.kind == kind) return &event;
    }
    return nullptr;
  }
};

// Runs all of them until `done`, sleeping where nothing moves. False: not within the time.
template <class Done>
bool run(std::initializer_list<Program*> programs, Done&& done, std::uint64_t within = 20 * kSecond) {
  const std::uint64_t end = Clock::steady().now_ns() + within;
  while (!done()) {
    if (Clock::steady().now_ns() > end) return false;
    bool moved = false;
    std::vector<std::pair<Program*, std::uint64_t>> seen;
    for (Program* program : programs) {
      seen.emplace_back(program, program->engine->news());
      moved |= program->turn();
    }
    if (moved) continue;
    std::vector<pollfd> beds;
    bool all = true;
    for (const auto& [program, news] : seen) {
      if (!program->engine->prepare_to_sleep(news)) {
        all = false;
        break;
      }
      beds.push_back({program->engine->descriptor(), POLLIN, 0});
    }
    if (all) (void)::poll(beds.data(), beds.size(), 1000);
    for (std::size_t i = 0; i < beds.size(); ++i) seen[i].first->engine->woke();
  }
  return true;
}

}  // namespace viaduct::net
