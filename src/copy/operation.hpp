// One operation inside the engine: what to copy, cut into chunks that anybody may take, and how far it is.
//
// Life: made by the engine in a slot of its table -> handed to a channel -> chunks taken and done by workers and by
// whoever waits -> finished -> reaped by the check or wait that reports the end. The slot is free when the last
// reference goes.
//
// Ordering edges:
//   R1  finish() stores the state with release; pairs with A1, the acquire load in finished(): the bytes are visible.
//   R2  chunk_done() sets the chunk's bit with release; pairs with A2 in ready_bytes(): consuming while copying.
#pragma once

#include <viaduct/copy.hpp>

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/wait_word.hpp"
#include "copy/kernels.hpp"

namespace viaduct::copy {

enum class Work : std::uint8_t { copy, fill };

// A run of bytes that is copied in one go.
struct Chunk {
  const std::byte* source = nullptr;  // of a fill: unused
  std::byte* destination = nullptr;
  std::size_t length = 0;
};

class Channel;

// How bytes are moved, whoever moves them.
struct Manner {
  Work work = Work::copy;
  int fill_byte = 0;
  bool streaming = false;    // past the cache, or through it
  bool overlapping = false;  // as memmove does, in one go
};
void move_bytes(const Manner& manner, const Chunk& chunk, Copier copier);

class alignas(64) OperationRecord {
 public:
  static constexpr std::uint32_t kInlineChunks = 512;  // a plain copy has no more; a batch may

  void add_references(std::uint32_t count) { references_.fetch_add(count, std::memory_order_relaxed); }

  // Set up by the engine before the operation is visible to anybody else.
  Manner manner;
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::size_t length = 0;
  std::vector<Piece> pieces;            // of a batch or a scatter/gather; empty for a plain copy
  std::vector<Cookie> after;            // operations that must complete first
  Channel* channel = nullptr;           // who executes it; null: the thread that dispatches it
  std::atomic<bool> dispatched{false};  // its predecessors have completed and the channel has it

  // Cuts the operation so that no chunk is much longer than `about`, at page-aligned destinations.
  void cut(std::size_t about);

  // Takes the next chunk nobody has taken; false when there is none left.
  bool take_chunk(Chunk& chunk, std::uint32_t& index);
  // Says that a taken chunk is done. True: it was the last of all, and the caller must call finish().
  bool chunk_done(std::uint32_t index);
  bool has_chunks_left() const { return next_chunk_.load(std::memory_order_relaxed) < chunk_count_; }

  // For channels that copy in order without taking chunks: so many bytes from the start are there.
  void advance(std::size_t bytes) { in_order_ready_.store(bytes, std::memory_order_release); }  // R2

  // The end: `error` is an errno value or 0. Wakes sleepers and resumes the coroutine that waits.
  void finish(int error);

  // The same for one that nobody else has seen yet.
  void finish_unseen();

  bool finished() const { return state_.load(std::memory_order_acquire) == State::finished; }  // A1
  int error() const { return error_; }                                                         // once finished
  std::size_t ready_bytes() const;
  WaitWord& done_word() { return done_word_; }

  // False: already finished, the coroutine goes on by itself.
  bool resume_when_finished(std::coroutine_handle<> waiting);

  // Called after each end, when set: lets the engine dispatch operations that waited for this one.
  static inline std::atomic<void (*)()> after_finish{nullptr};

  // Slot keeping. A reference stands for an unreaped cookie, an entry in a queue, or a call that looks at the record;
  // the record is free again when the last one goes.
  std::atomic<Cookie> cookie{0};                                     // 0: none, or reaped
  void claim() { references_.store(1, std::memory_order_relaxed); }  // by whoever took it from the free ones
  bool try_hold();                                                   // one more, unless it is free
  // One less. True: it was the last, the record is clean and belongs to the caller, who puts it back among the free
  // ones.
  bool drop_last();
  std::uint32_t uses = 0;                   // how often the slot has been used: part of its cookies
  std::atomic<std::uint32_t> next_free{0};  // while free

 private:
  enum class State : std::uint32_t { pending, finished };
  static constexpr std::uint32_t kRecycling = 0x8000'0000;  // references while the last one cleans up

  void recycle();

  Chunk chunk(std::uint32_t index) const;
  const std::atomic<std::uint64_t>* done_bits() const {
    return more_done_bits_ ? more_done_bits_.get() : inline_done_bits_.data();
  }
  std::atomic<std::uint64_t>* done_bits() { return more_done_bits_ ? more_done_bits_.get() : inline_done_bits_.data(); }

  std::atomic<std::uint32_t> references_{0};
  std::size_t first_length_ = 0;   // of chunk 0: up to the first page boundary of the destination
  std::size_t chunk_length_ = 0;   // of all others, the last excepted
  std::vector<Chunk> chunk_list_;  // of a batch: every chunk; empty for a plain copy
  std::uint32_t chunk_count_ = 0;
  int error_ = 0;

  alignas(64) std::atomic<std::uint32_t> next_chunk_{0};
  alignas(64) std::atomic<std::uint32_t> chunks_done_{0};
  std::array<std::atomic<std::uint64_t>, kInlineChunks / 64> inline_done_bits_{};
  std::unique_ptr<std::atomic<std::uint64_t>[]> more_done_bits_;
  std::atomic<std::size_t> in_order_ready_{0};
  std::atomic<State> state_{State::pending};
  std::atomic<void*> waiting_{nullptr};  // a coroutine's address, or kNobodyMore
  WaitWord done_word_;
};

}  // namespace viaduct::copy
