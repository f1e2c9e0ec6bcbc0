#include "net/ping.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint64_t kTag = 1;
constexpr std::size_t kMemory = 1 << 20;
constexpr std::uint64_t kTurn = 10'000'000;  // ns: how long a pinger sleeps when it waits for nothing in particular

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

class NoMemory final : public RegisteredMemory {
  Reached reach(std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t, Access) override { return {}; }
};

// One connection to an answerer, and what has come of it.
class Pinger {
 public:
  Pinger(Node& node, std::string host, const PingOptions& options)
      : node_(node), host_(std::move(host)), options_(options), buffer_(kMemory) {}

  Result<PingResult> run() {
    VIADUCT_TRY(result_.route, node_.route_to(host_));
    VIADUCT_CHECK(meet());
    VIADUCT_CHECK(round_trips(result_.polling, true));
    VIADUCT_CHECK(round_trips(result_.sleeping, false));
    VIADUCT_TRY(result_.put_bytes_per_second, bulk(true));
    VIADUCT_TRY(result_.get_bytes_per_second, bulk(false));
    result_.peer = node_.name_of(session_);
    result_.frame_size = node_.look(session_)->frame_size();
    result_.counters = node_.look(session_)->counters();
    node_.forget(session_);
    return std::move(result_);
  }

 private:
  Error silent(const std::string& what) const {
    const std::string hint =
        connected_ ? "it answered before, so it has ended, or the way there is cut"
                   : "is `viaduct ping --answer` running there, and does a firewall let UDP through in both "
                     "directions?";
    return Error(ETIMEDOUT, fmt::format("{} by {} within {:g} s (UDP, from {}, MTU {} on the way): {}", what,
                                        result_.route.peer, static_cast<double>(options_.timeout_ns) / 1e9,
                                        result_.route.from, result_.route.mtu, hint));
  }

  void turn(bool spin) {
    if (!node_.progress() && !spin) node_.sleep(kTurn);
    StationEvent event;
    while (node_.take_event(event)) {
      if (event.kind == StationEvent::Kind::failed) fault_ = event.text;
      if (event.kind == StationEvent::Kind::connected) connected_ = true;
      if (event.kind != StationEvent::Kind::session) continue;
      switch (event.event.kind) {
        case Event::Kind::accepted:
          flow_ = event.event.flow;
          break;
        case Event::Kind::transferred:
          ++(event.event.status == TransferStatus::done ? transferred_ : failed_);
          break;
        case Event::Kind::refused:
        case Event::Kind::closed:
        case Event::Kind::over:
          fault_ = "the other side ended the connection";
          break;
        default:
          break;
      }
    }
  }

  template <class Done>
  Status wait(const std::string& what, bool spin, Done&& done) {
    const std::uint64_t end = now_ns() + options_.timeout_ns;
    while (!done()) {
      turn(spin);
      if (fault_ == "nobody answered") return silent("no answer");
      if (!fault_.empty()) return Error(ECONNREFUSED, fmt::format("{}: {}", result_.route.peer, fault_));
      if (now_ns() > end) return silent(what);
    }
    return {};
  }

  Status meet() {
    VIADUCT_TRY(session_, node_.connect(host_, kPingName, options_.timeout_ns));
    VIADUCT_CHECK(wait("no answer", false, [this] { return connected_; }));
    node_.use(session_)->open({}, {});
    return wait("no flow was accepted", false, [this] { return flow_ != 0; });
  }

  Status round_trips(std::vector<std::uint64_t>& times, bool spin) {
    for (std::uint32_t i = 0; i < options_.count; ++i) {
      const iovec piece{&i, sizeof i};
      const std::uint64_t start = now_ns();
      if (node_.use(session_)->try_send(flow_, {&piece, 1}) != Sent::yes)
        return Error(EPIPE, "the flow takes no message");
      std::span<const std::byte> echo;
      VIADUCT_CHECK(wait("a message was not echoed", spin, [&] { return node_.use(session_)->peek(flow_, echo); }));
      times.push_back(now_ns() - start);
      if (echo.size() != sizeof i || std::memcmp(echo.data(), &i, sizeof i) != 0) {
        return Error(EPROTO, "the echo is not what was sent");
      }
      node_.use(session_)->consume(flow_);
    }
    std::sort(times.begin(), times.end());
    return {};
  }

