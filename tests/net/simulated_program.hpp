// The program of a simulated host: flows with messages, puts and gets in both directions, whose every byte follows from
// its place, so that the other side knows what must come.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "net/simulated_wire.hpp"

namespace viaduct::net {

inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return Random(a * 0x9e3779b97f4a7c15 ^ b * 0xc2b2ae3d27d4eb4f ^ c)();
}
inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
  }
}
inline bool holds(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::vector<std::byte> expected(bytes.size());
  fill(expected, seed);
  return std::equal(bytes.begin(), bytes.end(), expected.begin());
}

class SimulatedProgram final : public SimulatedHost, private RegisteredMemory {
 public:
  static constexpr std::uint64_t kReadTag = 7, kWriteTag = 8;
  static constexpr std::size_t kMemory = 256 << 10;
  static constexpr std::size_t kAreas = 4, kArea = kMemory / kAreas;  // of each flow, for puts

  struct Plan {
    std::uint64_t seed = 1;
    std::uint32_t flows = 2;
    std::uint32_t messages = 50;  // each way, of each flow
    bool transfers = true;
  };

  SimulatedProgram(const SessionOptions& options, const Plan& plan, std::uint64_t now)
      : plan_(plan),
        side_(options.connecting ? 0 : 1),
        random_(plan.seed * 2 + side_),
        readable_(kMemory),
        session_(options, *this, now) {
    fill(readable_, 1000 + side_);
    if (side_ == 0) {
      for (std::uint32_t index = 0; index < plan.flows; ++index) {
        const auto* request = reinterpret_cast<const std::byte*>(&index);
        const std::uint32_t id = session_.open(limits(index), {request, sizeof index});
        EXPECT_NE(id, 0U);
        add(id, index);
      }
    }
  }
  void meet(SimulatedProgram& peer) { peer_ = &peer; }

  Session& session() override { return session_; }
  bool done() const { return begun_ == plan_.flows && open_ == 0; }
  bool over() const { return told_over_; }
  std::uint64_t received() const { return received_; }
  const std::string& fault() const { return fault_; }

  // For whoever looks at a seed that failed.
  std::string state() {
    std::string text = "side " + std::to_string(side_) + ": frames of " + std::to_string(session_.frame_size()) +
                       ", lost " + std::to_string(session_.counters().lost_by_number) + "+" +
                       std::to_string(session_.counters().lost_by_time) + ", gets " + std::to_string(gets_.size());
    for (const auto& [id, line] : lines_) {
      text += "\n  flow " + std::to_string(id) + (line.usable ? " usable" : "") + (line.finished ? " finished" : "") +
              (line.ended ? " ended" : "") + (line.closed ? " closed" : "") + ", sent " +
              std::to_string(line.next_out) + ", received " + std::to_string(line.next_in) + ", puts " +
              std::to_string(line.puts_out) + "/" + std::to_string(line.puts_done) + ", seen " +
              std::to_string(line.puts_seen) + ", credit " + std::to_string(session_.credit(id));
    }
    return text;
  }

  void run(std::uint64_t) override {
    Event event;
    while (session_.take_event(event)) take(event);
    if (told_over_) return;
    for (auto& [id, line] : lines_) {
      if (line.usable) send_some(id, line);
    }
  }

 private:
  struct Line {
    std::uint32_t index = 0;
    bool usable = false;  // accepted and not closed
    bool finished = false;
    bool ended = false;  // the peer's side
    bool closed = false;
    std::uint32_t next_out = 0;
    std::uint32_t next_in = 0;
    std::uint32_t puts_out = 0;   // begun
    std::uint32_t puts_seen = 0;  // by the receiver of them, here: of the peer's
    std::uint32_t puts_done = 0;
    std::uint32_t puts_before_next = 0;  // of those that go before the next message: begun
    std::uint32_t gets_under_way = 0;
    std::vector<std::byte> written;             // the peer puts here
    std::vector<std::vector<std::byte>> areas;  // what we put from
  };
  struct Get {
    std::uint32_t flow;
    std::uint64_t address;
    std::vector<std::byte> into;
    TransferStatus expected;
  };

  void wrong(const std::string& what) {
    if (fault_.empty()) fault_ = what + " at side " + std::to_string(side_);
  }

  FlowLimits limits(std::uint32_t index) const {
    const std::uint64_t random = mixed(plan_.seed, index, side_);
    return {.slots = static_cast<std::uint32_t>(1 + random % 40),
            .slot_size = static_cast<std::uint32_t>(64 + (random >> 8) % 20000)};
  }
  bool is_refused(std::uint32_t index) const { return mixed(plan_.seed, index, 99) % 7 == 6; }

