// Objects that are used again but whose memory never goes away: a thread that still holds a pointer to one that was let
// go finds another of the same kind, never unmapped memory. No malloc: it may run inside any program, at any moment.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "base/clock.hpp"
#include "sockets/brief_lock.hpp"
#include "sockets/retired.hpp"

namespace viaduct::sockets {

template <class T>
class Slab {
 public:
  T* make() {
    const BriefLock::Hold hold(lock_);
    if (T* used = free_) {
      free_ = used->next_free;
      return used;
    }
    if constexpr (requires(T one) { one.rests_since; })
      if (T* used = resting_;
          used != nullptr && !AtMemory::is_so() && Clock::steady().now_ns() - used->rests_since >= kGraceNs) {
        resting_ = used->next_free;
        return used;
      }
    if (next_ == end_ && !grow()) return nullptr;
    return new (next_++) T;
  }

  void let_go(T* object) {
    const BriefLock::Hold hold(lock_);
    object->next_free = free_;
    free_ = object;
  }

  // The same, but not used again for as long as another thread may be in the middle of something with it. For a kind
  // that has `rests_since`.
  void let_rest(T* object) {
    const BriefLock::Hold hold(lock_);
    object->next_free = nullptr;
    object->rests_since = Clock::steady().now_ns();
    (resting_ != nullptr ? last_resting_->next_free : resting_) = object;
    last_resting_ = object;
  }

  BriefLock& lock() { return lock_; }

 private:
  static constexpr std::size_t kAtOnce = 64;
  bool grow() {
    void* memory = ::mmap(nullptr, kAtOnce * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    next_ = static_cast<T*>(memory);
    end_ = next_ + kAtOnce;
    return true;
  }

  BriefLock lock_;
  T* free_ = nullptr;
  T* resting_ = nullptr;  // the one that has rested longest
  T* last_resting_ = nullptr;
  T* next_ = nullptr;
  T* end_ = nullptr;
};

}  // namespace viaduct::sockets
