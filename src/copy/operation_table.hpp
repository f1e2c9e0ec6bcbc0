// The records of an engine's operations, and the cookies that name them.
//
// A cookie is { channel:7, generation:12, slot:12, use:32 }, the sign bit clear. The generation tells engines apart
// (another process, a parent before fork), the use tells apart the operations a slot has served: a cookie that is old,
// foreign or invented finds nothing. Free slots are kept as a stack, so that the one used last, still in the cache, is
// used next.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "copy/operation.hpp"

namespace viaduct::copy {

class OperationTable {
 public:
  static constexpr std::uint32_t kSlots = 4096;

  explicit OperationTable(std::uint32_t generation);

  // A record that stays alive while this is held.
  class Held {
   public:
    Held() = default;
    Held(OperationTable* table, OperationRecord* record) : table_(table), record_(record) {}
    Held(Held&& other) noexcept : table_(other.table_), record_(std::exchange(other.record_, nullptr)) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(record_, other.record_);
      return *this;
    }
    ~Held() {
      if (record_ != nullptr) table_->drop(*record_);
    }
    explicit operator bool() const { return record_ != nullptr; }
    OperationRecord* operator->() const { return record_; }
    OperationRecord& operator*() const { return *record_; }

   private:
    OperationTable* table_ = nullptr;
    OperationRecord* record_ = nullptr;
  };

  // A free record with one reference, or null when thousands of operations have never been asked about.
  OperationRecord* claim();
  // Makes the record findable: the reference of claim() now belongs to the cookie.
  Cookie name(OperationRecord& record, Choice channel);
  Held hold(Cookie cookie);
  // 0 is the cookie of what has ended already.
  bool could_be_ours(Cookie cookie) const;
  // Of several threads that see the end of one operation, one is the one to report it, and gives up the cookie's
  // reference: true.
  bool reap(OperationRecord& record, Cookie cookie);
  void drop(OperationRecord& record);

  template <class Visit>
  void for_each_named(Visit&& visit) {
    for (std::uint32_t i = 0; i < kSlots; ++i)
      if (const Cookie cookie = records_[i].cookie.load(std::memory_order_acquire); cookie != 0) visit(cookie);
  }

 private:
  std::uint32_t generation_;
  std::unique_ptr<OperationRecord[]> records_;
  std::atomic<std::uint64_t>
      free_;  // { turn:32, slot:32 }: the turn keeps a stale head from being taken for the present one
};

}  // namespace viaduct::copy