  void add(std::uint32_t id, std::uint32_t index) {
    Line& line = lines_[id];
    line.index = index;
    line.written.resize(kMemory);
    line.areas.resize(kAreas);
    ++begun_;
    ++open_;
  }

  // Message `number` from `side`: its size and how many puts go before it.
  std::uint32_t puts_before(std::size_t side, const Line& line, std::uint32_t number) const {
    const std::uint64_t random = mixed(plan_.seed + side, line.index + 100, number);
    return plan_.transfers && random % 8 == 0 ? 1 + (random >> 8) % 3 : 0;
  }
  // Where a put goes, the `nth` before its message: sometimes where the one before it went, which it overwrites.
  std::size_t area_of(std::size_t side, const Line& line, std::uint32_t put, std::uint32_t nth) const {
    return (nth == 1 && mixed(plan_.seed + side, line.index + 500, put) % 2 == 0 ? put - 1 : put) % kAreas * kArea;
  }
  std::size_t size_of(std::size_t side, const Line& line, std::uint32_t number, std::size_t largest) const {
    const std::uint64_t random = mixed(plan_.seed + side, line.index, number);
    return (random >> 3) % (std::min<std::size_t>(largest, random % 4 == 0 ? 20000 : 200) + 1);
  }
  std::uint64_t content(std::size_t side, const Line& line, std::uint32_t number) const {
    return mixed(plan_.seed + side, line.index + 200, number);
  }
  std::uint64_t put_content(std::size_t side, const Line& line, std::uint32_t put) const {
    return mixed(plan_.seed + side, line.index + 300, put);
  }
  std::size_t put_size(std::size_t side, const Line& line, std::uint32_t put) const {
    const std::uint64_t random = mixed(plan_.seed + side, line.index + 400, put);
    return random % 3 == 0 ? 1 + (random >> 8) % kArea : (random >> 8) % 3000;
  }

  void send_some(std::uint32_t id, Line& line) {
    while (line.next_out < plan_.messages) {
      while (line.puts_before_next < puts_before(side_, line, line.next_out)) {
        // Its area must have been looked at.
        if (line.puts_out - peer_->seen(id) >= kAreas || line.puts_out - line.puts_done >= kAreas) return;
        const std::uint32_t put = line.puts_out;
        auto& area = line.areas[put % kAreas];
        area.resize(put_size(side_, line, put));
        fill(area, put_content(side_, line, put));
        const std::size_t place = area_of(side_, line, put, line.puts_before_next);
        if (!session_.put(id, area.data(), kWriteTag, place, area.size(), put)) return;
        ++line.puts_out;
        ++line.puts_before_next;
      }
      if (plan_.transfers && random_.chance(0.05) && gets_.size() < 8) begin_get(id, line);
      std::vector<std::byte> bytes(size_of(side_, line, line.next_out, session_.largest_item(id)));
      fill(bytes, content(side_, line, line.next_out));
      const std::size_t cut = bytes.empty() ? 0 : random_.below(bytes.size());
      const iovec pieces[] = {{bytes.data(), cut}, {bytes.data() + cut, bytes.size() - cut}};
      const Sent sent = session_.try_send(id, pieces);
      if (sent == Sent::full) return;
      if (sent != Sent::yes) return wrong("a message was not taken");
      ++line.next_out;
      line.puts_before_next = 0;
    }
    if (!line.finished && line.puts_done == line.puts_out && line.gets_under_way == 0) {
      line.finished = true;
      session_.finish(id);
    }
    close_when_done(id, line);
  }

  void begin_get(std::uint32_t id, Line& line) {
    const std::uint64_t cookie = 1'000'000 + next_get_;
    Get get{id, random_.below(kMemory), {}, TransferStatus::done};
    get.into.resize(random_.below(random_.chance(0.3) ? kMemory - get.address : 2000));
    std::uint64_t tag = kReadTag;
    if (get.address + get.into.size() > kMemory) get.expected = TransferStatus::out_of_bounds;
    if (random_.chance(0.1)) {
      tag = random_.chance(0.5) ? kWriteTag : 12345;
      get.expected = tag == kWriteTag ? TransferStatus::not_allowed : TransferStatus::no_such_tag;
    }
    if (!session_.get(id, get.into.data(), tag, get.address, get.into.size(), cookie)) return;
    ++next_get_;
    ++line.gets_under_way;
    gets_.emplace(cookie, std::move(get));
  }

  void close_when_done(std::uint32_t id, Line& line) {
    if (side_ == 0 && line.finished && line.ended && !line.closed) {
      line.closed = true;
      line.usable = false;
      --open_;
      session_.close(id);
    }
  }

