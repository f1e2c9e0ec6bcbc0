#include "net/node.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/crc32c.hpp"
#include "base/log.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint16_t kEtherType = 0x88b5;        // IEEE's first for local use
constexpr std::uint64_t kLookAtSilentMac = 50'000;  // ns: between looks at a MAC that has no descriptor
constexpr Place kEverybody{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

std::uint64_t unguessable() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

// Abstract, so it goes with its process; one per network namespace, as the ports are.
sockaddr_un name_address(const std::string& name, std::uint16_t port, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Names are up to 255 bytes, this is shorter: what does not fit is told apart by a sum of the whole.
  const std::string text =
      fmt::format("viaduct-net/{}/{:08x}/{:.60}", port, crc32c(std::as_bytes(std::span(name))), name);
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

std::size_t frame_size_of(const Route& way) {
  return way.mtu - std::min<std::size_t>(way.mtu, headers_of(way.to) + nic::kEthernetHeader);
}

StationOptions with_frame_size(StationOptions options, std::uint32_t largest) {
  options.session.frame_size = largest;
  return options;
}

Result<NodeOptions> with_key(NodeOptions options) {
  const std::string file = options.key_file.value_or(std::string(Config::process().text("VIADUCT_KEY_FILE")));
  if (file.empty()) return options;
  VIADUCT_TRY(Key key, Key::read(file));
  options.station.key = std::make_shared<const Key>(std::move(key));
  return options;
}

// What others hand over: the address that the hello came from, and the hello.
struct Handed {
  sockaddr_in6 from;  // or a sockaddr_in at its beginning
  std::byte frame[512];
};

// Of both kinds of IP, where the machine has both.
std::unique_ptr<nic::UdpSwitch> make_own_switch(std::uint32_t max_frame, nic::Failure& why) {
  if (auto both = nic::make_udp_switch({.local = "[::]:0", .max_frame = max_frame}, why)) return both;
  return nic::make_udp_switch({.local = "0.0.0.0:0", .max_frame = max_frame}, why);
}

}  // namespace

Result<std::unique_ptr<Node>> Node::open(const NodeOptions& given, RegisteredMemory& memory) {
  VIADUCT_TRY(const NodeOptions options, with_key(given));
  nic::Failure why;
  auto own = make_own_switch(static_cast<std::uint32_t>(options.largest_frame + kEthernet), why);
  if (own == nullptr) return Error(why.code.value(), why.message);
  nic::UdpSwitch* const udp = own.get();
  return std::unique_ptr<Node>(new Node(options, memory, std::move(own), udp));
}

Result<std::unique_ptr<Node>> Node::over(std::unique_ptr<nic::Mac> mac, const NodeOptions& options,
                                         RegisteredMemory& memory) {
  VIADUCT_TRY(NodeOptions fitting, with_key(options));
  fitting.largest_frame = std::min(options.largest_frame, mac->max_frame() - static_cast<std::uint32_t>(kEthernet));
  return std::unique_ptr<Node>(new Node(fitting, memory, std::move(mac), nullptr));
}

Node::Node(const NodeOptions& options, RegisteredMemory& memory, std::unique_ptr<nic::Mac> mac, nic::UdpSwitch* udp)
    : options_(options),
      mac_(std::move(mac)),
      switch_(udp),
      hand_over_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      statistics_(Statistics::make(udp != nullptr ? "udp" : mac_->name())),
      station_(with_frame_size(options.station, options.largest_frame), memory, unguessable),
      buffers_(kBatch * (options.largest_frame + kEthernet)),
      watched_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (mac_->fd() >= 0) watch(mac_->fd(), false, true);
  if (statistics_ != nullptr) station_.set_ledger(*statistics_);
  if (switch_ == nullptr) return;
  station_.set_answer_port(switch_->port());
  station_.set_way([this](const Place& place) -> std::size_t {
    sockaddr_storage to{};
    std::uint32_t length = 0;
    if (!switch_->peer_address(place, to, length)) return SIZE_MAX;
    const auto way = net::route_to(to, length);
    return way ? frame_size_of(*way) : SIZE_MAX;
  });
}

