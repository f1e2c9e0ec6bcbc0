#include "via/vipl/queues.hpp"

#include <algorithm>
#include <utility>

namespace viaduct::vipl {

namespace {

std::uint32_t operation_status(const WorkItem& item, bool receives) {
  return receives ? VIP_STATUS_OP_RECEIVE : item.send_operation();
}

std::size_t descriptor_bytes(const VIP_DESCRIPTOR& descriptor) {
  const std::size_t segments = std::min<std::size_t>(descriptor.CS.SegCount, kMostSegments);
  return std::max(sizeof(VIP_DESCRIPTOR), sizeof(VIP_CONTROL_SEGMENT) + segments * sizeof(VIP_DATA_SEGMENT));
}

}  // namespace

// Everything that can be wrong with a descriptor by itself, as status bits; 0: nothing.
std::uint32_t Queues::check(WorkItem& item, bool receives) const {
  const VIP_CONTROL_SEGMENT& control = item.descriptor->CS;
  std::uint16_t segments = control.SegCount;
  item.control = control.Control;
  item.version = link_.registrations.version();
  if (segments > kMostSegments || item.operation() == VIP_CONTROL_OP_RESERVED) return VIP_STATUS_FORMAT_ERROR;
  if (receives) {
    if (item.is_rdma()) return VIP_STATUS_FORMAT_ERROR;
  } else {
    if ((item.control & VIP_CONTROL_RESERVED) != 0) return VIP_STATUS_FORMAT_ERROR;
    if (item.is_rdma() && segments-- == 0) return VIP_STATUS_FORMAT_ERROR;
    const bool read = item.operation() == VIP_CONTROL_OP_RDMAREAD;
    if (read && (!link_.reliable() || (item.control & VIP_CONTROL_IMMEDIATE) != 0)) return VIP_STATUS_FORMAT_ERROR;
  }
  item.segments = segments;
  const TableView& table = link_.registrations.view();
  std::uint64_t length = 0, usable = UINT64_MAX;
  for (std::uint16_t i = 0; i < segments; ++i) {
    const VIP_DATA_SEGMENT& segment = item.data()[i];
    if (segment.Length != 0 && !table.allows(segment.Handle, segment.Data.AddressBits, segment.Length, link_.tag)) {
      // Programs post receives longer than their memory, for messages that are not: an error only once one is.
      Registration memory;
      const std::uint64_t address = segment.Data.AddressBits;
      if (!receives || !table.find(segment.Handle, memory) || !tags_agree(link_.tag, memory.tag) ||
          !memory.covers(address, 1))
        return VIP_STATUS_PROTECTION_ERROR;
      usable = std::min(usable, length + memory.base + memory.length - address);
    }
    length += segment.Length;
  }
  if (length > UINT32_MAX) return VIP_STATUS_LENGTH_ERROR;
  item.length = static_cast<std::uint32_t>(length);
  item.usable = static_cast<std::uint32_t>(std::min(length, usable));
  if (!receives && (length > link_.attributes.MaxTransferSize || length != control.Length))
    return VIP_STATUS_LENGTH_ERROR;
  return 0;
}

bool Queues::descriptor_is_there(const WorkItem& item) const {
  return link_.registrations.view().allows(item.memory, reinterpret_cast<std::uint64_t>(item.descriptor),
                                           sizeof(VIP_DESCRIPTOR), link_.tag);
}

// Memory has been deregistered, or changed its attributes, since the descriptor was looked at: its own, or its data's.
bool Queues::still_allowed_now(WorkItem& item, bool receives) const {
  WorkItem again = item;
  if (!descriptor_is_there(item) || check(again, receives) != 0) return false;
  if (again.length != item.length || again.usable != item.usable || again.segments != item.segments ||
      again.control != item.control)
    return false;
  item.version = again.version;
  return true;
}

VIP_RETURN Queues::post(bool receives, VIP_DESCRIPTOR* descriptor, VIP_MEM_HANDLE memory, Effects& effects) {
  const auto address = reinterpret_cast<std::uint64_t>(descriptor);
  const TableView& table = link_.registrations.view();
  if (address % VIP_DESCRIPTOR_ALIGNMENT != 0 || !table.allows(memory, address, sizeof(VIP_DESCRIPTOR), link_.tag) ||
      (descriptor->CS.SegCount > 2 && !table.allows(memory, address, descriptor_bytes(*descriptor), link_.tag)))
      [[unlikely]] {
    report(VIP_ERROR_POST_DESC, effects, descriptor, receives ? VIP_STATUS_OP_RECEIVE : VIP_STATUS_OP_SEND);
    return VIP_DESCRIPTOR_ERROR;
  }
  WorkQueue& queue = of(receives);
  if (queue.full()) [[unlikely]] {
    report(VIP_ERROR_VI_OVERRUN, effects, descriptor, receives ? VIP_STATUS_OP_RECEIVE : VIP_STATUS_OP_SEND);
    return VIP_ERROR_RESOURCE;
  }
  WorkItem item;
  item.descriptor = descriptor;
  item.memory = memory;
  const std::uint32_t fault = check(item, receives);
  std::atomic_ref(descriptor->CS.Status).store(0, std::memory_order_relaxed);
  WorkItem& posted = queue.push(item);
  if (fault != 0) [[unlikely]]
    posted.finish(fault | operation_status(posted, receives));
  return VIP_SUCCESS;
}

void Queues::complete(bool receives, Effects& effects) {
  WorkQueue& queue = of(receives);
  bool any = false;
  for (; queue.has_open() && queue.first_open().finished; queue.completed()) {
    WorkItem& item = queue.first_open();
    if (item.version == link_.registrations.version() || descriptor_is_there(item)) [[likely]] {
      std::atomic_ref(item.descriptor->CS.Status).store(item.status, std::memory_order_release);
    } else {
      item.status |= VIP_STATUS_PROTECTION_ERROR;
      report(VIP_ERROR_COMP_PROT, effects, item.descriptor, item.status & VIP_STATUS_OP_MASK);
    }
    if (queue.cq != nullptr) queue.cq->push({link_.handle, receives});
    any = true;
  }
  if (!any) return;
  link_.adapter
      ->light_fence();  // the completion, then who waits: pairs with the heavy fence of arming in Progress::wait
  if (queue.waiters.load(std::memory_order_relaxed) != 0 ||
      (queue.cq != nullptr && queue.cq->waiters.load(std::memory_order_relaxed) != 0))
    effects.wake = true;
}

VIP_RETURN Queues::take(bool receives, VIP_DESCRIPTOR** descriptor) {
  WorkQueue& queue = of(receives);
  if (queue.has_completed()) {
    const std::uint32_t status = queue.first_completed().status;
    *descriptor = queue.pop();
    return (status & VIP_STATUS_ERROR_MASK) == 0 ? VIP_SUCCESS : VIP_DESCRIPTOR_ERROR;
  }
  *descriptor = nullptr;
  return queue.empty() ? VIP_DESCRIPTOR_ERROR : VIP_NOT_DONE;
}

void Queues::flush(bool receives, std::uint32_t partial, Effects& effects) {
  of(receives).for_each_open([&](WorkItem& item) {
    if (!item.finished)
      item.finish(VIP_STATUS_DESC_FLUSHED_ERROR | operation_status(item, receives) | std::exchange(partial, 0));
  });
  complete(receives, effects);
}

void Queues::report(VIP_ERROR_CODE code, Effects& effects, VIP_DESCRIPTOR* descriptor, std::uint32_t operation) const {
  VIP_ERROR_DESCRIPTOR error{};
  error.NicHandle = link_.adapter->handle;
  error.ViHandle = link_.handle;
  error.DescriptorPtr = descriptor;
  error.OpCode = operation;
  error.ResourceCode = descriptor != nullptr ? VIP_RESOURCE_DESCRIPTOR : VIP_RESOURCE_VI;
  error.ErrorCode = code;
  effects.errors.push_back(error);
}

}  // namespace viaduct::vipl