  void take(const Event& event) {
    const std::uint32_t id = event.flow;
    switch (event.kind) {
      case Event::Kind::asked: {
        std::uint32_t index = 0;
        std::memcpy(&index, event.bytes.data(), sizeof index);
        add(id, index);
        if (is_refused(index)) {
          lines_[id].closed = true;
          --open_;
          session_.refuse(id, Reason::not_wanted, {});
        } else {
          lines_[id].usable = true;
          if (!session_.accept(id, limits(index), event.bytes)) wrong("not accepted");
        }
        return;
      }
      case Event::Kind::accepted:
        lines_.at(id).usable = true;
        return;
      case Event::Kind::refused:
        if (!is_refused(lines_.at(id).index)) wrong("refused without reason");
        lines_.at(id).closed = true;
        --open_;
        return;
      case Event::Kind::readable:
        return read(id, lines_.at(id));
      case Event::Kind::writable:
      case Event::Kind::delivered:
        return;
      case Event::Kind::ended:
        lines_.at(id).ended = true;
        if (lines_.at(id).next_in != plan_.messages) wrong("the end came too early");
        return close_when_done(id, lines_.at(id));
      case Event::Kind::closed: {
        Line& line = lines_.at(id);
        if (event.reason != Reason::done || !line.ended || !line.finished) wrong("closed too early");
        line.closed = true;
        line.usable = false;
        --open_;
        session_.close(id);
        return;
      }
      case Event::Kind::transferred:
        return transferred(event);
      case Event::Kind::over:
        told_over_ = true;
        return;
    }
  }

  void read(std::uint32_t id, Line& line) {
    std::span<const std::byte> message;
    while (session_.peek(id, message)) {
      const std::size_t from = 1 - side_;
      const std::uint32_t puts = puts_before(from, line, line.next_in);
      for (std::uint32_t nth = 0; nth < puts; ++nth) {
        const std::uint32_t put = line.puts_seen++;
        const std::size_t place = area_of(from, line, put, nth);
        if (nth + 1 < puts && area_of(from, line, put + 1, nth + 1) == place) continue;  // overwritten
        const auto area = std::span(line.written).subspan(place, put_size(from, line, put));
        if (!holds(area, put_content(from, line, put))) wrong("a message came before what was put");
      }
      if (message.size() != size_of(from, line, line.next_in, limits(line.index).slot_size) ||
          !holds(message, content(from, line, line.next_in))) {
        wrong("another message than the next");
      }
      ++line.next_in;
      ++received_;
      session_.consume(id);
    }
  }
  std::uint32_t seen(std::uint32_t id) { return lines_.contains(id) ? lines_.at(id).puts_seen : 0; }

  void transferred(const Event& event) {
    if (event.cookie < 1'000'000) {
      if (event.status != TransferStatus::done && session_.over() == Over::no) wrong("a put failed");
      ++lines_.at(event.flow).puts_done;
      return;
    }
    const auto found = gets_.find(event.cookie);
    if (found == gets_.end()) return wrong("a get was done twice");
    const Get& get = found->second;
    if (session_.over() == Over::no && event.status != get.expected) wrong("a get had another end");
    if (event.status == TransferStatus::done) {
      std::vector<std::byte> all(kMemory);
      fill(all, 1000 + (1 - side_));
      if (!std::equal(get.into.begin(), get.into.end(), all.begin() + static_cast<std::ptrdiff_t>(get.address))) {
        wrong("a get brought other bytes");
      }
    }
    --lines_.at(event.flow).gets_under_way;
    gets_.erase(found);
  }

  Reached reach(std::uint64_t flow, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
                Access access) override {
    if (tag != kReadTag && tag != kWriteTag) return {TransferStatus::no_such_tag};
    if ((tag == kReadTag) != (access == Access::read)) return {TransferStatus::not_allowed};
    if (address > kMemory || length > kMemory - address) return {TransferStatus::out_of_bounds};
    auto& memory = tag == kReadTag ? readable_ : lines_.at(static_cast<std::uint32_t>(flow)).written;
    return {TransferStatus::done, memory.data() + address};
  }

  const Plan plan_;
  const std::size_t side_;
  Random random_;
  std::vector<std::byte> readable_;
  Session session_;
  SimulatedProgram* peer_ = nullptr;
  std::map<std::uint32_t, Line> lines_;
  std::map<std::uint64_t, Get> gets_;
  std::uint64_t next_get_ = 0;
  std::uint32_t begun_ = 0;
  std::uint32_t open_ = 0;
  std::uint64_t received_ = 0;
  bool told_over_ = false;
  std::string fault_;
};

}  // namespace viaduct::net
