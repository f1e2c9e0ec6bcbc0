// Stations on a simulated switch, in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "net/station.hpp"
#include "net/units.hpp"

namespace viaduct::net {

class NoMemory final : public RegisteredMemory {
  Reached reach(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, Access) override { return {}; }
};

// A host: its station, and what its program has seen. It echoes every message of every flow that it accepts.
struct Host {
  Host(Place at, std::uint64_t seed, const StationOptions& options = {})
      : place(at), station(options, memory, [random = Random(seed)]() mutable { return random(); }) {}

  void run() {
    StationEvent event;
    while (station.take_event(event)) {
      switch (event.kind) {
        case StationEvent::Kind::connected:
          connected.push_back(event.session);
          break;
        case StationEvent::Kind::failed:
          failed[event.session] = event.text;
          break;
        case StationEvent::Kind::met:
          met.push_back(event.session);
          break;
        case StationEvent::Kind::session:
          take(event.session, event.event);
          break;
      }
    }
  }
  void take(std::uint64_t number, const Event& event) {
    Session* session = station.use(number);
    if (event.kind == Event::Kind::over) over[number] = session->over();
    if (event.kind == Event::Kind::asked) session->accept(event.flow, {}, {});
    if (event.kind == Event::Kind::accepted) accepted[number] = event.flow;
    std::span<const std::byte> message;
    while (session->peek(event.flow, message)) {
      const std::string text(reinterpret_cast<const char*>(message.data()), message.size());
      if (echoes) {
        const iovec piece{const_cast<std::byte*>(message.data()), message.size()};
        session->try_send(event.flow, {&piece, 1});
      } else {
        heard[number].push_back(text);
      }
      session->consume(event.flow);
    }
  }
  void say(std::uint64_t number, std::string text) {
    const iovec piece{text.data(), text.size()};
    EXPECT_EQ(station.use(number)->try_send(accepted.at(number), {&piece, 1}), Sent::yes);
  }

  Place place;
  NoMemory memory;
  Station station;
  bool echoes = false;
  std::vector<std::uint64_t> connected, met;
  std::map<std::uint64_t, std::string> failed;
  std::map<std::uint64_t, Over> over;
  std::map<std::uint64_t, std::uint32_t> accepted;
  std::map<std::uint64_t, std::vector<std::string>> heard;
  std::size_t for_another = 0;
};

class Switch {
 public:
  explicit Switch(double drop = 0, std::uint64_t seed = 1) : drop_(drop), random_(seed) {}

  std::uint64_t now = kSecond;

  Host& add(std::uint8_t last, const StationOptions& options = {}) {
    const Place place{2, 0, 0, 0, 0, last};
    // Made again, it is another process at the same place.
    hosts_[place] = std::make_unique<Host>(place, ++seeds_, options);
    return *hosts_[place];
  }
  void stop(const Host& host) { hosts_.erase(Place(host.place)); }

  // Everything that is sent is shown to it first; false: it is lost.
  std::function<bool(const Place& from, const Place& to, std::span<std::byte> frame)> tap;

  void inject(const Place& from, const Place& to, std::span<const std::byte> bytes) {
    under_way_.push({now + 10'000, order_++, from, to, {bytes.begin(), bytes.end()}});
  }

  // Until `done` or nothing can happen before `end`.
  template <class Done>
  bool run(std::uint64_t end, Done&& done) {
    for (auto& [place, host] : hosts_) drive(*host);
    while (!done()) {
      std::uint64_t next = under_way_.empty() ? UINT64_MAX : under_way_.top().at;
      for (auto& [place, host] : hosts_) next = std::min(next, host->station.next_deadline());
      if (next > end) {
        now = end;
        return false;
      }
      now = std::max(now, next);
      while (!under_way_.empty() && under_way_.top().at <= now) {
        const Frame frame = under_way_.top();
        under_way_.pop();
        const auto to = hosts_.find(frame.to);
        if (to == hosts_.end()) continue;
        if (to->second->station.receive(frame.from, frame.bytes, now) == Station::Taken::for_another) {
          ++to->second->for_another;
          to->second->station.refuse(frame.from, frame.bytes);
        }
      }
      for (auto& [place, host] : hosts_) {
        host->station.tick(now);
        drive(*host);
      }
    }
    return true;
  }
  void rest(std::uint64_t ns) {
    run(now + ns, [] { return false; });
  }

 private:
  struct Frame {
    std::uint64_t at, order;
    Place from, to;
    std::vector<std::byte> bytes;
    bool operator<(const Frame& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  void drive(Host& host) {
    host.run();
    send_all(host);
    host.station.about_to_sleep();
    send_all(host);
  }
  void send_all(Host& host) {
    std::array<std::byte, 9000> room;
    Place to;
    while (const std::size_t size = host.station.next_frame(room, to, now)) {
      if (random_.chance(drop_)) continue;
      if (tap == nullptr || tap(host.place, to, std::span(room).first(size))) {
        inject(host.place, to, std::span(room).first(size));
      }
    }
  }

  const double drop_;
  Random random_;
  std::uint64_t seeds_ = 100;
  std::uint64_t order_ = 0;
  std::map<Place, std::unique_ptr<Host>> hosts_;
  std::priority_queue<Frame> under_way_;
};

inline std::uint64_t open_flow(Switch& network, Host& from, const Host& to, const std::string& name) {
  const std::uint64_t number = from.station.connect(to.place, name, 1472, network.now, network.now + kSecond);
  EXPECT_TRUE(
      network.run(network.now + kSecond, [&] { return !from.connected.empty() && from.connected.back() == number; }));
  from.station.use(number)->open({}, {});
  EXPECT_TRUE(network.run(network.now + kSecond, [&] { return from.accepted.contains(number); }));
  return number;
}

}  // namespace viaduct::net
