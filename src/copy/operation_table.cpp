#include "copy/operation_table.hpp"

namespace viaduct::copy {

namespace {

constexpr int kSlotShift = 32;
constexpr int kGenerationShift = 44;
constexpr int kChannelShift = 56;
constexpr std::uint32_t kGenerationMask = 0xfff;
constexpr std::uint32_t kNone = UINT32_MAX;

std::uint64_t head_of(std::uint64_t before, std::uint32_t slot) {
  return ((before >> 32) + 1) << 32 | slot;
}

}  // namespace

OperationTable::OperationTable(std::uint32_t generation)
    : generation_(generation & kGenerationMask), records_(std::make_unique<OperationRecord[]>(kSlots)), free_(0) {
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    records_[i].done_word().promise_heavy_fence();
    records_[i].next_free.store(i + 1 < kSlots ? i + 1 : kNone, std::memory_order_relaxed);
  }
}

OperationRecord* OperationTable::claim() {
  std::uint64_t head = free_.load(std::memory_order_acquire);
  for (;;) {
    const auto slot = static_cast<std::uint32_t>(head);
    if (slot == kNone) return nullptr;
    const std::uint32_t next = records_[slot].next_free.load(std::memory_order_relaxed);
    if (free_.compare_exchange_weak(head, head_of(head, next), std::memory_order_acquire)) {
      records_[slot].claim();
      return &records_[slot];
    }
  }
}

void OperationTable::drop(OperationRecord& record) {
  if (!record.drop_last()) return;
  const auto slot = static_cast<std::uint32_t>(&record - records_.get());
  std::uint64_t head = free_.load(std::memory_order_relaxed);
  do record.next_free.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
  while (!free_.compare_exchange_weak(head, head_of(head, slot), std::memory_order_release));
}

Cookie OperationTable::name(OperationRecord& record, Choice channel) {
  const auto slot = static_cast<Cookie>(&record - records_.get());
  const Cookie cookie = static_cast<Cookie>(channel) << kChannelShift |
                        static_cast<Cookie>(generation_) << kGenerationShift | slot << kSlotShift |
                        static_cast<Cookie>(++record.uses);
  record.cookie.store(cookie, std::memory_order_release);
  return cookie;
}

bool OperationTable::could_be_ours(Cookie cookie) const {
  return cookie == 0 ||
         (cookie > 0 && (static_cast<std::uint32_t>(cookie >> kGenerationShift) & kGenerationMask) == generation_);
}

// A cookie stands in its slot until it is reaped, and its own reference keeps the record alive until then.
OperationTable::Held OperationTable::hold(Cookie cookie) {
  if (cookie == 0 || !could_be_ours(cookie)) return {};
  OperationRecord& record = records_[static_cast<std::uint32_t>(cookie >> kSlotShift) % kSlots];
  if (!record.try_hold()) return {};
  Held held(this, &record);
  if (record.cookie.load(std::memory_order_acquire) != cookie) return {};
  return held;
}

bool OperationTable::reap(OperationRecord& record, Cookie cookie) {
  if (!record.cookie.compare_exchange_strong(cookie, 0, std::memory_order_acq_rel)) return false;
  drop(record);
  return true;
}

}  // namespace viaduct::copy
