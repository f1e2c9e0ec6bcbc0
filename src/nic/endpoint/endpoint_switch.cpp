#include "nic/endpoint/endpoint_switch.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace viaduct::nic {

static_assert(std::endian::native == std::endian::little);

EndpointSwitch::EndpointSwitch(const Options& options, const SteeringTable& steering)
    : options_(options), steering_(steering), by_id_(new std::atomic<Port*>[65536]()) {
  if (options_.delivery == Delivery::together) return;
  const unsigned count = options_.delivery == Delivery::single_queue ? 1 : options_.queues;
  for (unsigned queue = 0; queue < count; ++queue) {
    const int core = queue < options_.cores.size() ? options_.cores[queue] : -1;
    processors_.push_back(std::make_unique<DeliveryProcessor>(queue, core, options_.spin_us));
    processors_.back()->start();
  }
}

Result<Port*> EndpointSwitch::open(Port::Opening& opening) {
  const std::lock_guard opening_one(opening_);
  if (opening.id == 0) {
    opening.id = 1;
    while (opening.id != 0 && find(opening.id) != nullptr) ++opening.id;
  }
  if (opening.id == 0 || find(opening.id) != nullptr)
    return Error(EADDRINUSE, fmt::format("endpoint {} is open already", opening.id));
  Port* port = nullptr;
  const unsigned used = used_.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < used && port == nullptr; ++i)
    if (!ports_[i]->is_open()) port = ports_[i].get();
  if (port == nullptr) {
    if (used == kMostEndpoints) return Error(ENOSPC, fmt::format("{} endpoints are open already", used));
    ports_[used] = std::make_unique<Port>();
    port = ports_[used].get();
    used_.store(used + 1, std::memory_order_release);
  }
  const std::uint16_t id = opening.id;
  {
    const std::scoped_lock both(port->receive_lock, port->send_lock);
    port->open(std::move(opening));
  }
  opening.id = id;
  by_id_[id].store(port, std::memory_order_release);
  return port;
}

void EndpointSwitch::close(Port& port) {
  Segment memory;  // is unmapped when the locks are free again
  const std::lock_guard closing_one(opening_);
  by_id_[port.id()].store(nullptr, std::memory_order_relaxed);
  const std::scoped_lock both(port.receive_lock, port.send_lock);
  memory = port.close();
}

void EndpointSwitch::deliver_to_all(const Frame& frame) {
  const unsigned used = used_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    Port& port = *ports_[i];
    if (!port.listens()) continue;
    const std::lock_guard locked(port.receive_lock);
    if (!port.is_open() || !port.listens()) continue;
    (void)port.deliver(frame, 0);
    port.ring_user();
  }
}

void EndpointSwitch::deliver_here(Port& port, std::uint16_t id, std::span<const Frame> frames) {
  const std::lock_guard locked(port.receive_lock);
  if (!port.is_open() || port.id() != id) return;
  for (const Frame& frame : frames) (void)port.deliver(frame, 0);
  port.ring_user();
}

EndpointSwitch::Ticket EndpointSwitch::hand_over(Port& port, std::uint16_t id, const Frame& frame) {
  const auto processors = static_cast<unsigned>(processors_.size());
  unsigned queue = options_.delivery == Delivery::round_robin ? turn_ : steering_.queue_of(id);
  if (queue >= processors) queue = 0;
  // What is on its way through another queue goes first.
  if (options_.delivery == Delivery::multiqueue && queue != port.queue && !is_done(port.last_ticket))
    queue = port.queue;
  if (!processors_[queue]->hand_over(frame, port, id)) {
    const std::lock_guard locked(port.receive_lock);
    if (port.is_open()) port.count_over_limit();
    return 0;
  }
  const Ticket ticket = Ticket{queue + 1} << 32 | processors_[queue]->written();
  port.queue = queue, port.last_ticket = ticket;
  return ticket;
}

void EndpointSwitch::sort(std::span<const Frame> frames, std::span<FrameFate> fates, std::span<Ticket> tickets) {
  const EndpointPlace& place = options_.place;
  const auto type = static_cast<std::uint16_t>(place.ether_type << 8 | place.ether_type >> 8);
  // The endpoint of a frame; -1: none of ours.
  const auto id_of = [&](std::size_t i) -> int {
    const Frame& frame = frames[i];
    std::uint16_t found = 0;
    if (fates[i] != FrameFate::to_host || frame.length < kEthernetHeader || frame.length < place.offset + 2U) return -1;
    std::memcpy(&found, frame.data + 12, sizeof found);
    if (found != type) return -1;
    std::memcpy(&found, frame.data + place.offset, sizeof found);
    return found;
  };
  for (std::size_t i = 0; i < frames.size();) {
    const int id = id_of(i);
    Port* const port = id > 0 ? find(static_cast<std::uint16_t>(id)) : nullptr;
    if (id == 0) deliver_to_all(frames[i]);
    if (port == nullptr) {
      if (id >= 0) fates[i] = id == 0 ? FrameFate::taken : FrameFate::dropped;
      ++i;
      continue;
    }
    std::size_t end = i;
    for (; end < frames.size() && (end == i || id_of(end) == id); ++end) fates[end] = FrameFate::taken;
    if (processors_.empty())
      deliver_here(*port, static_cast<std::uint16_t>(id), frames.subspan(i, end - i));
    else
      for (std::size_t at = i; at < end; ++at)
        tickets[at] = hand_over(*port, static_cast<std::uint16_t>(id), frames[at]);
    i = end;
  }
  for (const auto& processor : processors_) processor->publish();
  if (!processors_.empty()) turn_ = (turn_ + 1) % static_cast<unsigned>(processors_.size());
}

std::size_t EndpointSwitch::drain(Mac& mac, std::uint64_t& bytes) {
  const unsigned used = used_.load(std::memory_order_acquire);
  std::size_t sent = 0;
  full_ = false;
  for (unsigned i = 0; i < used; ++i) {
    const unsigned at = (next_ + i) % used;
    Port& port = *ports_[at];
    if (!port.is_open() || !port.send_lock.try_lock()) continue;
    bool waiting = false;
    if (port.is_open()) sent += port.send(mac, bytes, waiting);
    port.send_lock.unlock();
    full_ |= waiting;
  }
  if (used != 0) next_ = (next_ + 1) % used;
  return sent;
}

bool EndpointSwitch::arm() {
  const unsigned used = used_.load(std::memory_order_acquire);
  bool idle = true;
  for (unsigned i = 0; i < used; ++i) {
    const std::lock_guard locked(ports_[i]->send_lock);
    if (ports_[i]->is_open() && !ports_[i]->arm()) idle = false;
  }
  return idle;
}

void EndpointSwitch::publish(const Mac& mac) {
  const MacCounters counters = mac.counters();
  const Link link = mac.link();
  const std::uint32_t max_frame = mac.capabilities().max_frame;
  const unsigned used = used_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    const std::lock_guard locked(ports_[i]->send_lock);
    if (ports_[i]->is_open()) ports_[i]->publish(counters, link, max_frame);
  }
}

}  // namespace viaduct::nic
