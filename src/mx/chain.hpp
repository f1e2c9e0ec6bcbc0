// A list of things that belong to others, each with a hook for it: in and out in constant time.
#pragma once

#include <cstddef>

namespace viaduct::mx {

template <class Entry>
struct ChainHook {
  Entry* before = nullptr;
  Entry* after = nullptr;
  bool in = false;
};

template <class Entry, ChainHook<Entry> Entry::*kHook>
class Chain {
 public:
  bool empty() const { return first_ == nullptr; }
  std::size_t size() const { return size_; }
  Entry* first() const { return first_; }
  static Entry* next(const Entry& entry) { return (entry.*kHook).after; }
  static bool holds(const Entry& entry) { return (entry.*kHook).in; }

  void append(Entry& entry) {
    entry.*kHook = {last_, nullptr, true};
    (last_ != nullptr ? (last_->*kHook).after : first_) = &entry;
    last_ = &entry;
    ++size_;
  }
  void remove(Entry& entry) {
    ChainHook<Entry>& hook = entry.*kHook;
    if (!hook.in) return;
    (hook.before != nullptr ? (hook.before->*kHook).after : first_) = hook.after;
    (hook.after != nullptr ? (hook.after->*kHook).before : last_) = hook.before;
    hook = {};
    --size_;
  }
  Entry* take_first() {
    Entry* const entry = first_;
    if (entry != nullptr) remove(*entry);
    return entry;
  }

 private:
  Entry* first_ = nullptr;
  Entry* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace viaduct::mx
