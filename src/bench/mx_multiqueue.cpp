// `viaduct bench mx-multiqueue`: messages between endpoints of two adapters, everybody of one side to everybody of the
// other, where frames are moved by a processor per queue in turn (round robin), by one for all (single queue), or by
// that of their endpoint (multiqueue): the Open-MX paper's experiment (figure 5, table 2), and what it left open,
// queues on the send side and a bell at the end of a message only.
#include <fmt/format.h>
#include <poll.h>
#include <viaduct/nic_endpoint.hpp>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstring>
#include <thread>

#include "base/clock.hpp"
#include "base/spin_lock.hpp"
#include "base/topology.hpp"
#include "bench/line_model.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint16_t kType = 0x88b5;
constexpr std::uint32_t kHeader = 32;  // of a frame: Ethernet's, and ours
constexpr std::uint32_t kPayload = nic::kStandardFrame - kHeader;
constexpr std::uint32_t kSizes[] = {8, 128, 4096, 32768};
constexpr std::uint8_t kLast = 1;
constexpr std::uint16_t kFlagsAt = 17;

// Behind the Ethernet header.
struct Header {
  std::uint16_t to;
  std::uint8_t from;
  std::uint8_t flags;
  std::uint32_t offset;
  std::uint8_t reserved[10];
};
static_assert(14 + sizeof(Header) <= kHeader + 2);

struct Variant {
  const char* name;
  nic::Delivery delivery;
  bool message_aware = false;
  bool one_send_queue = false;
};
constexpr Variant kRoundRobin{"round robin", nic::Delivery::round_robin};
constexpr Variant kSingle{"single queue", nic::Delivery::single_queue};
constexpr Variant kMultiqueue{"multiqueue", nic::Delivery::multiqueue};
constexpr Variant kAware{"multiqueue, message-aware", nic::Delivery::multiqueue, true, false};
constexpr Variant kOneSend{"multiqueue, one send queue", nic::Delivery::multiqueue, false, true};

struct Outcome {
  double us = 0;                 // of one exchange of everybody with everybody
  double wakes_per_message = 0;  // how often a receiver slept and was woken
  double lines_per_message = 0;  // by the model
};

// One side: an adapter, its endpoints, and the one that sends for all where there is one send queue.
struct Side {
  std::unique_ptr<nic::Adapter> adapter{};
  std::vector<std::unique_ptr<nic::Endpoint>> endpoints{};
  SpinLock sending{};
};

class Exchange {
 public:
  Exchange(const Variant& variant, std::uint32_t size, unsigned ranks, bool pinned)
      : variant_(variant), size_(size), ranks_(ranks), cores_(Topology::machine().processors()), pinned_(pinned) {}

  Result<Outcome> run(std::uint32_t rounds) {
    auto [left, right] = nic::make_wire();
    VIADUCT_CHECK(open(sides_[0], std::move(left)));
    VIADUCT_CHECK(open(sides_[1], std::move(right)));
    std::vector<Received> received(2 * ranks_);
    std::barrier start(static_cast<std::ptrdiff_t>(2 * ranks_ + 1));
    std::vector<std::thread> threads;
    for (unsigned side = 0; side < 2; ++side)
      for (unsigned rank = 0; rank < ranks_; ++rank)
        threads.emplace_back([&, side, rank] {
          if (pinned_) (void)pin_this_thread(core_of(side, rank));
          start.arrive_and_wait();
          exchange(side, rank, rounds, received[side * ranks_ + rank]);
        });
    start.arrive_and_wait();
    const std::uint64_t from = Clock::steady().now_ns();
    for (std::thread& thread : threads) thread.join();
    const double took_us = static_cast<double>(Clock::steady().now_ns() - from) / 1000;
    Outcome outcome;
    outcome.us = took_us / rounds;
    double wakes = 0;
    for (unsigned i = 0; i < received.size(); ++i) {
      if (received[i].fault) return Error(EPROTO, "a message was lost");
      wakes += static_cast<double>(received[i].wakes);
      outcome.lines_per_message += lines_moved(i % ranks_, received[i].frames) / static_cast<double>(received.size());
    }
    outcome.wakes_per_message = wakes / (2.0 * ranks_ * ranks_ * rounds);
    return outcome;
  }

 private:
  struct Received {
    std::vector<MovedFrame> frames;
    std::uint64_t wakes = 0;
    bool fault = false;
  };

  int core_of(unsigned side, unsigned queue) const { return cores_[(side * ranks_ + queue) % cores_.size()]; }

