// Creating, destroying and changing VIs.
#include "via/calls/calls.hpp"

using namespace viaduct;
using namespace viaduct::vipl;

namespace {

// VIP_SUCCESS: a VI may have these.
VIP_RETURN check_attributes(const Nic& nic, const VIP_VI_ATTRIBUTES& attributes, std::uint64_t& tag) {
  switch (attributes.ReliabilityLevel) {
    case VIP_SERVICE_UNRELIABLE:
      if (attributes.EnableRdmaRead) return VIP_INVALID_RDMAREAD;
      break;
    case VIP_SERVICE_RELIABLE_DELIVERY:
    case VIP_SERVICE_RELIABLE_RECEPTION:
      break;
    default:
      return VIP_INVALID_RELIABILITY_LEVEL;
  }
  if (attributes.MaxTransferSize == 0 || attributes.MaxTransferSize > kMostTransfer) return VIP_INVALID_MTU;
  return nic.tag_number(attributes.Ptag, tag) ? VIP_SUCCESS : VIP_INVALID_PTAG;
}

// A handle that is not null must be a queue of this adapter.
bool find_cq(const Nic& nic, VIP_CQ_HANDLE handle, std::shared_ptr<Cq>& cq) {
  if (handle == nullptr) return true;
  cq = cqs().hold(handle);
  return cq != nullptr && &cq->adapter() == &nic;
}

}  // namespace

VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES* ViAttributes, VIP_CQ_HANDLE SendCQHandle,
                       VIP_CQ_HANDLE RecvCQHandle, VIP_VI_HANDLE* ViHandle) {
  Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr || ViAttributes == nullptr || ViHandle == nullptr) return VIP_INVALID_PARAMETER;
  std::shared_ptr<Cq> send, receive;
  if (!find_cq(*nic, SendCQHandle, send) || !find_cq(*nic, RecvCQHandle, receive)) return VIP_INVALID_PARAMETER;
  std::uint64_t tag = 0;
  if (const VIP_RETURN checked = check_attributes(*nic, *ViAttributes, tag); checked != VIP_SUCCESS) return checked;
  const std::shared_ptr<Vi> vi = nic->create_vi(*ViAttributes, tag);
  if (vi == nullptr) return VIP_ERROR_RESOURCE;
  vi->queue(false).cq = send.get();
  vi->queue(true).cq = receive.get();
  if (send) send->users.fetch_add(1);
  if (receive) receive->users.fetch_add(1);
  *ViHandle = vi->handle();
  return VIP_SUCCESS;
}

VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  if (vi == nullptr) return VIP_INVALID_PARAMETER;
  {
    const std::lock_guard lock(vi->lock);
    if (vi->state() != VIP_STATE_IDLE) return VIP_INVALID_STATE;
  }
  if (vis().remove(ViHandle) == nullptr) return VIP_INVALID_PARAMETER;
  nic_of(*vi).notifier().cancel(*vi);
  for (const bool receive : {false, true}) {
    Cq* const cq = vi->queue(receive).cq;
    if (cq == nullptr) continue;
    cq->forget(ViHandle);
    cq->users.fetch_sub(1);
  }
  nic_of(*vi).destroy_vi(*vi);
  return VIP_SUCCESS;
}

VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle, VIP_VI_STATE* State, VIP_VI_ATTRIBUTES* ViAttributes,
                      VIP_BOOLEAN* SendQueueEmpty, VIP_BOOLEAN* RecvQueueEmpty) {
  Vi* const vi = vis().find(ViHandle);
  if (vi == nullptr) return VIP_INVALID_PARAMETER;
  Effects effects;
  vi->lock.lock();
  vi->look_for_news(effects);
  if (State != nullptr) *State = vi->state();
  if (ViAttributes != nullptr) *ViAttributes = vi->attributes();
  if (SendQueueEmpty != nullptr) *SendQueueEmpty = vi->queue(false).empty();
  if (RecvQueueEmpty != nullptr) *RecvQueueEmpty = vi->queue(true).empty();
  vi->unlock_and_deliver(effects);
  return VIP_SUCCESS;
}

VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES* ViAttributes) {
  Vi* const vi = vis().find(ViHandle);
  if (vi == nullptr || ViAttributes == nullptr) return VIP_INVALID_PARAMETER;
  std::uint64_t tag = 0;
  if (const VIP_RETURN checked = check_attributes(nic_of(*vi), *ViAttributes, tag); checked != VIP_SUCCESS)
    return checked;
  const std::lock_guard lock(vi->lock);
  if (vi->state() != VIP_STATE_IDLE) return VIP_INVALID_STATE;
  if (vi->tag() != tag) vi->adapter().registrations().changed();  // what is posted was checked under the tag before
  vi->set_attributes(*ViAttributes, tag);
  return VIP_SUCCESS;
}
