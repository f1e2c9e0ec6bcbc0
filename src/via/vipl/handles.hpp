// Handles of VIPL objects: numbers that look like pointers and are never followed.
//
//   63       generation      24 23    kind    20 19          index          0
//
// A table finds the object by index and compares the rest, so a handle that is stale, of another kind or made up is
// refused without touching what it seems to point at. A place is used again under another generation.
//
// Thread safety: find() may run beside add() and remove() of other handles. Removing the very object that another
// thread is using is misuse, as in every VIPL; blocking calls hold() it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace viaduct::vipl {

enum class HandleKind : std::uint64_t { nic = 1, vi = 2, cq = 3, ptag = 4, connection = 5 };

template <class Object, HandleKind kKind>
class HandleTable {
 public:
  constexpr HandleTable() = default;
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // Null: there is no place left.
  void* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    std::uint32_t index;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else if (used_ < kChunk * kChunks) {
      index = used_++;
      auto& chunk = chunks_[index / kChunk];
      if (chunk.load(std::memory_order_relaxed) == nullptr) chunk.store(new Place[kChunk], std::memory_order_release);
    } else {
      return nullptr;
    }
    Place& place = place_at(index);
    place.object.store(object.get(), std::memory_order_relaxed);
    place.owner = std::move(object);
    const std::uint64_t generation = ++place.generation;
    const std::uint64_t word = generation << 24 | static_cast<std::uint64_t>(kKind) << 20 | index;
    place.word.store(word, std::memory_order_release);
    return reinterpret_cast<void*>(word);  // NOLINT: a number by intent
  }

  // Null: not a handle of this table.
  Object* find(void* handle) const {
    const auto word = reinterpret_cast<std::uint64_t>(handle);
    const std::uint32_t index = word & 0xfffff;
    if (index >= kChunk * kChunks) return nullptr;
    Place* const chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr || word == 0) return nullptr;
    Place& place = chunk[index % kChunk];
    if (place.word.load(std::memory_order_acquire) != word) return nullptr;
    return place.object.load(std::memory_order_relaxed);
  }

  std::shared_ptr<Object> hold(void* handle) const {
    const std::lock_guard lock(mutex_);
    return find(handle) == nullptr ? nullptr : place_at(index_of(handle)).owner;
  }

  std::shared_ptr<Object> remove(void* handle) {
    const std::lock_guard lock(mutex_);
    if (find(handle) == nullptr) return nullptr;
    return take(index_of(handle));
  }

  // For fork: the child has none of its parent's objects. They are forgotten, not destroyed: their memory is shared.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  void forget_all_in_child() {
    for (std::uint32_t index = 0; index < used_; ++index)
      if (place_at(index).word.load(std::memory_order_relaxed) != 0) (void)new std::shared_ptr<Object>(take(index));
    mutex_.unlock();
  }

 private:
  static constexpr std::uint32_t kChunk = 256;
  static constexpr std::uint32_t kChunks = 512;

  struct Place {
    std::atomic<std::uint64_t> word{0};  // the handle; 0: nobody's
    std::atomic<Object*> object{nullptr};
    std::shared_ptr<Object> owner;
    std::uint64_t generation = 0;
  };

  static std::uint32_t index_of(void* handle) { return reinterpret_cast<std::uint64_t>(handle) & 0xfffff; }
  Place& place_at(std::uint32_t index) const {
    return chunks_[index / kChunk].load(std::memory_order_relaxed)[index % kChunk];
  }
  std::shared_ptr<Object> take(std::uint32_t index) {
    Place& place = place_at(index);
    place.word.store(0, std::memory_order_release);
    place.object.store(nullptr, std::memory_order_relaxed);
    free_.push_back(index);
    return std::move(place.owner);
  }

  mutable std::mutex mutex_;
  std::atomic<Place*> chunks_[kChunks] = {};  // never given back: find() takes no lock
  std::uint32_t used_ = 0;
  std::vector<std::uint32_t> free_;
};

// A table for the life of the process: there before anything runs, and not destroyed, because threads may outlive
// static objects.
template <class Table>
struct Everlasting {
  constexpr Everlasting() : table() {}
  ~Everlasting() {}  // NOLINT: the table stays
  union {
    Table table;
  };
};

}  // namespace viaduct::vipl