  Status open(Side& side, std::unique_ptr<nic::Mac> mac) {
    const unsigned which = &side == &sides_[0] ? 0 : 1;
    nic::Config config;
    config.name = "bench";
    config.partition = nic::Partition::release;
    config.queues = ranks_;
    config.delivery = variant_.delivery;
    for (unsigned queue = 0; pinned_ && queue < ranks_; ++queue) config.queue_core.push_back(core_of(which, queue));
    config.endpoint_at = nic::EndpointPlace{.ether_type = kType, .offset = 14};
    config.spin_us = 0;
    nic::Failure why;
    side.adapter = nic::Adapter::create(std::move(config), std::move(mac), why);
    if (side.adapter == nullptr) return Error(why.code.value(), why.message);
    for (unsigned rank = 0; rank < ranks_; ++rank) {
      nic::EndpointOptions options{
          .id = static_cast<std::uint16_t>(ranks_ + rank), .hold_limit = 2048, .send_ring = 256};
      if (variant_.message_aware) options.message_end = {.offset = kFlagsAt, .mask = kLast};
      side.endpoints.push_back(side.adapter->open_endpoint(options, why));
      if (side.endpoints.back() == nullptr) return Error(why.code.value(), why.message);
    }
    return {};
  }

  // Sends what fits; says where it goes on.
  struct Cursor {
    unsigned to = 0;
    std::uint32_t offset = 0;
  };
  void send_some(Side& side, unsigned rank, Cursor& cursor, std::vector<std::byte>& frame) {
    nic::Endpoint& endpoint = *side.endpoints[variant_.one_send_queue ? 0 : rank];
    while (cursor.to < ranks_) {
      const std::uint32_t length = std::min(kPayload, size_ - cursor.offset);
      Header header{};
      header.to = static_cast<std::uint16_t>(ranks_ + (rank + cursor.to) % ranks_);
      header.from = static_cast<std::uint8_t>(rank);
      header.flags = cursor.offset + length == size_ ? kLast : std::uint8_t{0};
      header.offset = cursor.offset;
      frame[12] = std::byte{kType >> 8}, frame[13] = std::byte{kType & 0xff};
      std::memcpy(frame.data() + 14, &header, sizeof header);
      const nic::Frame one{frame.data(), std::max(kHeader + length, 60u)};
      if (variant_.one_send_queue) side.sending.lock();
      const bool sent = endpoint.send({&one, 1}) == 1;
      if (variant_.one_send_queue) side.sending.unlock();
      if (!sent) return;
      cursor.offset += length;
      if (cursor.offset == size_) cursor = {cursor.to + 1, 0};
    }
  }

  // Takes what is there into the message's buffer; says how many messages have ended.
  unsigned take(nic::Endpoint& endpoint, std::vector<std::byte>& message, Received& received) {
    std::array<nic::Packet, 32> packets;
    unsigned ended = 0;
    const std::size_t count = endpoint.receive(packets);
    for (const nic::Packet& packet : std::span(packets).first(count)) {
      Header header;
      std::memcpy(&header, packet.data + 14, sizeof header);
      const std::uint32_t length =
          std::min({packet.length - kHeader, size_ - std::min(size_, header.offset), kPayload});
      std::memcpy(message.data() + header.offset, packet.data + kHeader, length);
      if ((header.flags & kLast) != 0) ++ended;
      if (received.frames.size() < kTraced)
        received.frames.push_back({variant_.delivery == nic::Delivery::single_queue ? 0 : packet.queue, packet.buffer});
    }
    endpoint.give_back({packets.data(), count});
    return ended;
  }

  void exchange(unsigned which, unsigned rank, std::uint32_t rounds, Received& received) {
    Side& side = sides_[which];
    nic::Endpoint& endpoint = *side.endpoints[rank];
    std::vector<std::byte> frame(nic::kStandardFrame), message(size_ + kPayload);
    received.frames.reserve(kTraced);
    std::uint64_t ended = 0;
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      Cursor cursor;
      const std::uint64_t wanted = std::uint64_t{round} * ranks_;
      int idle = 0;
      while (cursor.to < ranks_ || ended < wanted) {
        send_some(side, rank, cursor, frame);
        const unsigned more = take(endpoint, message, received);
        ended += more;
        if (more != 0 || cursor.to < ranks_) {
          idle = 0;
          continue;
        }
        if (++idle < kPatience) {
          std::this_thread::yield();
          continue;
        }
        if (!sleep(endpoint, received)) return;
        idle = 0;
      }
    }
  }

  static bool sleep(nic::Endpoint& endpoint, Received& received) {
    if (!endpoint.arm()) return true;
    pollfd entry{endpoint.descriptor(), POLLIN, 0};
    const bool woken = ::poll(&entry, 1, 5000) == 1;
    endpoint.disarm();
    ++received.wakes;
    received.fault = !woken;
    return woken;
  }

  static constexpr std::size_t kTraced = 4000;  // frames per rank that the model is fed with
  static constexpr int kPatience = 4;           // looks before sleeping

  const Variant variant_;
  const std::uint32_t size_;
  const unsigned ranks_;
  const std::vector<int> cores_;
  const bool pinned_;
  Side sides_[2];
};

