#include "net/ping.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint64_t kTag = 1;
constexpr std::size_t kMemory = Pinger::kMemory;
constexpr std::uint64_t kTurn = 10'000'000;  // ns: how long a pinger sleeps when it waits for nothing in particular

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

}  // namespace

class PingAnswerer::Memory final : public RegisteredMemory {
 public:
  Reached reach(std::uint64_t, std::uint64_t tag, std::uint64_t address, std::uint64_t length, Access) override {
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

Result<std::unique_ptr<PingAnswerer>> PingAnswerer::over(std::unique_ptr<nic::Mac> cable) {
  std::unique_ptr<PingAnswerer> answerer(new PingAnswerer);
  VIADUCT_TRY(answerer->node_, Node::over(std::move(cable), {}, *answerer->memory_));
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
  if (moved) {
    node_->flush();
  } else if (most_ns > 0) {
    node_->sleep(most_ns);
  }
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

// Nobody reaches anything here.
class Pinger::Memory final : public RegisteredMemory {
 public:
  Reached reach(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, Access) override { return {}; }
};

Pinger::Pinger(std::string host, std::uint64_t timeout_ns)
    : host_(std::move(host)), timeout_ns_(timeout_ns), memory_(std::make_unique<Memory>()), buffer_(kMemory) {}

Pinger::~Pinger() {
  if (node_ != nullptr && session_ != 0) node_->forget(session_);
}

Result<std::unique_ptr<Pinger>> Pinger::open(const std::string& host, std::uint64_t timeout_ns) {
  std::unique_ptr<Pinger> pinger(new Pinger(host, timeout_ns));
  VIADUCT_TRY(pinger->node_, Node::open({}, *pinger->memory_));
  VIADUCT_TRY(pinger->route_, pinger->node_->route_to(host));
  VIADUCT_CHECK(pinger->meet());
  return pinger;
}

Result<std::unique_ptr<Pinger>> Pinger::over(std::unique_ptr<nic::Mac> cable, std::uint64_t timeout_ns) {
  std::unique_ptr<Pinger> pinger(new Pinger(cable->name(), timeout_ns));
  VIADUCT_TRY(pinger->node_, Node::over(std::move(cable), {}, *pinger->memory_));
  VIADUCT_TRY(pinger->route_, pinger->node_->route_to({}));
  VIADUCT_CHECK(pinger->meet());
  return pinger;
}

std::string Pinger::peer() const {
  return node_->name_of(session_);
}
std::size_t Pinger::frame_size() const {
  return node_->look(session_)->frame_size();
}
const SessionCounters& Pinger::counters() const {
  return node_->look(session_)->counters();
}
bool Pinger::drain() {
  return node_->drain(timeout_ns_);
}

Error Pinger::silent(const std::string& what) const {
  const std::string hint = connected_ ? "it answered before, so it has ended, or the way there is cut"
                                      : "is `viaduct ping --answer` running there, and does a firewall let UDP through "
                                        "in both directions?";
  return Error(ETIMEDOUT, fmt::format("{} by {} within {:g} s (UDP, from {}, MTU {} on the way): {}", what, route_.peer,
                                      static_cast<double>(timeout_ns_) / 1e9, route_.from, route_.mtu, hint));
}

void Pinger::turn(bool spin) {
  if (!node_->progress() && !spin) node_->sleep(kTurn);
  StationEvent event;
  while (node_->take_event(event)) {
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
Status Pinger::wait(const std::string& what, bool spin, Done&& done) {
  std::uint64_t end = now_ns() + timeout_ns_;
  std::uint64_t heard = 0;
  while (!done()) {
    turn(spin);
    if (fault_ == kNobodyAnswered) return silent("no answer");
    if (!fault_.empty()) return Error(ECONNREFUSED, fmt::format("{}: {}", route_.peer, fault_));
    if (in_bulk_ && counters().bytes_received != heard) {
      heard = counters().bytes_received;
      end = now_ns() + timeout_ns_;
    }
    if (now_ns() > end) return silent(what);
  }
  return {};
}

Status Pinger::meet() {
  VIADUCT_TRY(const std::uint64_t session, node_->connect(route_, kPingName, timeout_ns_));
  VIADUCT_CHECK(wait("no answer", false, [this] { return connected_; }));
  session_ = session;
  node_->use(session_)->open({}, {});
  return wait("no flow was accepted", false, [this] { return flow_ != 0; });
}

Result<std::vector<std::uint64_t>> Pinger::round_trips(std::uint32_t count, bool spin) {
  std::vector<std::uint64_t> times;
  times.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const iovec piece{&i, sizeof i};
    const std::uint64_t start = now_ns();
    if (node_->use(session_)->try_send(flow_, {&piece, 1}) != Sent::yes) {
      return Error(EPIPE, "the flow takes no message");
    }
    node_->flush();
    std::span<const std::byte> echo;
    VIADUCT_CHECK(wait("a message was not echoed", spin, [&] { return node_->use(session_)->peek(flow_, echo); }));
    times.push_back(now_ns() - start);
    if (echo.size() != sizeof i || std::memcmp(echo.data(), &i, sizeof i) != 0) {
      return Error(EPROTO, "the echo is not what was sent");
    }
    node_->use(session_)->consume(flow_);
  }
  return times;
}

Result<double> Pinger::bulk(Way way, std::size_t size, std::uint64_t bytes, std::uint64_t most_ns, bool spin) {
  constexpr std::uint64_t kUnderWay = 8;
  in_bulk_ = true;
  const std::uint64_t begun_before = transferred_;
  const std::uint64_t wanted = begun_before + std::max<std::uint64_t>(1, bytes / size);
  std::uint64_t begun = begun_before;
  const std::uint64_t start = now_ns();
  const std::uint64_t end = most_ns > UINT64_MAX - start ? UINT64_MAX : start + most_ns;
  while (transferred_ < wanted && (now_ns() < end || begun == begun_before)) {
    Session* session = node_->use(session_);
    while (begun < wanted && begun - transferred_ < kUnderWay) {
      const std::size_t place = begun * size % (kMemory - size + 1);
      const bool taken = way == Way::put ? session->put(flow_, buffer_.data() + place, kTag, place, size, begun)
                                         : session->get(flow_, buffer_.data() + place, kTag, place, size, begun);
      if (!taken) break;
      ++begun;
    }
    const std::uint64_t before = transferred_;
    VIADUCT_CHECK(wait("bulk data was not taken", spin, [&] { return transferred_ > before || failed_ > 0; }));
    if (failed_ > 0) return Error(EPROTO, "the other side's memory cannot be reached");
  }
  VIADUCT_CHECK(wait("bulk data was not taken", spin, [&] { return transferred_ + failed_ >= begun; }));
  in_bulk_ = false;
  if (failed_ > 0) return Error(EPROTO, "the other side's memory cannot be reached");
  return static_cast<double>(size) * static_cast<double>(transferred_ - begun_before) /
         (static_cast<double>(now_ns() - start) / 1e9);
}

}  // namespace viaduct::net
