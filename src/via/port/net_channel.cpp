#include "via/port/net_channel.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/config.hpp"

namespace viaduct::via {

namespace {

constexpr std::size_t kFewPieces = 16;
constexpr std::uint32_t kMostSlots = 64;

CloseReason close_reason_of(net::Reason reason) {
  switch (reason) {
    case net::Reason::done:
      return CloseReason::peer_finished;
    case net::Reason::not_wanted:
    case net::Reason::too_many:
    case net::Reason::not_offered:
    case net::Reason::key_differs:
      return CloseReason::refused;
    case net::Reason::timed_out:
      return CloseReason::timed_out;
    case net::Reason::broken:
      return CloseReason::broken;
    case net::Reason::session_over:
      return CloseReason::closed_here;
    case net::Reason::aborted:
    case net::Reason::peer_ended:
    case net::Reason::peer_restarted:
      break;
  }
  return CloseReason::peer_died;
}

std::uint64_t spin_bound_ns() {
  return Config::process().number("VIADUCT_SPIN_US") * 1000;
}

std::size_t length_of(std::span<const iovec> pieces) {
  std::size_t length = 0;
  for (const iovec& piece : pieces)
    if (__builtin_add_overflow(length, piece.iov_len, &length)) return SIZE_MAX;
  return length;
}

}  // namespace

net::FlowLimits flow_limits(const ChannelOptions& options) {
  const std::size_t fragment = std::clamp<std::size_t>(options.bulk_bytes / 8, 512, 32768);
  return {.slots = std::clamp<std::uint32_t>(options.slots, 8, kMostSlots),
          .slot_size = static_cast<std::uint32_t>(fragment + sizeof(NetFragmentHeader))};
}

NetChannel::NetChannel(std::shared_ptr<Network> network, net::FlowId flow, std::uint64_t user)
    : network_(std::move(network)),
      flow_(flow),
      user_(user),
      largest_(std::max(network_->engine().largest_item(flow), sizeof(NetFragmentHeader)) - sizeof(NetFragmentHeader)),
      receive_spinner_(spin_bound_ns()),
      send_spinner_(spin_bound_ns()) {}

NetChannel::~NetChannel() {
  engine().close(flow_);
  network_->dismiss(user_);
}

// ---- what the engine tells

void NetChannel::ended_with(CloseReason reason) {
  CloseReason open = CloseReason::open;
  end_.compare_exchange_strong(open, reason, std::memory_order_acq_rel);
}

CloseReason NetChannel::close_reason() const {
  if (const CloseReason end = end_.load(std::memory_order_acquire); end != CloseReason::open) return end;
  return finished_.load(std::memory_order_relaxed) ? CloseReason::closed_here : CloseReason::open;
}

void NetChannel::take_events() {
  net::FlowEvent event;
  for (;;) {
    const std::lock_guard lock(events_lock_);
    if (!engine().take_event(flow_, event)) return;
    switch (event.kind) {
      case net::FlowEvent::Kind::ended:
        ended_.store(true, std::memory_order_release);
        break;
      case net::FlowEvent::Kind::closed:
        ended_with(close_reason_of(event.reason));
        closed_.store(true, std::memory_order_release);
        break;
      case net::FlowEvent::Kind::transferred:
        transferred_.push_back(std::move(event));
        break;
      default:
        break;
    }
  }
}

bool NetChannel::take_transferred(net::FlowEvent& event) {
  take_events();
  const std::lock_guard lock(events_lock_);
  if (transferred_.empty()) return false;
  event = std::move(transferred_.front());
  transferred_.pop_front();
  return true;
}

bool NetChannel::sending_is_over() {
  take_events();
  return finished_.load(std::memory_order_relaxed) || closed_.load(std::memory_order_acquire);
}

// ---- sending

Sent NetChannel::try_send(std::span<const iovec> pieces, std::uint32_t immediate, bool more) {
  const std::size_t length = length_of(pieces);
  if (finished_.load(std::memory_order_relaxed) || length > largest_) return Sent::closed;
  if (held_back_) return refused_full_.fetch_add(1, std::memory_order_relaxed), Sent::full;
  NetFragmentHeader header{immediate, more ? kNetMore : 0};
  iovec few[kFewPieces];
  std::vector<iovec> many;
  iovec* all = few;
  if (pieces.size() >= kFewPieces) {
    many.resize(pieces.size() + 1);
    all = many.data();
  }
  all[0] = {&header, sizeof header};
  std::copy(pieces.begin(), pieces.end(), all + 1);
  switch (engine().try_send(flow_, {all, pieces.size() + 1})) {
    case net::Sent::yes:
      break;
    case net::Sent::full:
      refused_full_.fetch_add(1, std::memory_order_relaxed);
      return Sent::full;
    case net::Sent::closed:
    case net::Sent::too_long:
      take_events();
      return Sent::closed;
  }
  taken_.fetch_add(1, std::memory_order_relaxed);
  fragments_sent_.fetch_add(1, std::memory_order_relaxed);
  bytes_sent_.fetch_add(length, std::memory_order_relaxed);
  if (!more) engine().flush();
  return Sent::taken;
}

std::size_t NetChannel::credits(std::size_t length) {
  if (length > largest_ || held_back_ || sending_is_over()) return 0;
  return engine().credit(flow_);
}

void NetChannel::finish_sending() {
  if (finished_.exchange(true, std::memory_order_relaxed)) return;
  engine().finish(flow_);
  engine().flush();
}

// ---- receiving

Got NetChannel::peek(Fragment& fragment) {
  std::span<const std::byte> message;
  if (!engine().peek(flow_, message)) {
    peeked_ = false;
    take_events();
    if (!ended_.load(std::memory_order_acquire) && end_.load(std::memory_order_acquire) == CloseReason::open)
      return Got::nothing;
    // What came before the end is still to be received.
    if (!engine().peek(flow_, message)) return ended_with(CloseReason::peer_finished), Got::end;
  }
  NetFragmentHeader header;
  if (message.size() < sizeof header) return ended_with(CloseReason::broken), Got::end;
  std::memcpy(&header, message.data(), sizeof header);
  if ((header.flags & ~kNetMore) != 0) return ended_with(CloseReason::broken), Got::end;
  fragment = {header.immediate, message.subspan(sizeof header), (header.flags & kNetMore) == 0};
  peeked_ = true;
  peeked_bytes_ = fragment.bytes.size();
  return Got::fragment;
}

void NetChannel::consume() {
  if (!peeked_) return;
  peeked_ = false;
  fragments_received_.fetch_add(1, std::memory_order_relaxed);
  bytes_received_.fetch_add(peeked_bytes_, std::memory_order_relaxed);
  engine().consume(flow_);
}

// ---- waiting

template <class Ready>
std::error_code NetChannel::wait_for(Spinner& spinner, int timeout_ms, Ready ready) {
  const Clock& clock = Clock::steady();
  const Deadline deadline = timeout_ms < 0
                                ? Deadline::never()
                                : Deadline::after_ns(clock, static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
  // What is waited for comes with news. Who looks again and again leaves the engine's lock alone until then.
  std::uint64_t heard = engine().news() - 1;
  const auto look = [&] {
    if (const std::uint64_t news = engine().news(); news != heard) {
      heard = news;
      if (ready()) return true;
    }
    return engine().progress() && ready();
  };
  const std::uint64_t start = clock.now_ns();
  if (look() || spinner.spin(start, deadline, look)) return {};
  for (;;) {
    const std::uint64_t seen = engine().news();
    if (ready() || look()) break;
    const std::uint64_t now = clock.now_ns();
    if (deadline.expired(now)) return std::make_error_code(std::errc::timed_out);
    if (!engine().prepare_to_sleep(seen)) continue;
    pollfd entry{engine().descriptor(), POLLIN, 0};
    const timespec left = to_timespec(deadline.left_ns(now));
    const int woken = ::ppoll(&entry, 1, deadline.is_never() ? nullptr : &left, nullptr);
    const bool interrupted = woken < 0 && errno == EINTR;
    engine().woke();
    if (ready()) break;
    if (interrupted) return std::make_error_code(std::errc::interrupted);
  }
  spinner.learn(clock.now_ns() - start);
  return {};
}

std::error_code NetChannel::wait_to_receive(int timeout_ms) {
  return wait_for(receive_spinner_, timeout_ms, [this] {
    Fragment fragment;
    return peek(fragment) != Got::nothing;
  });
}

std::error_code NetChannel::wait_to_send(std::size_t length, int timeout_ms) {
  if (length > largest_) return std::make_error_code(std::errc::message_size);
  return wait_for(send_spinner_, timeout_ms, [&] { return sending_is_over() || credits(length) > 0; });
}

// ---- ready queues

std::error_code NetChannel::enter(ReadyEntrance& entrance, std::uint64_t tag) {
  const std::error_code fault = entrance.add(*network_);
  if (!fault) network_->report(user_, tag);
  return fault;
}

void NetChannel::leave(ReadyEntrance& entrance) {
  network_->stop_reporting(user_);
  entrance.remove(*network_);
}

Channel::Statistics NetChannel::statistics() const {
  const auto get = [](const std::atomic<std::uint64_t>& value) { return value.load(std::memory_order_relaxed); };
  return {get(fragments_sent_), get(fragments_received_), get(bytes_sent_), get(bytes_received_), 0,
          get(refused_full_)};
}

}  // namespace viaduct::via
