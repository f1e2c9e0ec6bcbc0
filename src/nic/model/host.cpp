#include "nic/model/host.hpp"

namespace viaduct::nic::model {

ModelHost::ModelHost(const Card& card, const Traffic& traffic, bool direct_send_consumer, HostMemory& memory,
                     Registers& registers, Calendar& calendar, ModelHardware& hardware)
    : card_(card),
      traffic_(traffic),
      direct_(direct_send_consumer),
      registers_(registers),
      calendar_(calendar),
      hardware_(hardware),
      ring_memory_(HostRings::bytes(1) + 64),
      buffers_(std::size_t{kBuffers + kSendRing} * kBufferBytes) {
  void* place = ring_memory_.data();
  std::size_t room = ring_memory_.size();
  rings_ = static_cast<HostRings*>(std::align(64, HostRings::bytes(1), place, room));
  rings_at_ = *memory.add(rings_, HostRings::bytes(1));
  buffers_at_ = *memory.add(buffers_.data(), buffers_.size());
}

void ModelHost::start() {
  for (std::uint32_t buffer = 0; buffer < kBuffers; ++buffer) post_buffer(buffer);
  write_receive_mailbox(0);
  calendar_.enter(kSettled, What::host_may_send);
}

void ModelHost::post_buffer(std::uint32_t buffer) {
  rings_->receive[receive_producer_++ % kReceiveRing] = {buffers_at_ + std::uint64_t{buffer} * kBufferBytes,
                                                         kBufferBytes, buffer};
}

void ModelHost::write_receive_mailbox(Time at) {
  if (receive_rung_ == receive_producer_) return;
  receive_rung_ = receive_producer_;
  calendar_.enter(at, What::mailbox_written, static_cast<std::uint32_t>(Mailbox::receive_producer), receive_producer_);
}

void ModelHost::give_back_buffer(Time at) {
  if (read_buffers_.empty()) return;
  post_buffer(read_buffers_.front());
  read_buffers_.pop_front();
  if (receive_producer_ - receive_rung_ >= traffic_.per_mailbox) write_receive_mailbox(at);
}

std::uint32_t ModelHost::send_consumer() const {
  return direct_ ? registers_.send_consumer.load(std::memory_order_relaxed) : rings_->send_consumer.value;
}

void ModelHost::post_packet(Time at) {
  const std::uint32_t length = traffic_.send[posted % traffic_.send.size()];
  const std::uint64_t offset = std::uint64_t{kBuffers + send_producer_ % kSendRing} * kBufferBytes;
  std::memcpy(buffers_.data() + offset, &posted, sizeof posted);
  std::uint32_t left = length;
  HostAddress from = buffers_at_ + offset;
  for (unsigned i = 1; i <= traffic_.fragments; ++i) {
    const bool last = i == traffic_.fragments;
    const std::uint32_t part = last ? left : std::min<std::uint32_t>(kUdpHeaders, left - 1);  // headers, then data
    rings_->send[send_producer_++ % kSendRing] = {from, part, last ? SendDescriptor::kEnd : std::uint16_t{0}, 0};
    from += part;
    left -= part;
  }
  ++posted;
  if (posted % traffic_.per_mailbox != 0) return;
  send_rung_ = send_producer_;
  calendar_.enter(at, What::mailbox_written, static_cast<std::uint32_t>(Mailbox::send_producer), send_producer_);
}

void ModelHost::may_send() {
  offer_frame();
  if (traffic_.send.empty()) return;
  if (traffic_.ping) {
    ping_started_ = calendar_.now();
    return post_packet(calendar_.now() + packet_time());
  }
  const std::uint64_t window = std::max<std::uint64_t>(kWindow, 2 * traffic_.per_mailbox);
  while (posted - transmitted < window) {
    if (send_producer_ - send_consumer() + traffic_.fragments > kSendRing) return;
    if (!traffic_.receive.empty() &&
        static_cast<double>(posted) * traffic_.receives_per_send > static_cast<double>(delivered) + 4.0 * kWindow)
      return;
    busy_until_ = std::max(busy_until_, calendar_.now()) + packet_time();
    post_packet(busy_until_);
  }
}

void ModelHost::packet_left(std::uint64_t tag) {
  if (tag != next_sent_) ++sent_out_of_order;
  next_sent_ = tag + 1;
  ++transmitted;
  if (traffic_.ping) {
    // Through the switch to the other host, and back to the switch: bits on two more wires.
    const Time wires = 2 * wire_time(traffic_.receive[0], card_.link_bits_per_s);
    calendar_.enter(calendar_.now() + wires + seconds_to_time(card_.turnaround_us * 1e-6) +
                        wire_time(traffic_.receive[0], card_.link_bits_per_s),
                    What::frame_arrives);
    return;
  }
  may_send();
}

bool ModelHost::peer_may_send() const {
  if (traffic_.ping || traffic_.receive.empty() || frame_on_wire_) return false;
  if (traffic_.offered_receive_pps > 0) return true;
  if (hardware_.receive.free() <= kSlots - kWindow) return false;  // paused
  return traffic_.send.empty() || static_cast<double>(frames_started_) <
                                      static_cast<double>(transmitted) * traffic_.receives_per_send + 2.0 * kWindow;
}

void ModelHost::offer_frame() {
  if (!peer_may_send()) return;
  frame_on_wire_ = true;
  const std::uint32_t length = traffic_.receive[frames_started_++ % traffic_.receive.size()];
  Time after = wire_time(length, card_.link_bits_per_s);
  if (traffic_.offered_receive_pps > 0) after = std::max(after, seconds_to_time(1 / traffic_.offered_receive_pps));
  calendar_.enter(calendar_.now() + after, What::frame_arrives);
}

void ModelHost::frame_arrives() {
  const std::uint32_t length = traffic_.receive[arrived % traffic_.receive.size()];
  frame_on_wire_ = false;
  if (hardware_.receive.free() == 0)
    ++lost;
  else
    hardware_.receive.put(calendar_.now(), length, arrived);
  ++arrived;
  if (traffic_.ping) return;
  give_back_buffer(calendar_.now());
  offer_frame();
}

void ModelHost::interrupted() {
  const Time start = calendar_.now() + seconds_to_time(card_.interrupt_us * 1e-6);
  busy_until_ = std::max(busy_until_, start);
  for (; return_consumer_ != rings_->return_producer[0].value; ++return_consumer_) {
    const ReturnDescriptor& entry = rings_->returned[0][return_consumer_ % kReturnRing];
    std::uint64_t tag;
    std::memcpy(&tag, buffers_.data() + std::size_t{entry.buffer} * kBufferBytes, sizeof tag);
    if (traffic_.offered_receive_pps > 0 ? tag < next_delivered_ : tag != next_delivered_) ++delivered_out_of_order;
    next_delivered_ = tag + 1;
    ++delivered;
    busy_until_ += packet_time();
    read_buffers_.push_back(entry.buffer);
    if (traffic_.ping) {
      give_back_buffer(busy_until_);
      ping_us_sum += static_cast<double>(busy_until_ - ping_started_) / kMicrosecond;
      ++pings;
      calendar_.enter(busy_until_, What::host_may_send);
    }
  }
  if (!traffic_.ping) may_send();
}

}  // namespace viaduct::nic::model