Node::~Node() = default;

void Node::watch(int descriptor, bool also_writable, bool is_new) {
  epoll_event wanted{};
  wanted.events = also_writable ? EPOLLIN | EPOLLOUT : EPOLLIN;
  (void)::epoll_ctl(watched_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &wanted);
}

Status Node::offer(const std::string& name) {
  if (name.empty() || name.size() > UINT8_MAX) return Error(EINVAL, "a name has 1 to 255 bytes");
  if (switch_ == nullptr) {
    station_.offer(name);
    return {};
  }
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Error::from_errno("open a UNIX socket");
  socklen_t length = 0;
  const sockaddr_un address = name_address(name, options_.well_known_port, length);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) return Error(EADDRINUSE, fmt::format("another process offers the name '{}'", name));
    return Error::from_errno(fmt::format("take the name '{}'", name));
  }
  watch(socket.get(), false, true);
  names_[name] = std::move(socket);
  station_.offer(name);
  join_group();
  return {};
}

void Node::withdraw(const std::string& name) {
  station_.withdraw(name);
  names_.erase(name);  // a descriptor that is closed leaves the set by itself
}

// Another user may hold the port: his processes hand hellos over all the same, so it is no fault.
void Node::join_group() {
  if (!shared_.empty()) return;
  nic::Failure why;
  // One of each kind: a socket of both would get nothing of IPv4 beside one of IPv4 alone.
  if (auto four = nic::make_udp_switch(
          {.local = fmt::format("0.0.0.0:{}", options_.well_known_port), .shared_port = true}, why)) {
    shared_.push_back(std::move(four));
  } else {
    log::notice(why.message + "; hellos reach this process through those who have the port");
  }
  if (auto six = nic::make_udp_switch(
          {.local = fmt::format("[::]:{}", options_.well_known_port), .shared_port = true, .only_ipv6 = true}, why)) {
    shared_.push_back(std::move(six));
  }
  for (const auto& each : shared_) watch(each->fd(), false, true);
}

Result<Route> Node::route_to(const std::string& host) const {
  if (switch_ != nullptr) return find_route(host, options_.well_known_port);
  Route cable;
  cable.peer = mac_->name();
  cable.interface = mac_->name();
  cable.mtu = options_.largest_frame;
  return cable;
}

Result<std::uint64_t> Node::connect(const Route& way, const std::string& name, std::uint64_t within_ns) {
  const std::uint64_t now = now_ns();
  if (switch_ == nullptr) return station_.connect(kEverybody, name, options_.largest_frame, now, now + within_ns);
  const Place place = switch_->know_peer(reinterpret_cast<const sockaddr*>(&way.to), way.to_length);
  return station_.connect(place, name, frame_size_of(way), now, now + within_ns);
}

bool Node::progress() {
  bool moved = receive_own();
  // Hellos are rare: a busy node looks for them now and then.
  if (!moved || ++turns_ % kTurnsBetweenHellos == 0) {
    if (moved && statistics_ != nullptr) statistics_->set_mac(mac_->counters());
    moved |= receive_hellos();
    if (!names_.empty()) moved |= receive_handed();
  }
  station_.tick(now_ns());
  moved |= send_frames();
  return moved;
}

bool Node::receive_own() {
  nic::Frame frames[kBatch];
  const std::size_t count = mac_->receive(frames);
  const std::uint64_t now = now_ns();
  for (const nic::Frame& frame : std::span(frames).first(count)) {
    if (frame.length <= kEthernet) continue;
    Place from;
    std::memcpy(from.data(), frame.data + sizeof from, sizeof from);
    const std::span<const std::byte> bytes(frame.data + kEthernet, frame.length - kEthernet);
    if (station_.receive(from, bytes, now) == Station::Taken::for_another && !options_.others_listen)
      station_.refuse(from, bytes);
  }
  mac_->release(count);
  return count > 0;
}