class MxMultiqueue {
 public:
  explicit MxMultiqueue(const Options& options) : options_(options) {}

  Result<Report> run() {
    const auto cores = static_cast<unsigned>(Topology::machine().processors().size());
    ranks_ = std::clamp(cores / 2, 2u, 8u);
    for (const std::uint32_t size : kSizes) add_case(size);
    // Figure 5, and table 2's idea as a number of lines.
    for (const std::uint32_t size : kSizes)
      suite_.expect({case_of(size), "exchange", kMultiqueue.name, kRoundRobin.name, Better::lower, 1 / 1.15});
    suite_.expect({case_of(8), "lines moved", kMultiqueue.name, kRoundRobin.name, Better::lower, 0.7});
    suite_.note(
        fmt::format("{} endpoints on either side of a wire, each with a thread; queues: {} on either side; {} "
                    "processors here, so {}",
                    ranks_, ranks_, cores,
                    4 * ranks_ + 2 <= cores ? "each thread has its own"
                                            : "threads share them, and a queue's runs where its endpoint's does"));
    suite_.note(
        "lines moved: by a model that is fed with who moved each of the run's first frames, an endpoint's thread "
        "on its queue's processor; there are no hardware counters to read");
    suite_.note("the paper, figure 5: IMB Alltoall 1.3x faster with multiqueue on average");
    suite_.note(
        "the paper, table 2: L2 misses of a 128 B ping-pong, kernel + user: round robin 26.8 % + 17.9 %, one "
        "queue on a core that shares a cache 25.06 % + 23.05 %, on the same core 14.15 % + 0.51 %; of 32 kB "
        "28.77 % + 17.71 %, 23.17 % + 29.32 %, 24.49 % + 22.56 %");
    if (failed_) return *failed_;
    Report report = suite_.run(options_, 9);
    if (failed_) return *failed_;
    return report;
  }

 private:
  static std::string case_of(std::uint32_t size) { return fmt::format("alltoall {} B", size); }

  void add_case(std::uint32_t size) {
    const auto add = [&](const Variant& variant, Kind kind, const char* metric, const char* unit,
                         double Outcome::*value) {
      suite_.add({case_of(size), variant.name, kind, metric, unit, Better::lower,
                  [this, variant, size, value] { return measure(variant, size).*value; }});
    };
    for (const Variant* variant : {&kRoundRobin, &kSingle, &kMultiqueue, &kAware, &kOneSend}) {
      const bool peer = variant == &kRoundRobin || variant == &kSingle;
      add(*variant, peer ? Kind::peer : Kind::us, "exchange", "us", &Outcome::us);
    }
    if (size == 8)
      for (const Variant* variant : {&kRoundRobin, &kSingle, &kMultiqueue})
        add(*variant, variant == &kMultiqueue ? Kind::us : Kind::peer, "lines moved", "lines/message",
            &Outcome::lines_per_message);
    if (size == 32768)
      for (const Variant* variant : {&kMultiqueue, &kAware})
        add(*variant, variant == &kMultiqueue ? Kind::peer : Kind::us, "wakes", "per message",
            &Outcome::wakes_per_message);
  }

  Outcome measure(const Variant& variant, std::uint32_t size) {
    if (failed_) return {};
    const std::uint32_t rounds = (size > 8192 ? 40 : 150) / (options_.quick ? 5 : 1);
    auto outcome = Exchange(variant, size, ranks_, true).run(rounds);
    if (outcome) return *outcome;
    failed_ = outcome.error().because(fmt::format("{}, {} B", variant.name, size));
    return {};
  }

  const Options options_;
  unsigned ranks_ = 2;
  std::optional<Error> failed_;
  Suite suite_{"mx-multiqueue", "messages between endpoints: who moves frames (Open-MX multiqueue, figure 5)"};
};

}  // namespace

Result<Report> run_mx_multiqueue(const Options& options) {
  return MxMultiqueue(options).run();
}

}  // namespace viaduct::bench