  // Megabytes, a few under way at a time.
  Result<double> bulk(bool out) {
    constexpr std::uint64_t kUnderWay = 4;
    const std::uint64_t begun_before = transferred_;
    std::uint64_t begun = transferred_;
    const std::uint64_t start = now_ns();
    const std::uint64_t end = start + options_.bulk_ns;
    while (now_ns() < end || begun == begun_before) {
      Session* session = node_.use(session_);
      while (begun - transferred_ < kUnderWay) {
        const bool taken = out ? session->put(flow_, buffer_.data(), kTag, 0, buffer_.size(), begun)
                               : session->get(flow_, buffer_.data(), kTag, 0, buffer_.size(), begun);
        if (!taken) break;
        ++begun;
      }
      const std::uint64_t before = transferred_;
      VIADUCT_CHECK(wait("bulk data was not taken", true, [&] { return transferred_ > before || failed_ > 0; }));
      if (failed_ > 0) return Error(EPROTO, "the other side's memory cannot be reached");
    }
    VIADUCT_CHECK(wait("bulk data was not taken", true, [&] { return transferred_ == begun; }));
    return static_cast<double>(buffer_.size()) * static_cast<double>(transferred_ - begun_before) /
           (static_cast<double>(now_ns() - start) / 1e9);
  }

  Node& node_;
  const std::string host_;
  const PingOptions options_;
  std::vector<std::byte> buffer_;
  PingResult result_;
  std::uint64_t session_ = 0;
  std::uint32_t flow_ = 0;
  bool connected_ = false;
  std::uint64_t transferred_ = 0, failed_ = 0;
  std::string fault_;
};

}  // namespace

class PingAnswerer::Memory final : public RegisteredMemory {
 public:
  Reached reach(std::uint32_t, std::uint64_t tag, std::uint64_t address, std::uint64_t length, Access) override {
    if (tag != kTag) return {TransferStatus::no_such_tag};
    if (address > kMemory || length > kMemory - address) return {TransferStatus::out_of_bounds};
    return {TransferStatus::done, bytes_.data() + address};
  }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kMemory);
};

PingAnswerer::PingAnswerer() : memory_(std::make_unique<Memory>()) {}
PingAnswerer::~PingAnswerer() = default;

Result<std::unique_ptr<PingAnswerer>> PingAnswerer::open(std::uint16_t port) {
  std::unique_ptr<PingAnswerer> answerer(new PingAnswerer);
  VIADUCT_TRY(answerer->node_, Node::open({.well_known_port = port}, *answerer->memory_));
  VIADUCT_CHECK(answerer->node_->offer(kPingName));
  return answerer;
}

std::size_t PingAnswerer::peers() const {
  return node_->station().sessions();
}

void PingAnswerer::turn(std::uint64_t most_ns) {
  const bool moved = node_->progress();
  StationEvent event;
  while (node_->take_event(event)) take(event);
  if (!moved) node_->sleep(most_ns);
}

void PingAnswerer::take(const StationEvent& event) {
  Session* session = event.kind == StationEvent::Kind::session ? node_->use(event.session) : nullptr;
  if (session == nullptr) return;
  const Event& what = event.event;
  if (what.kind == Event::Kind::asked) session->accept(what.flow, {}, {});
  if (what.kind == Event::Kind::closed) session->close(what.flow);
  if (what.kind == Event::Kind::over) return node_->forget(event.session);
  std::span<const std::byte> message;
  while (session->peek(what.flow, message)) {
    const iovec piece{const_cast<std::byte*>(message.data()), message.size()};
    // Whoever sends more than it reads back gets no echo of the rest.
    (void)session->try_send(what.flow, {&piece, 1});
    session->consume(what.flow);
  }
}

Result<PingResult> ping(const std::string& host, const PingOptions& options) {
  NoMemory memory;
  VIADUCT_TRY(const auto node, Node::open({}, memory));
  return Pinger(*node, host, options).run();
}

}  // namespace viaduct::net
