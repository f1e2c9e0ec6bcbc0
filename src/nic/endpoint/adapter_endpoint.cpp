#include "nic/endpoint/adapter_endpoint.hpp"

#include <sys/epoll.h>

#include <algorithm>

#include "base/clock.hpp"

namespace viaduct::nic {

namespace {

constexpr std::uint64_t kLookEveryNs = 1'000'000;  // at a MAC that has no descriptor

void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {  // one writer
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

}  // namespace

AdapterEndpoint::AdapterEndpoint(AdapterTurns& adapter, EndpointSwitch& among, Port& port, std::uint16_t id, Mac& mac,
                                 EndpointRings rings, WakeDescriptor wake)
    : adapter_(adapter),
      among_(among),
      port_(port),
      id_(id),
      mac_(mac),
      rings_(std::move(rings)),
      wake_(std::move(wake)) {
  if (adapter_.inlined() && mac_.fd() >= 0) wake_.watch(mac_.fd(), EPOLLIN);
}

std::size_t AdapterEndpoint::send(std::span<const Frame> frames) {
  std::size_t taken = 0;
  if (adapter_.inlined() && rings_.unsent() == 0) taken = adapter_.send_now(frames);
  if (taken < frames.size()) {
    const std::size_t queued = rings_.send(frames.subspan(taken));
    // Where the firmware runs inline, a turn takes a batch.
    for (std::uint32_t left = rings_.unsent(), before = left + 1; left != 0 && left < before;) {
      adapter_.frames_wait();
      before = left;
      if (adapter_.inlined()) left = rings_.unsent();
    }
    taken += queued;
  }
  if (taken < frames.size()) {
    wanted_room_.store(true, std::memory_order_relaxed);
    rings_.memory().wants_room.store(1, std::memory_order_relaxed);
    fence::full();
    if (rings_.has_room()) wake();  // there is room already, and whoever sleeps would not be told
  }
  add(sent_, taken);
  return taken;
}

std::size_t AdapterEndpoint::receive(std::span<Packet> packets) {
  if (adapter_.inlined() && !rings_.something_came()) adapter_.turn();
  const std::size_t count = rings_.receive(packets);
  if (count != 0) add(received_, count);
  return count;
}

void AdapterEndpoint::give_back(std::span<const Packet> packets) {
  std::uint64_t count = 0;
  for (const Packet& packet : packets) count += rings_.give_back(packet.buffer) ? 1U : 0U;
  rings_.post();
  add(returned_, count);
}

bool AdapterEndpoint::something_to_do() {
  if (next_due_ns_ <= Clock::steady().now_ns() || rings_.something_came()) return true;
  if (!wanted_room_.load(std::memory_order_relaxed)) return false;
  if (!rings_.has_room()) return false;
  wanted_room_.store(false, std::memory_order_relaxed);
  return true;
}

bool AdapterEndpoint::arm() {
  if (something_to_do()) return false;
  std::uint64_t due = next_due_ns_;
  if (adapter_.inlined() && mac_.fd() < 0) due = std::min(due, Clock::steady().now_ns() + kLookEveryNs);
  if (wanted_room_.load(std::memory_order_relaxed)) rings_.memory().wants_room.store(1, std::memory_order_relaxed);
  wake_.arm(rings_.memory().user_word, due);
  if (adapter_.inlined()) {
    adapter_.turn();
    // Frames that the MAC has no room for leave when somebody turns the adapter: this thread, when there is room.
    watches_room_ = rings_.unsent() != 0 && mac_.transmit_fd() >= 0;
    if (watches_room_) wake_.watch(mac_.transmit_fd(), EPOLLOUT | (mac_.transmit_fd() == mac_.fd() ? EPOLLIN : 0U));
  }
  if (!something_to_do()) return true;
  disarm();
  return false;
}

void AdapterEndpoint::disarm() {
  wake_.disarm(rings_.memory().user_word);
  if (!watches_room_) return;
  watches_room_ = false;
  wake_.watch(mac_.transmit_fd(), mac_.transmit_fd() == mac_.fd() ? std::uint32_t{EPOLLIN} : 0);
}

EndpointCounters AdapterEndpoint::counters() const {
  EndpointCounters counters;
  counters.sent = sent_.load(std::memory_order_relaxed);
  counters.received = received_.load(std::memory_order_relaxed);
  counters.held = counters.received - returned_.load(std::memory_order_relaxed);
  counters.over_limit = rings_.memory().over_limit.load(std::memory_order_relaxed);
  return counters;
}

}  // namespace viaduct::nic
