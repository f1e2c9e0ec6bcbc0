// Work queues as programs use them: posting descriptors, and taking them back by asking, waiting or being told.
#include <algorithm>
#include <utility>

#include "via/vipl/cq.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

namespace {

std::uint32_t operation_status(const WorkItem& item, bool receive) {
  return receive ? VIP_STATUS_OP_RECEIVE : item.send_operation();
}

std::size_t descriptor_bytes(const VIP_DESCRIPTOR& descriptor) {
  const std::size_t segments = std::min<std::size_t>(descriptor.CS.SegCount, kMostSegments);
  return std::max(sizeof(VIP_DESCRIPTOR), sizeof(VIP_CONTROL_SEGMENT) + segments * sizeof(VIP_DATA_SEGMENT));
}

}  // namespace

// ---- posting

// Everything that can be wrong with a descriptor by itself, as status bits; 0: nothing.
std::uint32_t Vi::check(WorkItem& item, bool receive) const {
  const VIP_CONTROL_SEGMENT& control = item.descriptor->CS;
  std::uint16_t segments = control.SegCount;
  item.control = control.Control;
  item.version = registrations_.version();
  if (segments > kMostSegments || item.operation() == VIP_CONTROL_OP_RESERVED) return VIP_STATUS_FORMAT_ERROR;
  if (receive) {
    if (item.is_rdma()) return VIP_STATUS_FORMAT_ERROR;
  } else {
    if ((item.control & VIP_CONTROL_RESERVED) != 0) return VIP_STATUS_FORMAT_ERROR;
    if (item.is_rdma() && segments-- == 0) return VIP_STATUS_FORMAT_ERROR;
    const bool read = item.operation() == VIP_CONTROL_OP_RDMAREAD;
    if (read && (!reliable() || (item.control & VIP_CONTROL_IMMEDIATE) != 0)) return VIP_STATUS_FORMAT_ERROR;
  }
  item.segments = segments;
  const TableView& table = registrations_.view();
  std::uint64_t length = 0, usable = UINT64_MAX;
  for (std::uint16_t i = 0; i < segments; ++i) {
    const VIP_DATA_SEGMENT& segment = item.data()[i];
    if (segment.Length != 0 && !table.allows(segment.Handle, segment.Data.AddressBits, segment.Length, tag_)) {
      // Programs post receives longer than their memory, for messages that are not: an error only once one is.
      Registration memory;
      const std::uint64_t address = segment.Data.AddressBits;
      if (!receive || !table.find(segment.Handle, memory) || !tags_agree(tag_, memory.tag) ||
          !memory.covers(address, 1))
        return VIP_STATUS_PROTECTION_ERROR;
      usable = std::min(usable, length + memory.base + memory.length - address);
    }
    length += segment.Length;
  }
  if (length > UINT32_MAX) return VIP_STATUS_LENGTH_ERROR;
  item.length = static_cast<std::uint32_t>(length);
  item.usable = static_cast<std::uint32_t>(std::min(length, usable));
  if (!receive && (length > attributes_.MaxTransferSize || length != control.Length)) return VIP_STATUS_LENGTH_ERROR;
  return 0;
}

bool Vi::descriptor_is_there(const WorkItem& item) const {
  return registrations_.view().allows(item.memory, reinterpret_cast<std::uint64_t>(item.descriptor),
                                      sizeof(VIP_DESCRIPTOR), tag_);
}

// Memory has been deregistered, or changed its attributes, since the descriptor was looked at: its own, or its data's.
bool Vi::still_allowed_now(WorkItem& item, bool receive) const {
  WorkItem again = item;
  if (!descriptor_is_there(item) || check(again, receive) != 0) return false;
  if (again.length != item.length || again.usable != item.usable || again.segments != item.segments ||
      again.control != item.control)
    return false;
  item.version = again.version;
  return true;
}

VIP_RETURN Vi::post(bool receive, VIP_DESCRIPTOR* descriptor, VIP_MEM_HANDLE memory, Effects& effects) {
  const auto address = reinterpret_cast<std::uint64_t>(descriptor);
  const TableView& table = registrations_.view();
  if (address % VIP_DESCRIPTOR_ALIGNMENT != 0 || !table.allows(memory, address, sizeof(VIP_DESCRIPTOR), tag_) ||
      (descriptor->CS.SegCount > 2 && !table.allows(memory, address, descriptor_bytes(*descriptor), tag_)))
      [[unlikely]] {
    report(VIP_ERROR_POST_DESC, effects, descriptor, receive ? VIP_STATUS_OP_RECEIVE : VIP_STATUS_OP_SEND);
    return VIP_DESCRIPTOR_ERROR;
  }
  WorkQueue& queue = receive ? receive_ : send_;
  if (queue.full()) [[unlikely]] {
    report(VIP_ERROR_VI_OVERRUN, effects, descriptor, receive ? VIP_STATUS_OP_RECEIVE : VIP_STATUS_OP_SEND);
    return VIP_ERROR_RESOURCE;
  }
  WorkItem item;
  item.descriptor = descriptor;
  item.memory = memory;
  const std::uint32_t fault = check(item, receive);
  std::atomic_ref(descriptor->CS.Status).store(0, std::memory_order_relaxed);
  WorkItem& posted = queue.push(item);
  if (fault != 0) [[unlikely]]
    finish(posted, fault | operation_status(posted, receive));
  const bool useless = state_ == VIP_STATE_ERROR || (!receive && state_ != VIP_STATE_CONNECTED);
  if (useless) [[unlikely]]
    flush(receive, effects);
  else if (receive) {
    complete(true, effects);
    if (state_ == VIP_STATE_CONNECTED) show_receives();
  } else
    (void)run_sends(effects);
  return VIP_SUCCESS;
}

