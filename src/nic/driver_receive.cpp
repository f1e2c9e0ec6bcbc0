// The driver's receiving half: return rings, and buffers on their way back.
#include <mutex>

#include "nic/driver.hpp"

namespace viaduct::nic {

namespace {

void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {  // one writer
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

}  // namespace

// Who has the buffer from now on; says who had it. With one queue there is one receiving thread, which returns a buffer
// before anybody can give it back.
bool Driver::hand_over(std::uint32_t buffer, bool to_adapter) {
  std::atomic<bool>& with_adapter = with_adapter_[buffer];
  if (options_.queues != 1) return with_adapter.exchange(to_adapter, std::memory_order_relaxed);
  const bool before = with_adapter.load(std::memory_order_relaxed);
  with_adapter.store(to_adapter, std::memory_order_relaxed);
  return before;
}

// False: there is no packet in it.
bool Driver::take_return(unsigned queue, const ReturnDescriptor& entry, Packet& packet) {
  Queue& mine = queues_[queue];
  const std::uint32_t count = kReceiveRing + (options_.mini_buffer == 0 ? 0 : kMiniRing);
  if (entry.buffer >= count || !hand_over(entry.buffer, false)) {
    add(mine.bad, 1);
    return false;
  }
  const Buffer& buffer = buffers_[entry.buffer];
  if ((entry.flags & ReturnDescriptor::kRefused) != 0 || entry.length > buffer.length) {
    add(mine.refused, 1);
    const std::lock_guard locked(posting_);
    give_back_buffer(entry.buffer);
    return false;
  }
  packet = {buffer.data, entry.length, entry.buffer, queue};
  return true;
}

std::size_t Driver::receive(unsigned queue, std::span<Packet> packets) {
  Queue& mine = queues_[queue];
  const std::uint32_t producer = std::atomic_ref(rings_->return_producer[queue].value).load(std::memory_order_acquire);
  std::size_t count = 0;
  while (mine.consumer != producer && count < packets.size()) {
    const ReturnDescriptor* ring = rings_->returned[0] + std::size_t{queue} * kReturnRing;
    if (take_return(queue, ring[mine.consumer++ % kReturnRing], packets[count])) ++count;
  }
  add(mine.received, count);
  return count;
}

void Driver::give_back(const Packet& packet) {
  const std::lock_guard locked(posting_);
  give_back_buffer(packet.buffer);
  if (unposted_ >= kPostEvery) post_locked();
}

void Driver::give_back_buffer(std::uint32_t index) {
  const Buffer& buffer = buffers_[index];
  if (hand_over(index, true)) return;  // given back twice: posted once
  ReceiveDescriptor* const ring = buffer.ring == 0 ? rings_->receive : rings_->mini;
  ring[slot_of(buffer.ring, posted_[buffer.ring]++)] = {buffer.address, buffer.length, index};
  ++unposted_;
}

void Driver::post() {
  const std::lock_guard locked(posting_);
  post_locked();
}

void Driver::post_locked() {
  if (unposted_ == 0) return;
  unposted_ = 0;
  registers_.write_mailbox(Mailbox::receive_producer, posted_[0]);
  registers_.write_mailbox(Mailbox::mini_producer, posted_[1]);
  if (doorbell_) doorbell_();
}

}  // namespace viaduct::nic
