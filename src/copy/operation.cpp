#include "copy/operation.hpp"

#include <algorithm>
#include <cstring>

namespace viaduct::copy {

namespace {

constexpr std::size_t kPage = 4096;

// A non-null address that no coroutine has: nobody can begin to wait any more.
void* const kNobodyMore = reinterpret_cast<void*>(std::uintptr_t{1});

std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

// The length of the first chunk, such that the second begins at a page of the destination.
std::size_t first_length(const void* destination, std::size_t chunk) {
  return chunk - reinterpret_cast<std::uintptr_t>(destination) % kPage;
}

}  // namespace

void move_bytes(const Manner& manner, const Chunk& chunk, Copier copier) {
  if (manner.work == Work::fill) {
    if (manner.streaming)
      fill_streaming(chunk.destination, manner.fill_byte, chunk.length);
    else
      std::memset(chunk.destination, manner.fill_byte, chunk.length);
  } else if (manner.overlapping) {
    std::memmove(chunk.destination, chunk.source, chunk.length);
  } else if (manner.streaming) {
    copy_streaming(chunk.destination, chunk.source, chunk.length, copier);
  } else {
    copy_kept(chunk.destination, chunk.source, chunk.length);
  }
}

void OperationRecord::cut(std::size_t about) {
  const std::size_t chunk = round_up(std::max({about, length / (kInlineChunks - 1), kPage}), kPage);
  if (pieces.empty()) {
    chunk_length_ = manner.overlapping ? length : chunk;
    first_length_ = manner.overlapping ? length : first_length(destination, chunk);
    const std::size_t rest = length > first_length_ ? length - first_length_ : 0;
    chunk_count_ = static_cast<std::uint32_t>(1 + (rest + chunk_length_ - 1) / std::max<std::size_t>(chunk_length_, 1));
  } else {
    for (const Piece& piece : pieces) {
      const auto* from = static_cast<const std::byte*>(piece.source);
      auto* to = static_cast<std::byte*>(piece.destination);
      for (std::size_t left = piece.length; left > 0;) {
        const std::size_t size = manner.overlapping ? left : std::min(left, first_length(to, chunk));
        chunk_list_.push_back({from, to, size});
        from += size, to += size, left -= size;
      }
    }
    chunk_count_ = static_cast<std::uint32_t>(chunk_list_.size());
  }
  if (chunk_count_ > kInlineChunks)
    more_done_bits_ = std::make_unique<std::atomic<std::uint64_t>[]>((chunk_count_ + 63) / 64);
}

Chunk OperationRecord::chunk(std::uint32_t index) const {
  if (!chunk_list_.empty()) return chunk_list_[index];
  const std::size_t begin = index == 0 ? 0 : first_length_ + (index - 1) * chunk_length_;
  const std::size_t end = std::min(length, first_length_ + index * chunk_length_);
  return {source == nullptr ? nullptr : source + begin, destination + begin, end - begin};
}

bool OperationRecord::take_chunk(Chunk& taken, std::uint32_t& index) {
  if (!has_chunks_left()) return false;
  index = next_chunk_.fetch_add(1, std::memory_order_relaxed);
  if (index >= chunk_count_) return false;
  taken = chunk(index);
  return true;
}

bool OperationRecord::chunk_done(std::uint32_t index) {
  done_bits()[index / 64].fetch_or(std::uint64_t{1} << (index % 64), std::memory_order_release);  // R2
  return chunks_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunk_count_;
}

void OperationRecord::finish(int error) {
  error_ = error;
  // First the coroutine, then the state: once that is seen the slot may serve another operation.
  void* const waiting = waiting_.exchange(kNobodyMore, std::memory_order_acq_rel);
  state_.store(State::finished, std::memory_order_release);  // R1
  done_word_.wake_if_armed();
  if (auto* const hook = after_finish.load(std::memory_order_relaxed)) hook();
  if (waiting != nullptr) std::coroutine_handle<>::from_address(waiting).resume();
}

void OperationRecord::finish_unseen() {
  waiting_.store(kNobodyMore, std::memory_order_relaxed);
  state_.store(State::finished, std::memory_order_relaxed);
}

bool OperationRecord::resume_when_finished(std::coroutine_handle<> waiting) {
  void* nobody = nullptr;
  return waiting_.compare_exchange_strong(nobody, waiting.address(), std::memory_order_acq_rel);
}

std::size_t OperationRecord::ready_bytes() const {
  if (finished()) return error_ == 0 ? length : in_order_ready_.load(std::memory_order_acquire);
  std::size_t ready = 0;
  for (std::uint32_t index = 0; index < chunk_count_; ++index) {
    if ((done_bits()[index / 64].load(std::memory_order_acquire) >> (index % 64) & 1) == 0) break;  // A2
    ready += chunk(index).length;
  }
  return std::max(ready, in_order_ready_.load(std::memory_order_acquire));  // A2
}

bool OperationRecord::try_hold() {
  std::uint32_t references = references_.load(std::memory_order_relaxed);
  do {
    if (references == 0 || references >= kRecycling) return false;
  } while (!references_.compare_exchange_weak(references, references + 1, std::memory_order_acquire));
  return true;
}

bool OperationRecord::drop_last() {
  std::uint32_t references = references_.load(std::memory_order_relaxed);
  for (;;) {
    if (references > 1) {
      if (references_.compare_exchange_weak(references, references - 1, std::memory_order_release)) return false;
    } else if (references_.compare_exchange_weak(references, kRecycling, std::memory_order_acquire)) {
      recycle();
      references_.store(0, std::memory_order_release);
      return true;
    }
  }
}

void OperationRecord::recycle() {
  channel = nullptr;
  dispatched.store(false, std::memory_order_relaxed);
  pieces.clear();
  after.clear();
  chunk_list_.clear();
  more_done_bits_.reset();
  manner = {};
  source = nullptr;
  destination = nullptr;
  length = 0;
  chunk_count_ = 0;
  error_ = 0;
  next_chunk_.store(0, std::memory_order_relaxed);
  chunks_done_.store(0, std::memory_order_relaxed);
  for (auto& word : inline_done_bits_) word.store(0, std::memory_order_relaxed);
  in_order_ready_.store(0, std::memory_order_relaxed);
  waiting_.store(nullptr, std::memory_order_relaxed);
  state_.store(State::pending, std::memory_order_relaxed);
}

}  // namespace viaduct::copy
