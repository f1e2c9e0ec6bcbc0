// Packets that come in, and what becomes of their data.
#include <algorithm>
#include <cstring>

#include "bench/sovia_end.hpp"

namespace viaduct::bench {

void SoviaEnd::post_receive(VIP_DESCRIPTOR* descriptor) {
  must(VipPostRecv(vi_, descriptor, memory_->handle()), "VipPostRecv");
}

void SoviaEnd::handle(VIP_DESCRIPTOR* descriptor) {
  const SoviaPacket packet = SoviaPacket::from(descriptor->CS.ImmediateData);
  if (packet.acks > options_.window - window_) give_up("SOVIA: more was acknowledged than had been sent");
  window_ += packet.acks;
  if (!two_way()) return handle_three_way(descriptor, packet);
  switch (packet.kind) {
    case Kind::data:
      return queue_data(descriptor);
    case Kind::ack:
      return post_receive(descriptor);
    default:
      return take_end(packet.kind, descriptor);
  }
}

// What ends a direction is the same however it was synchronised.
void SoviaEnd::take_end(Kind kind, VIP_DESCRIPTOR* descriptor) {
  if (kind == Kind::fin)
    fin_here_ = true;
  else if (kind == Kind::finack)
    finack_here_ = true;
  else
    give_up("SOVIA: a packet of no kind");
  post_receive(descriptor);
  if (kind == Kind::fin) send_control(Kind::finack);
}

// Before the application has seen the data, its place is taken by a spare receive and the sender is told so.
void SoviaEnd::queue_data(VIP_DESCRIPTOR* descriptor) {
  if (closing_) {
    spares_.push_back(descriptor);
  } else {
    queued_[(first_queued_ + queued_count_) % queued_.size()] = descriptor;
    ++queued_count_;
  }
  if (spares_.empty())
    ++owed_;
  else
    replace_receive();
}

void SoviaEnd::replace_receive() {
  post_receive(spares_.back());
  spares_.pop_back();
  ++delayed_;
  acknowledge();
}

void SoviaEnd::acknowledge() {
  if (delayed_ >= options_.threshold) send_control(Kind::ack);
}

// A buffer that has been read to its end.
void SoviaEnd::release(VIP_DESCRIPTOR* descriptor) {
  spares_.push_back(descriptor);
  if (owed_ == 0) return;
  --owed_;
  replace_receive();
}

std::size_t SoviaEnd::recv(std::span<std::byte> into) {
  Lock lock = guard();
  if (!two_way()) return recv_three_way(into, lock);
  flush(lock);
  await(lock, [this] { return queued_count_ > 0 || fin_here_; });
  return queued_count_ > 0 ? read_queued(into) : 0;
}

std::size_t SoviaEnd::read_queued(std::span<std::byte> into) {
  VIP_DESCRIPTOR* const first = queued_[first_queued_];
  const auto* const data = static_cast<const std::byte*>(first->DS[0].Local.Data.Address);
  const std::size_t size = std::min(into.size(), first->CS.Length - read_of_first_);
  std::memcpy(into.data(), data + read_of_first_, size);
  read_of_first_ += size;
  if (read_of_first_ == first->CS.Length) {
    read_of_first_ = 0;
    first_queued_ = (first_queued_ + 1) % queued_.size();
    --queued_count_;
    release(first);
  }
  return size;
}

}  // namespace viaduct::bench
