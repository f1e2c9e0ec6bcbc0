#include "net/ping.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "net/silence.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint64_t kTag = 1;
constexpr std::size_t kMemory = Pinger::kMemory;
constexpr std::uint64_t kTurn = 10'000'000;  // ns: how long a pinger sleeps when it waits for nothing in particular

constexpr std::uint16_t kNodeEtherType = 0x88b5;  // as nodes write it

// Everybody on the Ethernet hears the hello: it says which host is meant.
std::string frame_name(const std::string& host_and_port) {
  return fmt::format("{}@{}", kPingName, host_and_port);
}

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

Result<std::unique_ptr<PingAnswerer>> PingAnswerer::over(std::unique_ptr<nic::Mac> cable, const std::string& name) {
  std::unique_ptr<PingAnswerer> answerer(new PingAnswerer);
  VIADUCT_TRY(answerer->node_, Node::over(std::move(cable), {.others_listen = true}, *answerer->memory_));
  VIADUCT_CHECK(answerer->node_->offer(name));
  return answerer;
}

Result<std::unique_ptr<nic::Mac>> open_frames(const std::string& interface) {
  nic::Failure why;
  auto mac = nic::make_packet_mac({.interface = interface, .ether_type = kNodeEtherType, .promiscuous = false}, why);
  if (mac == nullptr) return Error(why.code.value(), why.message);
  return mac;
}

std::vector<std::string> PingAnswerer::answer_frames(std::uint16_t port, std::string& why) {
  std::vector<std::string> found;
  why = "no interface with an IPv4 address is up";
  for (const OwnAddress& own : own_addresses()) {
    auto mac = open_frames(own.interface);
    auto other = mac ? over(std::move(*mac), frame_name(fmt::format("{}:{}", own.address, port)))
                     : Result<std::unique_ptr<PingAnswerer>>(mac.error());
    if (!other) {
      why = other.error().message();
      continue;
    }
    node_->watch((*other)->node_->descriptor());
    by_frames_.push_back(std::move(*other));
    found.push_back(own.interface);
  }
  return found;
}

std::size_t PingAnswerer::peers() const {
  return node_->station().sessions();
}

bool PingAnswerer::progress() {
  const bool moved = node_->progress();
  StationEvent event;
  while (node_->take_event(event)) take(event);
  if (moved) node_->flush();
  return moved;
}

void PingAnswerer::turn(std::uint64_t most_ns) {
  bool moved = progress();
  for (const auto& each : by_frames_) moved |= each->progress();
  if (moved || most_ns == 0) return;
  const std::uint64_t now = now_ns();
  for (const auto& each : by_frames_) {
    each->node_->prepare_to_sleep();
    const std::uint64_t due = each->node_->next_deadline();
    most_ns = std::min(most_ns, due > now ? due - now : 0);
  }
  node_->sleep(most_ns);
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
  VIADUCT_CHECK(pinger->meet(kPingName));
  return pinger;
}

Result<std::unique_ptr<Pinger>> Pinger::over(std::unique_ptr<nic::Mac> cable, const std::string& name,
                                             std::uint64_t timeout_ns) {
  std::unique_ptr<Pinger> pinger(new Pinger(cable->name(), timeout_ns));
  VIADUCT_TRY(pinger->node_, Node::over(std::move(cable), {.others_listen = true}, *pinger->memory_));
  VIADUCT_TRY(pinger->route_, pinger->node_->route_to({}));
  VIADUCT_CHECK(pinger->meet(name));
  return pinger;
}

Result<std::unique_ptr<Pinger>> Pinger::by_frames(const Route& way, std::uint64_t timeout_ns) {
  VIADUCT_TRY(auto mac, open_frames(way.interface));
  return over(std::move(mac), frame_name(way.peer), timeout_ns);
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
  const double seconds = static_cast<double>(timeout_ns_) / 1e9;
  if (route_.to.ss_family == AF_UNSPEC) {
    return Error(ETIMEDOUT,
                 fmt::format("{} to frames by {} within {:g} s: nobody there listens to frames, or a router is "
                             "in between",
                             what, route_.interface, seconds));
  }
  const std::string hint =
      connected_ ? "it answered before, so it has ended, or the way there is cut" : why_silent(route_);
  return Error(ETIMEDOUT, fmt::format("{} by {} within {:g} s (UDP, from {}, MTU {} on the way): {}", what, route_.peer,
                                      seconds, route_.from, route_.mtu, hint));
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

Status Pinger::meet(const std::string& name) {
  VIADUCT_TRY(const std::uint64_t session, node_->connect(route_, name, timeout_ns_));
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
