// Completion queues.
#include "via/calls/calls.hpp"

using namespace viaduct::vipl;

namespace {

bool look_at(Cq& cq, Cq::Entry& entry, bool of_a_wait = false) {
  if (cq.pop(entry)) return true;
  Effects effects{.of_a_wait = of_a_wait};
  (void)nic_of(cq).progress().poll(effects);
  cq.adapter().deliver(effects);
  return cq.pop(entry);
}

void tell(const Cq::Entry& entry, VIP_VI_HANDLE* vi, VIP_BOOLEAN* receive) {
  *vi = entry.vi;
  *receive = entry.receive ? VIP_TRUE : VIP_FALSE;
}

}  // namespace

VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle, VIP_ULONG EntryCount, VIP_CQ_HANDLE* CQHandle) {
  const std::shared_ptr<Nic> nic = nics().hold(NicHandle);
  if (nic == nullptr || CQHandle == nullptr || EntryCount == 0) return VIP_INVALID_PARAMETER;
  if (EntryCount > kMostCqEntries || nic->cq_count.load() >= static_cast<int>(kMostCqs)) return VIP_ERROR_RESOURCE;
  *CQHandle = cqs().add(std::make_shared<Cq>(nic, EntryCount));
  if (*CQHandle == nullptr) return VIP_ERROR_RESOURCE;
  nic->cq_count.fetch_add(1);
  return VIP_SUCCESS;
}

VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle) {
  const std::shared_ptr<Cq> cq = cqs().hold(CQHandle);
  if (cq == nullptr) return VIP_INVALID_PARAMETER;
  if (cq->users.load() != 0) return VIP_ERROR_RESOURCE;
  nic_of(*cq).notifier().cancel(*cq);
  if (cqs().remove(CQHandle) == nullptr) return VIP_INVALID_PARAMETER;
  nic_of(*cq).cq_count.fetch_sub(1);
  return VIP_SUCCESS;
}

VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount) {
  Cq* const cq = cqs().find(CQHandle);
  if (cq == nullptr || EntryCount == 0) return VIP_INVALID_PARAMETER;
  if (EntryCount > kMostCqEntries) return VIP_ERROR_RESOURCE;
  return cq->resize(EntryCount) ? VIP_SUCCESS : VIP_ERROR_RESOURCE;
}

VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle, VIP_VI_HANDLE* ViHandle, VIP_BOOLEAN* RecvQueue) {
  Cq* const cq = cqs().find(CQHandle);
  if (cq == nullptr || ViHandle == nullptr || RecvQueue == nullptr) return VIP_INVALID_PARAMETER;
  Cq::Entry entry;
  if (!look_at(*cq, entry)) return VIP_NOT_DONE;
  tell(entry, ViHandle, RecvQueue);
  return VIP_SUCCESS;
}

VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle, VIP_ULONG Timeout, VIP_VI_HANDLE* ViHandle, VIP_BOOLEAN* RecvQueue) {
  const std::shared_ptr<Cq> cq = cqs().hold(CQHandle);
  if (cq == nullptr || ViHandle == nullptr || RecvQueue == nullptr) return VIP_INVALID_PARAMETER;
  Cq::Entry entry;
  cq->waiters.fetch_add(1, std::memory_order_seq_cst);
  const bool found = nic_of(*cq).progress().wait(deadline_after(Timeout), [&] { return look_at(*cq, entry, true); });
  cq->waiters.fetch_sub(1, std::memory_order_seq_cst);
  if (!found) return VIP_TIMEOUT;
  tell(entry, ViHandle, RecvQueue);
  return VIP_SUCCESS;
}

VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle, VIP_PVOID Context, CqHandler Handler) {
  const std::shared_ptr<Cq> cq = cqs().hold(CQHandle);
  if (cq == nullptr || Handler == nullptr) return VIP_INVALID_PARAMETER;
  return nic_of(*cq).notifier().add(cq, {Context, Handler}) ? VIP_SUCCESS : VIP_ERROR_RESOURCE;
}
