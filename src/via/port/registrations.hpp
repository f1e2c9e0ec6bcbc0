// What this side has registered: the owner's side of the published table (memory_table.hpp).
//
// Thread safety: everything may be called from any thread; looking takes no lock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "via/port/memory_table.hpp"

namespace viaduct::via {

class Registrations {
 public:
  static Result<std::unique_ptr<Registrations>> make();

  const Segment& segment() const { return segment_; }
  const TableView& view() const { return view_; }

  // 0: no place or no memory.
  MemoryKey add(const void* address, std::size_t length, std::uint64_t tag, std::uint64_t enables);
  // The address must be the one that was registered.
  bool matches(MemoryKey key, const void* address, Registration& found) const;
  bool remove(MemoryKey key, const void* address);
  bool set_access(MemoryKey key, const void* address, std::uint64_t tag, std::uint64_t enables);

  // Memory for the page of posted receives of a connection. False: there is none.
  bool reserve_posted(std::uint32_t slot);

  bool tag_in_use(std::uint64_t tag) const;

  // Moves whenever something that was allowed may no longer be: what was checked under another version is checked
  // again.
  std::uint32_t version() const { return version_.load(std::memory_order_acquire); }
  void changed() { version_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  explicit Registrations(Segment segment) : segment_(std::move(segment)), view_(segment_) {}
  std::uint32_t take_place();

  Segment segment_;
  TableView view_;
  mutable std::mutex mutex_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint16_t> generations_;  // by place
  std::atomic<std::uint32_t> version_{0};
};

}  // namespace viaduct::via
