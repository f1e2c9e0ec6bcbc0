#include "via/vipl/outgoing.hpp"

#include <algorithm>

namespace viaduct::vipl {

Pushed Outgoing::push_message(std::uint32_t word, std::span<const std::byte> header, const Body& body) {
  const std::size_t most = link_.channel->largest_fragment();
  iovec pieces[kMostSegments + 1];
  for (;;) {
    const std::size_t head = begun_ ? 0 : header.size();
    const std::size_t left = body.length - sent_;
    const std::size_t part = std::min(left, most - head);
    std::size_t used = 0;
    if (head != 0) pieces[used++] = {const_cast<std::byte*>(header.data()), head};
    used += gather(body.segments, body.count, sent_, part, pieces + used);
    const bool more = part < left;
    switch (link_.channel->try_send({pieces, used}, word, more)) {
      case via::Sent::taken:
        break;
      case via::Sent::full:
        return Pushed::full;
      case via::Sent::closed:
        return Pushed::lost;
    }
    begun_ = more;
    sent_ = more ? sent_ + part : 0;
    if (!more) return Pushed::all;
  }
}

Pushed Outgoing::push_send(const WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const std::uint32_t data = item.descriptor->CS.ImmediateData;
  const std::uint32_t flag = immediate ? kWithImmediate : 0;
  const Body body{item.data(), item.segments, item.length};
  const std::size_t head = immediate ? sizeof data : 0;
  if (head + item.length <= link_.channel->largest_fragment())
    return push_message(kSend | flag, bytes_of(data).first(head), body);
  const LongHeader header{item.length, data};
  return push_message(kLongSend | flag, bytes_of(header), body);
}

bool Outgoing::push_plain_send(const WorkItem& item) {
  std::uint32_t data = 0;
  std::uint32_t word = kSend;
  iovec pieces[kPlainSegments + 1];
  std::size_t used = 0;
  if ((item.control & VIP_CONTROL_IMMEDIATE) != 0) {
    data = item.descriptor->CS.ImmediateData;
    word |= kWithImmediate;
    pieces[used++] = {&data, sizeof data};
  }
  const VIP_DATA_SEGMENT* segment = item.data();
  for (std::uint16_t i = 0; i < item.segments; ++i, ++segment)
    pieces[used++] = {segment->Data.Address, segment->Length};
  return link_.channel->try_send({pieces, used}, word) == via::Sent::taken;
}

}  // namespace viaduct::vipl
