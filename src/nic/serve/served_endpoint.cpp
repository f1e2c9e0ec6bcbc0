#include "nic/serve/served_endpoint.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/meeting.hpp"
#include "base/socket_message.hpp"

namespace viaduct::nic {

namespace {

constexpr std::uint64_t kTryEveryNs = 20'000'000;
constexpr std::uint64_t kPatienceNs = 5'000'000'000;  // with a server that has taken the connection
constexpr std::uint32_t kLookEvery = 4096;            // receives in vain

void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {  // one writer
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

Result<FdMessage> ask(int socket, const ServeHello& hello) {
  VIADUCT_CHECK(send_with_fds(socket, std::as_bytes(std::span(&hello, 1)), {}));
  VIADUCT_CHECK(meeting::wait_for(socket, POLLIN, Deadline::after_ns(Clock::steady(), kPatienceNs)));
  return receive_with_fds(socket, sizeof(ServeAnswer), 2);
}

}  // namespace

Status ServedEndpoint::connect() {
  Fd socket;
  VIADUCT_TRY(socket, meeting::connect_at(meeting::fit_name(serve_name(server_))));
  VIADUCT_CHECK(meeting::check_peer(socket.get(), meeting::Peers::by_setting));
  const ServeHello hello{.magic = kServeMagic,
                         .version = kServeVersion,
                         .hold_limit = options_.hold_limit,
                         .send_ring = options_.send_ring,
                         .queue = options_.queue,
                         .core = options_.core,
                         .id = options_.id,
                         .listens = options_.listens,
                         .end_mask = options_.message_end.mask,
                         .end_offset = options_.message_end.offset,
                         .reserved = {}};
  FdMessage message;
  VIADUCT_TRY(message, ask(socket.get(), hello));
  ServeAnswer answer{};
  if (message.bytes.size() != sizeof answer) return Error(EPROTO, "the server's answer is no answer");
  std::memcpy(&answer, message.bytes.data(), sizeof answer);
  answer.message[sizeof answer.message - 1] = '\0';
  if (answer.magic != kServeMagic || answer.version != kServeVersion)
    return Error(EPROTO, "the server is of another version");
  if (answer.fault != 0) return Error(answer.fault, answer.message);
  const EndpointGeometry geometry{.buffers = answer.buffers, .sends = answer.sends, .max_frame = answer.max_frame};
  if (message.fds.size() != 2 || !geometry.is_possible() || !mac_.fits(answer))
    return Error(EPROTO, "the server offers another endpoint than the one that was asked for");
  Segment segment;
  VIADUCT_TRY(segment, Segment::adopt(std::move(message.fds[0]), kEndpointLayout));
  if (segment.payload().size() < geometry.bytes()) return Error(EPROTO, "the server's memory is too small");

  const std::lock_guard locked(changing_);
  EndpointRings rings(EndpointView(segment.payload(), geometry));
  // The one before stays for whoever looks at its counters just now.
  while (lives_.size() > 1) {
    const auto idle =
        std::find_if(lives_.begin(), std::prev(lives_.end()), [](const Life& life) { return life.rings.out() == 0; });
    if (idle == std::prev(lives_.end())) break;
    over_limit_before_ += idle->rings.memory().over_limit.load(std::memory_order_relaxed);
    lives_.erase(idle);
  }
  lives_.push_back({++number_, std::move(segment), std::move(rings)});
  options_.id = answer.id;
  core_.store(answer.core, std::memory_order_relaxed);
  connection_ = std::move(socket);
  bell_ = std::move(message.fds[1]);
  wake_.watch(bell_.get(), EPOLLIN);
  mac_.connect(answer, &lives_.back().rings.memory());
  alive_.store(true, std::memory_order_release);
  return {};
}

void ServedEndpoint::lose() {
  const std::lock_guard locked(changing_);
  if (!alive()) return;
  alive_.store(false, std::memory_order_release);
  mac_.lose();
  wake_.watch(bell_.get(), 0);
  bell_.reset();
  connection_.reset();
  next_try_ns_ = 0;
  log::fault("the server " + server_ + " of endpoint " + std::to_string(options_.id) +
             " has gone: frames are lost until it is back");
}

// What rang is taken off the socket; its end means that the server is gone.
void ServedEndpoint::look_at_server() {
  if (!alive()) return;
  std::array<char, 64> bytes;
  const ssize_t got = ::recv(bell_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) lose();
}

void ServedEndpoint::try_again() {
  const std::uint64_t now = Clock::steady().now_ns();
  if (now < next_try_ns_) return;
  next_try_ns_ = now + kTryEveryNs;
  if (connect()) log::notice("the server " + server_ + " of endpoint " + std::to_string(options_.id) + " is back");
}

std::size_t ServedEndpoint::send(std::span<const Frame> frames) {
  const std::lock_guard locked(changing_);
  if (!alive()) {
    mac_.refuse(frames.size());
    add(sent_, frames.size());
    return frames.size();
  }
  EndpointRings& rings = lives_.back().rings;
  const std::size_t taken = rings.send(frames);
  if (taken != 0 && WakeProtocol<FullFences>::must_wake(rings.memory().adapter_word))
    (void)::send(bell_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (taken < frames.size()) {
    wanted_room_.store(true, std::memory_order_relaxed);
    rings.memory().wants_room.store(1, std::memory_order_relaxed);
    fence::full();
    if (rings.has_room()) wake_.ring(rings.memory().user_word);  // whoever sleeps would not be told
  }
  add(sent_, taken);
  return taken;
}

std::size_t ServedEndpoint::receive(std::span<Packet> packets) {
  if (!alive()) try_again();
  const std::size_t count = lives_.back().rings.receive(packets, lives_.back().number << kLifeShift);
  if (count != 0)
    add(received_, count), in_vain_ = 0;
  else if (++in_vain_ % kLookEvery == 0)
    look_at_server();
  return count;
}

void ServedEndpoint::give_back(std::span<const Packet> packets) {
  std::uint64_t count = 0;
  for (const Packet& packet : packets) {
    const auto life = std::ranges::find_if(
        lives_, [&](const Life& one) { return (one.number & 0xffff) == packet.buffer >> kLifeShift; });
    if (life == lives_.end() || !life->rings.give_back(packet.buffer & 0xffff)) continue;
    ++count;
  }
  lives_.back().rings.post();
  add(returned_, count);
}

bool ServedEndpoint::something_to_do() {
  EndpointRings& rings = lives_.back().rings;
  if (next_due_ns_ <= Clock::steady().now_ns() || rings.something_came()) return true;
  if (!wanted_room_.load(std::memory_order_relaxed) || (alive() && !rings.has_room())) return false;
  wanted_room_.store(false, std::memory_order_relaxed);
  return true;
}

bool ServedEndpoint::arm() {
  if (!alive()) try_again();
  if (something_to_do()) return false;
  EndpointRings& rings = lives_.back().rings;
  std::uint64_t due = next_due_ns_;
  if (!alive()) due = std::min(due, Clock::steady().now_ns() + kTryEveryNs);
  if (wanted_room_.load(std::memory_order_relaxed)) rings.memory().wants_room.store(1, std::memory_order_relaxed);
  wake_.arm(rings.memory().user_word, due);
  if (!something_to_do()) return true;
  disarm();
  return false;
}

void ServedEndpoint::disarm() {
  wake_.disarm(lives_.back().rings.memory().user_word);
  look_at_server();
}

void ServedEndpoint::wake() {
  const std::lock_guard locked(changing_);
  wake_.ring(lives_.back().rings.memory().user_word);
}

EndpointCounters ServedEndpoint::counters() const {
  EndpointCounters counters;
  counters.sent = sent_.load(std::memory_order_relaxed);
  counters.received = received_.load(std::memory_order_relaxed);
  counters.held = counters.received - returned_.load(std::memory_order_relaxed);
  const std::lock_guard locked(changing_);
  counters.over_limit = over_limit_before_;
  for (const Life& life : lives_) counters.over_limit += life.rings.memory().over_limit.load(std::memory_order_relaxed);
  return counters;
}

std::unique_ptr<Endpoint> open_served_endpoint(std::string_view server, const ServedOptions& options, Failure& why) {
  const auto open = [&]() -> Result<std::unique_ptr<ServedEndpoint>> {
    WakeDescriptor wake;
    VIADUCT_TRY(wake, WakeDescriptor::create());
    auto endpoint = std::make_unique<ServedEndpoint>(std::string(server), options.endpoint, std::move(wake));
    VIADUCT_CHECK(endpoint->connect());
    return endpoint;
  };
  auto endpoint = open();
  if (!endpoint) {
    Error error = endpoint.error();
    if (error.code() == ECONNREFUSED)
      error = Error(ECONNREFUSED, "nobody serves it in this network namespace: viaduct nic run --serve " +
                                      std::string(server) + " --mac MAC");
    error = error.because("open an endpoint of the server " + std::string(server));
    why = {std::error_code(error.code(), std::generic_category()), error.message()};
    return nullptr;
  }
  (void)bind_near((*endpoint)->core(), options.bind.value_or(binding_by_setting()));
  return std::move(*endpoint);
}

}  // namespace viaduct::nic
