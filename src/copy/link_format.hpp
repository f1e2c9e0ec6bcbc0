// The shared memory of a link (docs/formats/copy-link.md): per direction a table of match slots and a bounce ring.
//
// The k-th write of one side meets the k-th read of the other in slot k % kSlots. Each side posts its half and then
// looks at the other's; whoever sees both takes chunks off the slot's counter and copies them. No word is ever reset:
// each carries the stamp of the transfer it speaks of, and one that carries an older stamp counts as untouched.
//
// A slot is used again by a side once its transfer there has ended. The words both sides write (next, done, result)
// then still belong to the old transfer until both sides have posted the new one, so the slower side finds its end
// there.
//
// The peer may write anything anywhere at any time: words are read once, checked, and only the checked copy is used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/segment.hpp"
#include "base/wait_word.hpp"

namespace viaduct::copy::link_format {

constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kSlots = 64;
constexpr std::size_t kWhole = std::size_t{32} << 10;   // up to here a transfer is one chunk
constexpr std::size_t kChunk = std::size_t{128} << 10;  // the longest chunk
constexpr std::size_t kLongest = std::size_t{1} << 39;  // of a transfer: its chunks can be counted in DoneWord
// What one side copies at a time, for a transfer of that many bytes. Both sides must cut alike.
constexpr std::size_t chunk_size(std::size_t moving) {
  if (moving <= kWhole) return kWhole;
  const std::size_t quarter = ((moving + 3) / 4 + 4095) / 4096 * 4096;
  return quarter < kChunk ? quarter : kChunk;
}
constexpr std::size_t chunk_count(std::size_t moving) {
  return moving == 0 ? 1 : (moving + chunk_size(moving) - 1) / chunk_size(moving);
}

constexpr std::uint64_t kPieces = 8;  // of a bounce ring
constexpr std::size_t kPiece = std::size_t{128} << 10;

constexpr std::uint64_t kLayout = layout_hash("viaduct copy link 1: sides, lanes of 64 slots, bounce 8 x 128K");

// One side's half of a match, written by that side alone; one line.
struct alignas(64) PostedHalf {
  std::atomic<std::uint64_t> stamp;         // sequence + 1, stored last
  std::atomic<std::uint64_t> address;       // of the buffer in its owner's memory
  std::atomic<std::uint64_t> length;        //
  std::atomic<std::uint64_t> region;        // id of the engine-owned region it lies in; 0: ordinary memory
  std::atomic<std::uint64_t> offset;        // in that region
  std::atomic<std::uint64_t> cannot_reach;  // a stamp: the owner of this half has no way to the other's buffer
  std::atomic<std::uint64_t> waits;         // a stamp: the owner of this half is waiting for it
  std::uint64_t reserved[1];
};
static_assert(sizeof(PostedHalf) == 64);

struct MatchSlot {
  PostedHalf writer;
  PostedHalf reader;
  alignas(64) std::atomic<std::uint64_t> next;  // NextWord, by compare-exchange of both
  alignas(64) std::atomic<std::uint64_t> done;  // DoneWord, by compare-exchange of both; what a waiting side looks at
  std::atomic<std::uint64_t> result;            // ResultWord, the same from whoever stores it
};
static_assert(sizeof(MatchSlot) == 256);
static_assert(offsetof(MatchSlot, reader) == 64 && offsetof(MatchSlot, next) == 128 &&
              offsetof(MatchSlot, done) == 192);

// Who has begun: how many chunks are taken, or that the bytes go through the bounce ring, or that a side withdrew.
struct NextWord {
  static constexpr std::uint32_t kBounce = 0xffff'ffff;
  static constexpr std::uint32_t kWithdrawn = 0xffff'fffe;

  std::uint32_t stamp;
  std::uint32_t taken;

  static NextWord from(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  std::uint64_t word() const { return std::uint64_t{stamp} << 32 | taken; }
};

// How much of it is over. `error` is the first errno value met.
struct DoneWord {
  static constexpr std::uint32_t kMostChunks = (1u << 23) - 1;

  std::uint32_t stamp;
  bool finished;
  std::uint8_t error;
  std::uint32_t chunks;

  static DoneWord from(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), (word >> 31 & 1) != 0, static_cast<std::uint8_t>(word >> 23),
            static_cast<std::uint32_t>(word & kMostChunks)};
  }
  std::uint64_t word() const {
    return std::uint64_t{stamp} << 32 | std::uint64_t{finished} << 31 | std::uint64_t{error} << 23 |
           (chunks & kMostChunks);
  }
};
static_assert(kLongest / kChunk < DoneWord::kMostChunks);

enum class Path : std::uint8_t { none, mapped, cma, bounce };

struct ResultWord {
  Path path;
  std::uint64_t moved;

  static ResultWord from(std::uint64_t word) { return {static_cast<Path>(word >> 56), word & ((1ull << 56) - 1)}; }
  std::uint64_t word() const { return std::uint64_t{static_cast<std::uint8_t>(path)} << 56 | moved; }
};

// Stamps of the transfer with this sequence number, and of the one that had its slot before (0: none).
constexpr std::uint64_t stamp_of(std::uint64_t sequence) {
  return sequence + 1;
}
constexpr std::uint64_t older_stamp_of(std::uint64_t sequence) {
  return sequence >= kSlots ? sequence + 1 - kSlots : 0;
}
constexpr std::uint32_t short_stamp(std::uint64_t stamp) {
  return static_cast<std::uint32_t>(stamp);
}

struct alignas(64) PieceHeader {
  std::atomic<std::uint64_t> stamp;  // whose bytes these are
  std::atomic<std::uint64_t> offset;
  std::atomic<std::uint64_t> length;
};

// Pieces of transfers that neither side can do directly: the writer copies in, the reader out.
struct BounceRing {
  alignas(64) std::atomic<std::uint64_t> filled;   // written by the writer
  alignas(64) std::atomic<std::uint64_t> emptied;  // written by the reader
  PieceHeader headers[kPieces];                    // written by the writer
};
static_assert(sizeof(BounceRing) == 128 + 64 * kPieces);

struct LaneTable {
  MatchSlot slots[kSlots];
  BounceRing bounce;
};

struct SideTable {
  WaitWord wake;                                    // this side's sleepers arm it; the other side wakes
  alignas(64) std::atomic<std::uint32_t> sleeping;  // threads of this side that sleep; written by this side
};
static_assert(sizeof(SideTable) == 128);

struct LinkTable {
  SideTable sides[2];
  LaneTable lanes[2];  // lanes[s]: side s writes
  alignas(4096) std::byte bounce[2][kPieces * kPiece];
};
static_assert(offsetof(LinkTable, lanes) == 256 && offsetof(LinkTable, bounce) % 4096 == 0);

}  // namespace viaduct::copy::link_format