bool Node::receive_hellos() {
  bool moved = false;
  for (const auto& each : shared_) moved |= receive_hellos_of(*each);
  return moved;
}

bool Node::receive_hellos_of(nic::UdpSwitch& shared) {
  nic::Frame frames[kBatch];
  const std::size_t count = shared.receive(frames);
  for (const nic::Frame& frame : std::span(frames).first(count)) {
    if (frame.length <= kEthernet) continue;
    Place from;
    std::memcpy(from.data(), frame.data + sizeof from, sizeof from);
    sockaddr_storage address{};
    std::uint32_t length = 0;
    if (shared.peer_address(from, address, length)) {
      take_hello(address, length, {frame.data + kEthernet, frame.length - kEthernet});
    }
  }
  shared.release(count);
  return count > 0;
}

bool Node::receive_handed() {
  bool moved = false;
  for (const auto& [name, socket] : names_) {
    Handed handed;
    const ssize_t size = ::recv(socket.get(), &handed, sizeof handed, MSG_DONTWAIT);
    if (size <= static_cast<ssize_t>(sizeof handed.from)) continue;
    moved = true;
    const std::span<const std::byte> frame(handed.frame, static_cast<std::size_t>(size) - sizeof handed.from);
    const auto hello = Station::read_hello(frame);
    sockaddr_storage from{};
    std::memcpy(&from, &handed.from, sizeof handed.from);
    if (hello && station_.offers(hello->name) && length_of(from) != 0) take_hello(from, length_of(from), frame);
  }
  return moved;
}

// A hello that came by the well-known port, here or at another process.
void Node::take_hello(const sockaddr_storage& from, std::uint32_t length, std::span<const std::byte> frame) {
  const auto hello = Station::read_hello(frame);
  if (length > sizeof Handed::from) return;
  if (hello && !station_.offers(hello->name) && frame.size() <= sizeof Handed::frame) {
    Handed handed{};
    std::memcpy(&handed.from, &from, length);
    std::memcpy(handed.frame, frame.data(), frame.size());
    socklen_t name_length = 0;
    const sockaddr_un address = name_address(hello->name, options_.well_known_port, name_length);
    const std::size_t size = sizeof handed.from + frame.size();
    if (::sendto(hand_over_.get(), &handed, size, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&address),
                 name_length) >= 0 ||
        errno == EAGAIN) {  // it has too many to look at: the hello comes again
      return;
    }
  }
  sockaddr_storage answer_to = from;
  if (hello && hello->answer_port != 0) set_port(answer_to, hello->answer_port);
  const Place place = switch_->know_peer(reinterpret_cast<const sockaddr*>(&answer_to), length);
  if (station_.receive(place, frame, now_ns()) == Station::Taken::for_another) station_.refuse(place, frame);
}

// From a port of its own each time: where the well-known port is shared, another process may get it.
void Node::send_hello(const Place& to, std::span<const std::byte> bytes) const {
  sockaddr_storage address{};
  std::uint32_t length = 0;
  if (!switch_->peer_address(to, address, length)) return;
  const Fd socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)::sendto(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&address),
                 length);
}

bool Node::send_frames() {
  bool moved = false;
  for (;;) {
    if (sent_ == outgoing_.size()) {
      outgoing_.clear();
      sent_ = 0;
      const std::size_t room = options_.largest_frame + kEthernet;
      const std::uint64_t now = now_ns();
      while (outgoing_.size() < kBatch) {
        const std::span<std::byte> buffer = std::span(buffers_).subspan(outgoing_.size() * room, room);
        Place to;
        const std::size_t size = station_.next_frame(buffer.subspan(kEthernet), to, now);
        if (size == 0) break;
        const std::uint16_t type = htons(kEtherType);
        const nic::MacAddress self = mac_->address();
        std::memcpy(buffer.data(), to.data(), to.size());
        std::memcpy(buffer.data() + to.size(), self.data(), self.size());
        std::memcpy(buffer.data() + 2 * to.size(), &type, sizeof type);
        const auto frame = buffer.first(size + kEthernet);
        if (switch_ != nullptr && static_cast<FrameKind>(frame[kEthernet + 5]) == FrameKind::hello) {
          send_hello(to, frame);
          continue;
        }
        outgoing_.push_back({frame.data(), static_cast<std::uint32_t>(frame.size())});
      }
      if (outgoing_.empty()) return moved;
    }
    const std::size_t taken = mac_->transmit(std::span(outgoing_).subspan(sent_));
    sent_ += taken;
    moved |= taken > 0;
    if (blocked()) return moved;  // full: the rest next time
  }
}

