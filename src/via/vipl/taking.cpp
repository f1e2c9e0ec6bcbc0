#include "via/vipl/taking.hpp"

#include <utility>

namespace viaduct::vipl {

Taking::Moved Taking::fetch(std::size_t offset, std::size_t length) {
  const WorkItem& item = receives_.next();
  iovec pieces[kMostSegments];
  const std::size_t count = gather(item.data(), item.segments, offset, length, pieces);
  return link_.shared->fetch(message_.there, offset, {pieces, count}, length);
}

// Complete when the bytes are there.
bool Taking::fetch_from_afar(std::uint64_t cookie) {
  const WorkItem& item = receives_.next();
  iovec pieces[kMostSegments];
  const std::size_t count = gather(item.data(), item.segments, 0, message_.there.length, pieces);
  if (link_.reach->get({pieces, count}, message_.there, cookie) != via::Reach::Began::under_way) {
    forget();
    return false;
  }
  return waiting = true;
}

void Taking::failed(Moved why) {
  if (why == Moved::gone) return link_.lost(VIP_ERROR_CONN_LOST);
  link_.fail(VIP_ERROR_CONN_LOST, Link::Tell::reason, receives_.next().descriptor, VIP_STATUS_OP_RECEIVE);
}

void Taking::finish(Effects& effects) {
  const Message done = std::exchange(message_, {});
  forget();
  receives_.finish_next(VIP_STATUS_OP_RECEIVE, done.word, done.immediate, static_cast<std::uint32_t>(done.there.length),
                        effects);
}

}  // namespace viaduct::vipl
