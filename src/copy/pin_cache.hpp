// PinCache: keeps pages pinned between operations, because pinning costs as much as copying.
//
// Memory is pinned by an injected Pinner in whole pages, and only pages that hold bytes the caller named. A range
// inside a cached one is a hit. Cached ranges never overlap: a request that overlaps an idle one without lying inside
// it replaces it, one that overlaps a range in use is refused (EBUSY) until that is released. The least recently used
// idle ranges go when the budget is exceeded; ranges in use never do.
//
// A pinned page stays what it was when the program unmaps or replaces it, so a stale entry would copy from and to pages
// nobody sees. What is kept is therefore either watched (memory_watch.hpp) or declared stable by somebody who retracts
// it before the mapping changes. Anything else is pinned for one use.
//
// After fork the child has copies and no pins: there the cache must not be used, and its destructor does nothing.
//
// Thread safety: any thread. The Pinner is called without the mutex, by pin(), by the release of a Pin and by reap().
// Invalidation only marks; the table has a fixed size, because nothing may be allocated under the mutex.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/counters.hpp"
#include "copy/memory_watch.hpp"

namespace viaduct::copy {

class Pinner {
 public:
  virtual ~Pinner() = default;
  virtual int register_range(const AddressRange& range) = 0;  // 0 or an errno value
  virtual void unregister_range(const AddressRange& range) = 0;
};

class PinCache final : private MemoryWatch::Listener {
 public:
  static constexpr std::size_t kMostRanges = 512;
  static constexpr std::size_t kMostStable = 256;

  enum class Keep {
    watched,     // what can be watched, and stable ranges
    stable,      // only stable ranges
    everything,  // blindly, for tests: they show what goes wrong then
  };
  struct Settings {
    std::size_t budget = std::size_t{1} << 30;
    Keep keep = Keep::watched;
    // Called without the mutex when ranges became invalid, so that somebody calls reap() soon. Must not allocate.
    std::function<void()> reap_wanted = [] {};
  };

  // Keeps a range pinned. False where it could not be pinned: error() says why.
  class [[nodiscard]] Pin {
   public:
    Pin(Pin&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), number_(other.number_), error_(other.error_) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(cache_, other.cache_), std::swap(number_, other.number_), std::swap(error_, other.error_);
      return *this;
    }
    ~Pin() {
      if (cache_ != nullptr) cache_->release(number_);
    }
    explicit operator bool() const { return cache_ != nullptr; }
    int error() const { return error_; }

   private:
    friend class PinCache;
    Pin(PinCache* cache, std::size_t number) : cache_(cache), number_(number) {}
    explicit Pin(int error) : error_(error) {}

    PinCache* cache_ = nullptr;
    std::size_t number_ = 0;
    int error_ = 0;
  };

  PinCache(Pinner& pinner, Settings settings);
  ~PinCache() override;  // no Pin may be left
  PinCache(const PinCache&) = delete;
  PinCache& operator=(const PinCache&) = delete;

  // EBUSY: overlaps a range in use. ENOSPC: the table is full of ranges in use. Else what the Pinner says.
  Pin pin(const void* address, std::size_t length);

  // These pages keep their meaning until they are retracted.
  void declare_stable(const void* address, std::size_t length);
  void retract(const void* address, std::size_t length);

  // The caller knows that these addresses mean something else now.
  void invalidate(const void* address, std::size_t length);

  // Unpins what became invalid and is no longer in use.
  void reap();

  bool keeps_ordinary_memory() const { return keep_ != Keep::stable && budget_ > 0; }
  std::string status() const;  // for people
  std::size_t pinned_bytes() const;
  std::size_t ranges() const;

 private:
  enum class State : std::uint8_t { free, pinning, pinned, leaving };
  struct Entry {
    AddressRange range;
    std::uint64_t last_used = 0;
    std::uint32_t users = 0;
    State state = State::free;
    bool keep = false;  // beyond its last user; false for good once it became invalid
    bool watched = false;
    bool idle() const { return state == State::pinned && users == 0; }
  };
  enum class Attempt {
    hit,
    made,     // an entry to be pinned by the caller
    evicted,  // an entry that the caller must unpin before it tries again
    wait,     // for another thread
    busy,
    full,
  };

  // These with the mutex held.
  Attempt attempt(const AddressRange& range, bool patient, std::size_t& number);
  std::size_t first_ending_after(std::uintptr_t address) const;  // index into order_
  std::size_t make(const AddressRange& range, bool may_keep);
  void doom(Entry& entry);
  void stop_watching(Entry& entry);
  std::size_t start_leaving(std::size_t number);
  void remove(std::size_t number);
  std::size_t least_recently_used() const;  // kMostRanges: none is idle
  std::size_t next_to_go() const;           // the same
  bool is_stable(const AddressRange& range) const;
  void memory_changed(const AddressRange& range) override;

  // And these without.
  void changes_taken_in() override;
  Pin pin_made(std::size_t number);
  void unpin(std::size_t number);
  void release(std::size_t number);

  Pinner& pinner_;
  const std::size_t budget_;
  const std::function<void()> reap_wanted_;
  const pid_t owner_;
  Keep keep_;
  std::string why_not_watched_;

  mutable std::mutex mutex_;
  std::array<Entry, kMostRanges> entries_;
  std::array<std::uint16_t, kMostRanges> order_{};  // numbers of the entries that are not free, by address
  std::size_t count_ = 0;
  std::array<AddressRange, kMostStable> stable_{};
  std::size_t stable_count_ = 0;
  std::size_t bytes_ = 0;   // pinned or about to be
  std::size_t doomed_ = 0;  // entries that will not be kept, in use or not
  std::uint64_t uses_ = 0;

  Counter hits_ = counter("copy.pin_hits");
  Counter misses_ = counter("copy.pin_misses");
  Counter evicted_ = counter("copy.pin_evicted");
  Counter invalidated_ = counter("copy.pin_invalidated");

  std::unique_ptr<MemoryWatch> watch_;  // last: its thread uses everything above
};

}  // namespace viaduct::copy
