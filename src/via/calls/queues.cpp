// Posting descriptors, and taking them back by asking, waiting or being told.
#include "via/calls/calls.hpp"

using namespace viaduct;
using namespace viaduct::vipl;

namespace {

VIP_RETURN post(VIP_VI_HANDLE handle, bool receive, VIP_DESCRIPTOR* descriptor, VIP_MEM_HANDLE memory) {
  Vi* const vi = vis().find(handle);
  if (vi == nullptr || descriptor == nullptr) return VIP_INVALID_PARAMETER;
  Effects effects;
  vi->lock.lock();
  const VIP_RETURN result = vi->post(receive, descriptor, memory, effects);
  vi->unlock_and_deliver(effects);
  return result;
}

VIP_RETURN done(Vi& vi, bool receive, VIP_DESCRIPTOR** descriptor, bool of_a_wait = false) {
  Effects effects{.of_a_wait = of_a_wait};
  vi.lock.lock();
  const VIP_RETURN result = vi.take_completed(receive, descriptor, effects);
  vi.unlock_and_deliver(effects);
  return result;
}

VIP_RETURN done(VIP_VI_HANDLE handle, bool receive, VIP_DESCRIPTOR** descriptor) {
  Vi* const vi = vis().find(handle);
  if (vi == nullptr || descriptor == nullptr) return VIP_INVALID_PARAMETER;
  return done(*vi, receive, descriptor);
}

VIP_RETURN wait(VIP_VI_HANDLE handle, bool receive, VIP_ULONG timeout, VIP_DESCRIPTOR** descriptor) {
  const std::shared_ptr<Vi> vi = vis().hold(handle);
  if (vi == nullptr || descriptor == nullptr) return VIP_INVALID_PARAMETER;
  VIP_RETURN result = done(*vi, receive, descriptor);
  if (result != VIP_NOT_DONE) return result;
  if (timeout == 0) return VIP_TIMEOUT;
  const Deadline deadline = deadline_after(timeout);
  if (!nic_of(*vi).progress().ask_for_attention(*vi)) return VIP_ERROR_RESOURCE;
  WorkQueue& queue = vi->queue(receive);
  queue.waiters.fetch_add(1, std::memory_order_seq_cst);
  const bool found = nic_of(*vi).progress().wait(
      deadline, [&] { return (result = done(*vi, receive, descriptor, true)) != VIP_NOT_DONE; });
  queue.waiters.fetch_sub(1, std::memory_order_seq_cst);
  return found ? result : VIP_TIMEOUT;
}

VIP_RETURN notify(VIP_VI_HANDLE handle, bool receive, VIP_PVOID context, QueueHandler handler) {
  const std::shared_ptr<Vi> vi = vis().hold(handle);
  if (vi == nullptr || handler == nullptr) return VIP_INVALID_PARAMETER;
  if (!nic_of(*vi).progress().ask_for_attention(*vi)) return VIP_ERROR_RESOURCE;
  return nic_of(*vi).notifier().add(vi, receive, {context, handler}) ? VIP_SUCCESS : VIP_ERROR_RESOURCE;
}

}  // namespace

VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR* DescriptorPtr, VIP_MEM_HANDLE MemoryHandle) {
  return post(ViHandle, false, DescriptorPtr, MemoryHandle);
}

VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR* DescriptorPtr, VIP_MEM_HANDLE MemoryHandle) {
  return post(ViHandle, true, DescriptorPtr, MemoryHandle);
}

VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR** DescriptorPtr) {
  return done(ViHandle, false, DescriptorPtr);
}

VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR** DescriptorPtr) {
  return done(ViHandle, true, DescriptorPtr);
}

VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR** DescriptorPtr) {
  return wait(ViHandle, false, Timeout, DescriptorPtr);
}

VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR** DescriptorPtr) {
  return wait(ViHandle, true, Timeout, DescriptorPtr);
}

VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context, QueueHandler Handler) {
  return notify(ViHandle, false, Context, Handler);
}

VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context, QueueHandler Handler) {
  return notify(ViHandle, true, Context, Handler);
}
