// A hash table of things that stand in line: those of one hash in the order in which they came. The things belong to
// others and have a hook for each table they can be in. Grows, and does not shrink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace viaduct::mx {

template <class Entry>
struct KeyHook {
  Entry* before = nullptr;
  Entry* after = nullptr;
  std::uint64_t hash = 0;
};

// Entry has an array `hooks`; `which` of them is this table's.
template <class Entry>
class KeyTable {
 public:
  explicit KeyTable(std::size_t which = 0) : which_(which) {}

  std::size_t size() const { return size_; }

  void add(Entry& entry, std::uint64_t hash) {
    if (size_ >= buckets_.size()) grow();
    entry.hooks[which_].hash = hash;
    append(entry);
    ++size_;
  }

  void remove(Entry& entry) {
    KeyHook<Entry>& hook = entry.hooks[which_];
    Bucket& bucket = bucket_of(hook.hash);
    (hook.before != nullptr ? hook.before->hooks[which_].after : bucket.first) = hook.after;
    (hook.after != nullptr ? hook.after->hooks[which_].before : bucket.last) = hook.before;
    hook = {};
    --size_;
  }

  // The oldest of that hash for which fits() is true.
  template <class Fits>
  Entry* first(std::uint64_t hash, Fits fits) const {
    if (size_ == 0) return nullptr;
    for (Entry* entry = buckets_[hash & (buckets_.size() - 1)].first; entry != nullptr;
         entry = entry->hooks[which_].after)
      if (entry->hooks[which_].hash == hash && fits(*entry)) return entry;
    return nullptr;
  }

  void clear() {
    buckets_.clear();
    size_ = 0;
  }

 private:
  struct Bucket {
    Entry* first = nullptr;
    Entry* last = nullptr;
  };
  Bucket& bucket_of(std::uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  void append(Entry& entry) {
    KeyHook<Entry>& hook = entry.hooks[which_];
    Bucket& bucket = bucket_of(hook.hash);
    hook.before = bucket.last;
    hook.after = nullptr;
    (bucket.last != nullptr ? bucket.last->hooks[which_].after : bucket.first) = &entry;
    bucket.last = &entry;
  }

  // Those of one hash come from one bucket: they keep their order.
  void grow() {
    std::vector<Bucket> old(buckets_.empty() ? 64 : buckets_.size() * 2);
    old.swap(buckets_);
    for (const Bucket& bucket : old)
      for (Entry* entry = bucket.first; entry != nullptr;) {
        Entry* const next = entry->hooks[which_].after;
        append(*entry);
        entry = next;
      }
  }

  std::size_t which_;
  std::vector<Bucket> buckets_;
  std::size_t size_ = 0;
};

}  // namespace viaduct::mx
