// A DMA channel of the live adapter: a queue of transfers that happen, and complete, in order.
//
// A transfer is a copy. Ordinarily it is done at once by whoever enqueues it, which is the cheapest a copy can be. Two
// kinds take longer, and then everything behind them waits for its turn:
//   large ones go to the copy engine and complete when it says so;
//   shared ones (dynamic partition) may be taken by any processor, so that data of different packets moves at the same
//   time on several; the owner takes what nobody took.
//
// The owner of the channel is the processor (or the holder of the claim) of its group; only help() may be called by
// others.
//   R1  owner's release store of `shared` publishes a transfer; pairs with A1 in take().
//   R2  taker's release store of `done` publishes its bytes; pairs with A2 in settle().
#pragma once

#include <viaduct/copy.hpp>

#include <array>
#include <atomic>
#include <memory>

#include "base/copy_loop.hpp"
#include "nic/hardware.hpp"
#include "nic/host_memory.hpp"

namespace viaduct::nic {

enum class Direction { read, write };  // host to adapter; adapter to host

class DmaChannel {
 public:
  static constexpr std::uint32_t kEntries = 1024;
  static constexpr std::uint32_t kEngineFrom = 64 << 10;  // below, one copy here is over before an engine has started
  static constexpr std::uint32_t kNeverShare = UINT32_MAX;

  // Transfers of `share_from` bytes and more may be taken by helpers.
  DmaChannel(Direction direction, const HostMemory& memory, std::uint32_t share_from)
      : direction_(direction), memory_(memory), share_from_(share_from), slow_(new Slow[kEntries]) {}

  std::uint32_t space() const { return kEntries - (tail_ - head_); }
  std::uint32_t settled() const { return settled_; }  // transfers completed, of all time
  std::uint32_t enqueued() const { return tail_; }

  // There is space, and the address has been checked.
  void enqueue(const DmaDescriptor& descriptor) {
    entries_[tail_ % kEntries] = {descriptor.what, descriptor.queue, descriptor.argument};
    const bool at_once = settled_ == tail_ && descriptor.length < kEngineFrom && descriptor.length < share_from_;
    ++tail_;
    if (at_once) [[likely]] {
      ++settled_;
      copy(descriptor);
    } else {
      enqueue_slowly(descriptor);
    }
  }

  bool next_completion(DmaCompletion& completion) {
    if (head_ == settled_) return false;
    completion = entries_[head_++ % kEntries];
    return true;
  }
  bool has_completions() {
    if (settled_ != tail_) [[unlikely]]
      settle();
    return head_ != settled_;
  }

  // Copies something of this channel, if there is anything to take. From any processor.
  bool help();

 private:
  enum State : std::uint8_t { done, ordered, shared, taken, engine };
  struct Slow {
    std::atomic<std::uint8_t> state{done};
    DmaDescriptor descriptor;
    copy::Operation operation;
  };

  void copy(const DmaDescriptor& descriptor) {
    if (descriptor.length == 0) return;
    std::byte* const host = memory_.at(descriptor.host, descriptor.length);
    if (host == nullptr) return;
    if (descriptor.local == nullptr) {
      // An index: what it covers must be visible to whoever reads it. Pairs with the driver's acquire load.
      std::atomic_ref(*reinterpret_cast<std::uint32_t*>(host)).store(descriptor.argument, std::memory_order_release);
    } else if (direction_ == Direction::read) {
      move(static_cast<std::byte*>(descriptor.local), host, descriptor.length);
    } else {
      move(host, static_cast<const std::byte*>(descriptor.local), descriptor.length);
    }
  }

  static void move(std::byte* to, const std::byte* from, std::uint32_t length) {
    if (length <= 64) {
      copy_short(to, from, length);
    } else {
      copy_through_ring(to, from, length);
    }
  }
  // Two overlapping pieces instead of a call.
  static void copy_short(std::byte* to, const std::byte* from, std::uint32_t length) {
    const auto pair = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
      std::array<std::byte, kSize> first, last;
      std::memcpy(&first, from, kSize), std::memcpy(&last, from + length - kSize, kSize);
      std::memcpy(to, &first, kSize), std::memcpy(to + length - kSize, &last, kSize);
    };
    if (length >= 32)
      pair(std::integral_constant<std::size_t, 32>{});
    else if (length >= 16)
      pair(std::integral_constant<std::size_t, 16>{});
    else if (length >= 8)
      pair(std::integral_constant<std::size_t, 8>{});
    else
      for (std::uint32_t i = 0; i < length; ++i) to[i] = from[i];
  }

  void enqueue_slowly(const DmaDescriptor& descriptor);
  void settle();
  bool take(Slow& slow);

  const Direction direction_;
  const HostMemory& memory_;
  const std::uint32_t share_from_;
  std::uint32_t head_ = 0;     // completions handed out
  std::uint32_t settled_ = 0;  // transfers done, without a gap
  std::uint32_t tail_ = 0;     // transfers enqueued
  std::array<DmaCompletion, kEntries> entries_{};
  std::unique_ptr<Slow[]> slow_;
  alignas(64) std::atomic<std::uint32_t> shared_from_{0};  // where helpers look: a hint
  std::atomic<std::uint32_t> shared_to_{0};
};

}  // namespace viaduct::nic