// ---- completing

void Vi::finish(WorkItem& item, std::uint32_t status) {
  item.status = status | VIP_STATUS_DONE;
  item.finished = true;
}

// Hands over what has finished, in the order of posting.
void Vi::complete(bool receive, Effects& effects) {
  WorkQueue& queue = receive ? receive_ : send_;
  bool any = false;
  for (; queue.has_open() && queue.first_open().finished; queue.completed()) {
    WorkItem& item = queue.first_open();
    if (item.version == registrations_.version() || descriptor_is_there(item)) [[likely]] {
      std::atomic_ref(item.descriptor->CS.Status).store(item.status, std::memory_order_release);
    } else {
      item.status |= VIP_STATUS_PROTECTION_ERROR;
      report(VIP_ERROR_COMP_PROT, effects, item.descriptor, item.status & VIP_STATUS_OP_MASK);
    }
    if (queue.cq != nullptr) queue.cq->push({handle, receive});
    any = true;
  }
  if (!any) return;
  adapter_->light_fence();  // the completion, then who waits: pairs with the heavy fence of arming in Progress::wait
  if (queue.waiters.load(std::memory_order_relaxed) != 0 ||
      (queue.cq != nullptr && queue.cq->waiters.load(std::memory_order_relaxed) != 0))
    effects.wake = true;
}

void Vi::flush(bool receive, Effects& effects) {
  WorkQueue& queue = receive ? receive_ : send_;
  // A receive that has got a part of its message says so.
  const bool begun = (in_.has_receive && in_.have != 0) || taking_.waiting;
  std::uint32_t partial = receive && begun ? VIP_STATUS_PARTIAL_ERROR : 0;
  if (receive)
    in_.has_receive = taking_.waiting = taking_.stalled = false;
  else
    offers_.unfinished = 0;
  queue.for_each_open([&](WorkItem& item) {
    if (!item.finished)
      finish(item, VIP_STATUS_DESC_FLUSHED_ERROR | operation_status(item, receive) | std::exchange(partial, 0));
  });
  complete(receive, effects);
}

// Whoever is woken may destroy this VI as soon as the lock is free: nothing of it is touched afterwards, unless there
// are errors to report.
void Vi::unlock_and_deliver(Effects& effects) {
  if (effects.wake) [[unlikely]]
    adapter_->leadership().tell_waiters();
  effects.wake = false;
  const std::shared_ptr<Adapter> adapter = effects.errors.empty() ? nullptr : adapter_;
  lock.unlock();
  if (adapter) [[unlikely]]
    adapter->deliver(effects);
}

// ---- taking back

// Receives until this queue has something, unless somebody else leads: then that one does it.
bool Vi::may_receive_and(Effects& effects, bool receive_queue) {
  if (state_ != VIP_STATE_CONNECTED) return false;
  const bool lead = attended;
  if (lead && !adapter_->leadership().try_lead()) return false;
  (void)receive_some(receive_queue ? Enough::one_receive : Enough::one_send, effects);
  if (lead) adapter_->stop_leading(effects);
  return true;
}

VIP_RETURN Vi::take_completed(bool receive, VIP_DESCRIPTOR** descriptor, Effects& effects) {
  WorkQueue& queue = receive ? receive_ : send_;
  if (blocked) [[unlikely]]
    (void)run_sends(effects);
  // A program that only sends must still hear what its peer has to say, if not at every call.
  constexpr std::uint32_t kLookEvery = 8;
  if (!queue.has_completed() || (!receive && ++send_looks_ % kLookEvery == 0)) (void)may_receive_and(effects, receive);
  if (queue.has_completed()) {
    const std::uint32_t status = queue.first_completed().status;
    *descriptor = queue.pop();
    return (status & VIP_STATUS_ERROR_MASK) == 0 ? VIP_SUCCESS : VIP_DESCRIPTOR_ERROR;
  }
  *descriptor = nullptr;
  return queue.empty() ? VIP_DESCRIPTOR_ERROR : VIP_NOT_DONE;
}

}  // namespace viaduct::vipl
