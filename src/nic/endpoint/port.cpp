#include "nic/endpoint/port.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/waiter.hpp"

namespace viaduct::nic {

void Port::open(Opening opening) {
  segment_ = std::move(opening.segment);
  view_ = EndpointView(segment_.payload(), opening.geometry);
  bell_ = opening.bell, is_socket_ = opening.is_socket;
  producer_ = free_consumer_ = send_consumer_ = 0;
  over_limit_ = 0;
  message_end_ = opening.message_end;
  rings_ = false;
  with_user_.assign(opening.geometry.buffers, 0);
  free_.clear();
  for (std::uint32_t i = opening.geometry.buffers; i-- != 0;) free_.push_back(i);
  id_.store(opening.id, std::memory_order_relaxed);
  listens_.store(opening.listens, std::memory_order_relaxed);
  open_.store(true, std::memory_order_relaxed);
}

Segment Port::close() {
  open_.store(false, std::memory_order_relaxed);
  listens_.store(false, std::memory_order_relaxed);
  view_ = {};
  return std::move(segment_);
}

// Of what the user says it gave back, only what it really had counts.
void Port::take_free() {
  const std::uint32_t ring = view_.geometry.ring();
  const std::uint32_t producer = view_.memory->free_producer.load(std::memory_order_acquire);  // A2
  if (producer - free_consumer_ > ring) return;
  for (; free_consumer_ != producer; ++free_consumer_) {
    const std::uint32_t buffer = view_.free[free_consumer_ & (ring - 1)].load(std::memory_order_relaxed);
    if (buffer >= view_.geometry.buffers || with_user_[buffer] == 0) continue;
    with_user_[buffer] = 0;
    free_.push_back(buffer);
  }
}

bool Port::is_half_out() {
  const std::uint32_t half = view_.geometry.buffers / 2;
  if (free_.size() <= half) take_free();
  return free_.size() <= half;
}

bool Port::deliver(const Frame& frame, unsigned from_queue) {
  if (free_.empty()) take_free();
  if (free_.empty() || frame.length > view_.geometry.max_frame) {
    count_over_limit();
    return false;
  }
  const std::uint32_t buffer = free_.back();
  free_.pop_back();
  with_user_[buffer] = 1;
  rings_ |= ends_message(frame) || is_half_out();
  std::memcpy(view_.buffer(buffer), frame.data, frame.length);
  view_.returned[producer_ & (view_.geometry.ring() - 1)] = {
      buffer, frame.length, frame.congested ? ReturnedPacket::kCongested : std::uint16_t{0},
      static_cast<std::uint16_t>(from_queue), 0};
  view_.memory->return_producer.store(++producer_, std::memory_order_release);  // R1
  return true;
}

// A socket, and not an eventfd, for a user in another process: a byte can be sent without waiting whatever the user did
// to the descriptor.
void Port::ring() {
  if (!WakeProtocol<FullFences>::must_wake(view_.memory->user_word)) return;
  if (is_socket_)
    (void)::send(bell_, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  else
    wake_eventfd(bell_);
}

std::size_t Port::send(Mac& mac, std::uint64_t& bytes, bool& waiting) {
  const std::uint32_t producer = view_.memory->send_producer.load(std::memory_order_acquire);  // A3
  const std::uint32_t there = producer - send_consumer_;
  if (there == 0 || there > view_.geometry.sends) return 0;
  std::array<Frame, kSendBatch> frames;
  const std::uint32_t count = std::min(there, kSendBatch);
  std::size_t good = 0;
  std::array<std::uint32_t, kSendBatch> index;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t length =
        view_.lengths[(send_consumer_ + i) & (view_.geometry.sends - 1)].load(std::memory_order_relaxed);
    if (length < kEthernetHeader || length > view_.geometry.max_frame) continue;  // skipped with those before it
    index[good] = i;
    frames[good++] = {view_.send_buffer(send_consumer_ + i), length};
  }
  const std::size_t taken = good == 0 ? 0 : mac.transmit({frames.data(), good});
  for (std::size_t i = 0; i < taken; ++i) bytes += frames[i].length;
  waiting |= taken < good;
  send_consumer_ += taken < good ? index[taken] : count;
  view_.memory->send_consumer.store(send_consumer_, std::memory_order_release);  // R4
  fence::full();  // between this and the look: the user asks for a ring and then looks for room
  if (view_.memory->wants_room.load(std::memory_order_relaxed) != 0) {
    view_.memory->wants_room.store(0, std::memory_order_relaxed);
    ring();
  }
  return taken;
}

bool Port::arm() {
  if (is_socket_) {
    if ((view_.memory->adapter_word.load(std::memory_order_relaxed) & 1) == 0) {  // it was rung, or never armed
      std::array<char, 64> bytes;
      (void)::recv(bell_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    }
    (void)WakeProtocol<FullFences>::arm(view_.memory->adapter_word);
  }
  return view_.memory->send_producer.load(std::memory_order_acquire) == send_consumer_;
}

void Port::publish(const MacCounters& counters, Link link, std::uint32_t max_frame) {
  view_.memory->mac_sent.store(counters.sent, std::memory_order_relaxed);
  view_.memory->mac_received.store(counters.received, std::memory_order_relaxed);
  view_.memory->mac_transmit_drops.store(counters.transmit_drops, std::memory_order_relaxed);
  view_.memory->mac_receive_drops.store(counters.receive_drops, std::memory_order_relaxed);
  view_.memory->link.store(static_cast<std::uint32_t>(link), std::memory_order_relaxed);
  view_.memory->max_frame.store(max_frame, std::memory_order_relaxed);
}

}  // namespace viaduct::nic