void Node::prepare_to_sleep() {
  if (statistics_ != nullptr) statistics_->set_mac(mac_->counters());
  station_.about_to_sleep();
  send_frames();
  if (blocked() != watches_room_ && mac_->fd() >= 0) {
    watches_room_ = blocked();
    watch(mac_->fd(), watches_room_, false);
  }
}

std::uint64_t Node::next_deadline() const {
  const std::uint64_t due = station_.next_deadline();
  return mac_->fd() >= 0 ? due : std::min(due, now_ns() + kLookAtSilentMac);
}

void Node::sleep(std::uint64_t most_ns) {
  prepare_to_sleep();
  const std::uint64_t now = now_ns();
  const std::uint64_t due = next_deadline();
  const timespec time = to_timespec(std::min(most_ns, due > now ? due - now : 0));
  epoll_event event;
  (void)::epoll_pwait2(watched_.get(), &event, 1, &time, nullptr);
}

bool Node::take_event(StationEvent& event) {
  if (!station_.take_event(event)) return false;
  const bool begins = event.kind == StationEvent::Kind::connected || event.kind == StationEvent::Kind::met;
  if (begins && switch_ != nullptr) {
    sockaddr_storage address{};
    std::uint32_t length = 0;
    const Place place = station_.place_of(event.session);
    if (switch_->peer_address(place, address, length)) {
      kept_[event.session] = switch_->keep_peer(reinterpret_cast<const sockaddr*>(&address), length);
    }
  }
  if (begins && statistics_ != nullptr) {
    const Path path = path_of(event.session);
    statistics_->show(event.session, path.peer, path.interface, options_.station.key != nullptr);
  }
  return true;
}

std::string Node::name_of(std::uint64_t session) const {
  const Place place = station_.place_of(session);
  return switch_ != nullptr ? switch_->peer_name(place) : fmt::format("{:02x}", fmt::join(place, ":"));
}

bool Node::is_same_process(std::uint64_t one, std::uint64_t other) const {
  return station_.place_of(one) == station_.place_of(other) &&
         station_.peers_incarnation(one) == station_.peers_incarnation(other);
}

Path Node::path_of(std::uint64_t session) const {
  Path path;
  path.peer = name_of(session);
  path.carrier = carrier();
  if (const Session* const its = look(session); its != nullptr) path.frame_size = its->frame_size();
  sockaddr_storage to{};
  std::uint32_t length = 0;
  if (switch_ == nullptr || !switch_->peer_address(station_.place_of(session), to, length)) return path;
  if (const auto way = net::route_to(to, length)) {
    path.local = way->from;
    path.interface = way->interface;
    path.mtu = way->mtu;
  }
  return path;
}

void Node::forget(std::uint64_t session) {
  station_.forget(session);
  send_frames();
  if (const auto kept = kept_.find(session); kept != kept_.end()) {
    switch_->forget_peer(kept->second);
    kept_.erase(kept);
  }
}

bool Node::drain(std::uint64_t within_ns) {
  const std::uint64_t end = now_ns() + within_ns;
  for (;;) {
    const bool moved = progress();
    station_.about_to_sleep();
    send_frames();
    if (is_quiet()) return true;
    const std::uint64_t now = now_ns();
    if (now >= end) return false;
    if (!moved) sleep(end - now);  // else there may be more than was looked at
  }
}

}  // namespace viaduct::net
