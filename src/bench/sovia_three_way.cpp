// Three-way handshaking: REQ, ACK, DATA. The receiver posts its own buffer for the data before it answers.
//
// Receives are used up in the order of posting, so the buffer must be the first when the data comes. Therefore exactly
// one receive for a control packet is posted at all times; REQ takes it, and only behind the buffer is it posted again.
// Nothing else can come in between: the other end is inside send(), and we are inside recv().
#include <algorithm>

#include "bench/sovia_end.hpp"

namespace viaduct::bench {

void SoviaEnd::send_three_way(std::span<const std::byte> data, Lock& lock) {
  while (!data.empty()) {
    send_control(Kind::request, static_cast<std::uint32_t>(std::min(data.size(), kSoviaChunk)));
    await(lock, [this] { return granted_.has_value() || asked_ != 0; });
    if (!granted_) give_up("SOVIA: both ends send, and by three-way handshaking neither will receive");
    const std::size_t room = *granted_;
    granted_.reset();
    if (room == 0) return;  // it has closed
    if (room > data.size()) give_up("SOVIA: more was granted than had been asked for");
    send_message(data.first(room), lock);
    data = data.subspan(room);
  }
}

std::size_t SoviaEnd::recv_three_way(std::span<std::byte> into, Lock& lock) {
  await(lock, [this] { return asked_ != 0 || fin_here_; });
  if (asked_ == 0) return 0;
  const std::span<std::byte> place = into.first(std::min<std::size_t>(into.size(), asked_));
  asked_ = 0;
  const auto room = static_cast<std::uint32_t>(place.size());
  const VIP_MEM_HANDLE handle = registrations_.begin(place);
  VIP_DESCRIPTOR* const descriptor = memory_->descriptor(1);
  descriptor->CS.SegCount = 1;
  descriptor->CS.Length = room;
  descriptor->DS[0].Local = {{.Address = place.data()}, handle, room};
  post_receive(descriptor);
  post_receive(memory_->descriptor(0));
  send_control(Kind::ack, room);
  await(lock, [this] { return landed_.has_value(); });
  registrations_.end(place, handle);
  const std::uint32_t landed = *landed_;
  landed_.reset();
  return landed;
}

void SoviaEnd::handle_three_way(VIP_DESCRIPTOR* descriptor, const SoviaPacket& packet) {
  switch (packet.kind) {
    case Kind::request:
      if (closing_) {
        post_receive(descriptor);
        return send_control(Kind::ack, 0);
      }
      asked_ = packet.amount;
      return;
    case Kind::ack:
      granted_ = packet.amount;
      return post_receive(descriptor);
    case Kind::data:
      landed_ = descriptor->CS.Length;
      return;
    default:
      return take_end(packet.kind, descriptor);
  }
}

}  // namespace viaduct::bench
