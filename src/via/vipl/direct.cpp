#include "via/vipl/direct.hpp"

#include "base/counters.hpp"

namespace viaduct::vipl {

bool Direct::take(const via::Fragment& fragment, Effects& effects) {
  DirectHeader header;
  if (link_.shared == nullptr || !link_.reliable() || !read_whole(fragment, header)) return false;
  if (header.number != static_cast<std::uint32_t>(receives_.used()) || header.length > kMostTransfer) return false;
  if (!receives_.find(header.length, effects)) return true;
  receives_.finish_next(VIP_STATUS_OP_RECEIVE, fragment.immediate, header.immediate, header.length, effects);
  account_.placed_here();
  return true;
}

Direct::Moved Direct::put_there(const WorkItem& item, std::uint64_t number, std::uint32_t offset,
                                std::uint32_t length) {
  iovec pieces[kMostSegments];
  const std::size_t count = gather(item.data(), item.segments, offset, length, pieces);
  return link_.shared->put_into_posted(number, item.length, offset, {pieces, count}, length);
}

Pushed Direct::push(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const DirectHeader header{static_cast<std::uint32_t>(account_.next_receive()), item.length,
                            item.descriptor->CS.ImmediateData, 0};
  const Pushed pushed = outgoing_.push_control(kDirect | (immediate ? kWithImmediate : 0), bytes_of(header));
  if (pushed != Pushed::all) return pushed;
  static Counter count = counter("via.sends_direct");
  count.add();
  account_.placed_there();
  item.finish(VIP_STATUS_OP_SEND);
  return pushed;
}

}  // namespace viaduct::vipl
