#include "via/vipl/cq.hpp"

#include <algorithm>
#include <bit>

#include "base/counters.hpp"
#include "via/vipl/nic.hpp"
#include "via/vipl/notify.hpp"

namespace viaduct::vipl {

namespace {

std::size_t ring_size(std::size_t entries) {
  return std::bit_ceil(std::max<std::size_t>(entries, 2));
}

}  // namespace

Cq::Cq(std::shared_ptr<Nic> nic, std::size_t entries)
    : nic_(std::move(nic)), entries_(ring_size(entries)), promised_(entries) {}

void Cq::push(Entry entry) {
  const std::lock_guard lock(lock_);
  push_locked(entry);
}

void Cq::push_locked(Entry entry) {
  const std::uint64_t count = count_.load(std::memory_order_relaxed);
  if (count == promised_) {
    static Counter overflows = counter("via.cq_overflows");
    overflows.add();
  }
  if (count == entries_.size()) {
    std::vector<Entry> more(entries_.size() * 2);
    for (std::uint64_t i = 0; i < count; ++i)
      more[(head_ + i) & (more.size() - 1)] = entries_[(head_ + i) & (entries_.size() - 1)];
    entries_ = std::move(more);
  }
  entries_[(head_ + count) & (entries_.size() - 1)] = entry;
  count_.store(count + 1, std::memory_order_release);
}

bool Cq::pop(Entry& entry) {
  if (count_.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(lock_);
  const std::uint64_t count = count_.load(std::memory_order_relaxed);
  if (count == 0) return false;
  entry = entries_[head_++ & (entries_.size() - 1)];
  count_.store(count - 1, std::memory_order_release);
  return true;
}

bool Cq::resize(std::size_t entries) {
  const std::lock_guard lock(lock_);
  const std::uint64_t count = count_.load(std::memory_order_relaxed);
  if (count > entries) return false;
  std::vector<Entry> other(ring_size(entries));
  for (std::uint64_t i = 0; i < count; ++i) other[i] = entries_[(head_ + i) & (entries_.size() - 1)];
  entries_ = std::move(other);
  head_ = 0;
  promised_ = entries;
  return true;
}

void Cq::forget(VIP_VI_HANDLE vi) {
  const std::lock_guard lock(lock_);
  const std::uint64_t count = count_.load(std::memory_order_relaxed);
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Entry entry = entries_[(head_ + i) & (entries_.size() - 1)];
    if (entry.vi != vi) entries_[(head_ + kept++) & (entries_.size() - 1)] = entry;
  }
  count_.store(kept, std::memory_order_release);
}

void Cq::add_request(Request request) {
  const std::lock_guard lock(lock_);
  requests_.push_back(request);
  waiters.fetch_add(1, std::memory_order_seq_cst);
}

bool Cq::take_request(Request& request, Entry& entry) {
  {
    const std::lock_guard lock(lock_);
    if (requests_.empty() || count_.load(std::memory_order_relaxed) == 0) return false;
    request = requests_.front();
    requests_.pop_front();
    waiters.fetch_sub(1, std::memory_order_seq_cst);
  }
  // Only this, the notify thread, takes requests; but a program may have taken the entry meanwhile.
  if (pop(entry)) return true;
  const std::lock_guard lock(lock_);
  requests_.push_front(request);
  waiters.fetch_add(1, std::memory_order_seq_cst);
  return false;
}

bool Cq::has_requests() {
  const std::lock_guard lock(lock_);
  return !requests_.empty();
}

namespace {

bool look_at(Cq& cq, Cq::Entry& entry, bool of_a_wait = false) {
  if (cq.pop(entry)) return true;
  Effects effects{.of_a_wait = of_a_wait};
  (void)cq.nic().poll(effects);
  cq.nic().deliver(effects);
  return cq.pop(entry);
}

void tell(const Cq::Entry& entry, VIP_VI_HANDLE* vi, VIP_BOOLEAN* receive) {
  *vi = entry.vi;
  *receive = entry.receive ? VIP_TRUE : VIP_FALSE;
}

}  // namespace

}  // namespace viaduct::vipl

// ---- the interface

using namespace viaduct::vipl;

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
  cq->nic().notifier().cancel(*cq);
  if (cqs().remove(CQHandle) == nullptr) return VIP_INVALID_PARAMETER;
  cq->nic().cq_count.fetch_sub(1);
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
  const bool found = cq->nic().wait(deadline_after(Timeout), [&] { return look_at(*cq, entry, true); });
  cq->waiters.fetch_sub(1, std::memory_order_seq_cst);
  if (!found) return VIP_TIMEOUT;
  tell(entry, ViHandle, RecvQueue);
  return VIP_SUCCESS;
}
