#include "via/vipl/receives.hpp"

#include <algorithm>
#include <cstring>

#include "base/copy_loop.hpp"
#include "base/counters.hpp"
#include "via/vipl/message.hpp"

namespace viaduct::vipl {

namespace {

void count_dropped() {
  static Counter dropped = counter("via.dropped");
  dropped.add();
}

}  // namespace

void Receives::connected() {
  shown_ = used_ = 0;
  lent_ = false;
  queues_.receive.start_again();
}

bool Receives::find(std::size_t length, Effects& effects) {
  if (!queues_.receive.has_open()) [[unlikely]] {
    if (!link_.reliable())
      count_dropped();
    else
      link_.fail(VIP_ERROR_RECVQ_EMPTY, Link::Tell::our_descriptor);
    return false;
  }
  WorkItem& item = next();
  if (!queues_.still_allowed(item, true)) [[unlikely]]
    return next_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), false;
  if (length > item.length) [[unlikely]]
    return next_cannot_take(VIP_STATUS_LENGTH_ERROR, effects), false;
  if (length > item.usable) [[unlikely]]
    return next_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), false;
  return true;
}

void Receives::next_cannot_take(std::uint32_t status, Effects& effects) {
  WorkItem& item = next();
  if (queues_.descriptor_is_there(item)) item.descriptor->CS.Length = 0;
  item.finish(status | VIP_STATUS_OP_RECEIVE);
  queues_.complete(true, effects);
  if (!link_.reliable())
    count_dropped();
  else
    link_.fail(VIP_ERROR_CONN_LOST, Link::Tell::our_descriptor, item.descriptor, VIP_STATUS_OP_RECEIVE);
}

void Receives::finish_next(std::uint32_t operation, std::uint32_t word, std::uint32_t data, std::uint32_t length,
                           Effects& effects) {
  WorkItem& item = next();
  VIP_CONTROL_SEGMENT& control = item.descriptor->CS;
  control.Length = length;
  if ((word & kWithImmediate) != 0) {
    control.ImmediateData = data;
    operation |= VIP_STATUS_IMMEDIATE;
  }
  item.finish(operation);
  ++used_;
  if (shown_ < used_) shown_ = used_;
  queues_.complete(true, effects);
  if (queues_.receive.has_waiting()) [[unlikely]]
    show();
}

// A message that fits a cache line and the first segment, which most do.
void Receives::place_small(const WorkItem& item, std::span<const std::byte> bytes) {
  const VIP_DATA_SEGMENT* const segment = item.data();
  if (bytes.empty()) return;
  if (item.segments == 0 || bytes.size() > 64 || bytes.size() > segment->Length) return place(item, 0, bytes);
  std::memcpy(segment->Data.Address, bytes.data(), bytes.size());
}

void Receives::place(const WorkItem& item, std::size_t offset, std::span<const std::byte> bytes) {
  const VIP_DATA_SEGMENT* segment = item.data();
  for (std::uint16_t i = 0; i < item.segments && !bytes.empty(); ++i, ++segment) {
    if (offset >= segment->Length) {
      offset -= segment->Length;
      continue;
    }
    const std::size_t part = std::min<std::size_t>(segment->Length - offset, bytes.size());
    copy_through_ring(static_cast<std::byte*>(segment->Data.Address) + offset, bytes.data(), part);
    bytes = bytes.subspan(part);
    offset = 0;
  }
}

// ---- showing them to the peer

void Receives::show() {
  if (link_.shared == nullptr) return;
  for (; queues_.receive.has_waiting() && shown_ - used_ < kPostedPerConnection; queues_.receive.started()) {
    const WorkItem& item = queues_.receive.first_waiting();
    if (!item.finished) show_one(item, shown_++);  // one with a fault of its own takes no message
  }
}

void Receives::show_one(const WorkItem& item, std::uint64_t number) {
  const VIP_DATA_SEGMENT* const segment = item.data();
  const TableView& table = link_.registrations.view();
  const bool can_be_reached = link_.reliable() && item.segments == 1 && item.usable >= kLeastDirect;
  if (!has_place_) [[likely]] {
    if (!can_be_reached || !link_.registrations.reserve_posted(link_.slot)) return;
    has_place_ = true;
    link_.words().shows_posted.store(1, std::memory_order_release);
  }
  PostedReceive& posted = table.posted(link_.slot, number);
  if (!can_be_reached) return posted.stamp.store(0, std::memory_order_relaxed);
  posted.address.store(segment->Data.AddressBits, std::memory_order_relaxed);
  posted.key.store(segment->Handle, std::memory_order_relaxed);
  posted.length.store(item.usable, std::memory_order_relaxed);
  const std::uint32_t connection = link_.words().connection.load(std::memory_order_relaxed);
  posted.stamp.store(posted_stamp(connection, number), std::memory_order_release);  // R2, pairs with A2
  lent_ = true;
}

}  // namespace viaduct::vipl
