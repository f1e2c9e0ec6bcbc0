#include "nic/endpoint/rings.hpp"

#include <algorithm>
#include <cstring>

namespace viaduct::nic {

std::size_t EndpointRings::send(std::span<const Frame> frames) {
  const std::uint32_t consumer = view_.memory->send_consumer.load(std::memory_order_acquire);  // A4
  const std::uint32_t waiting = std::min(send_producer_ - consumer, view_.geometry.sends);
  const std::size_t count = std::min<std::size_t>(frames.size(), view_.geometry.sends - waiting);
  for (const Frame& frame : frames.first(count)) {
    if (frame.length > view_.geometry.max_frame) continue;
    std::memcpy(view_.send_buffer(send_producer_), frame.data, frame.length);
    view_.lengths[send_producer_ & (view_.geometry.sends - 1)].store(frame.length, std::memory_order_relaxed);
    ++send_producer_;
  }
  view_.memory->send_producer.store(send_producer_, std::memory_order_release);  // R3
  return count;
}

std::size_t EndpointRings::receive(std::span<Packet> packets, std::uint32_t mark) {
  const std::uint32_t producer = view_.memory->return_producer.load(std::memory_order_acquire);  // A1
  std::size_t count = 0;
  while (consumer_ != producer && count < packets.size()) {
    const ReturnedPacket entry = view_.returned[consumer_++ & (view_.geometry.ring() - 1)];
    if (entry.buffer >= view_.geometry.buffers || is_out_[entry.buffer] != 0) continue;
    is_out_[entry.buffer] = 1;
    ++out_;
    packets[count++] = {.data = view_.buffer(entry.buffer),
                        .length = std::min(entry.length, view_.geometry.max_frame),
                        .buffer = entry.buffer | mark,
                        .queue = entry.queue,
                        .congested = (entry.flags & ReturnedPacket::kCongested) != 0};
  }
  return count;
}

bool EndpointRings::give_back(std::uint32_t buffer) {
  if (buffer >= view_.geometry.buffers || is_out_[buffer] == 0) return false;
  is_out_[buffer] = 0;
  --out_;
  view_.free[free_producer_++ & (view_.geometry.ring() - 1)].store(buffer, std::memory_order_relaxed);
  return true;
}

void EndpointRings::post() {
  view_.memory->free_producer.store(free_producer_, std::memory_order_release);  // R2
}

}  // namespace viaduct::nic
