#include "via/vipl/cq.hpp"

#include <algorithm>
#include <bit>

#include "base/counters.hpp"

namespace viaduct::vipl {

namespace {

std::size_t ring_size(std::size_t entries) {
  return std::bit_ceil(std::max<std::size_t>(entries, 2));
}

}  // namespace

Cq::Cq(std::shared_ptr<Adapter> adapter, std::size_t entries)
    : adapter_(std::move(adapter)), entries_(ring_size(entries)), promised_(entries) {}

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

}  // namespace viaduct::vipl
