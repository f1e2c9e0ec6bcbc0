// The memory of a port that its peers may read (docs/formats/port.md): what is registered, and a few words for each
// connection.
//
//   line 0     TableHeader
//   then       kMostConnections words, by the connection's slot
//   then       kMostRegions entries of 64 bytes, by the key's low half
//   then       a page for each connection, by its slot: receive descriptors that the peer may write to, in a ring
//
// Only the owner writes: the segment is sealed so that nobody else can map it for writing. A peer that wants to write
// or read remote memory looks here first and touches nothing that is not allowed.
//
// Ordering edges:
//   R1  the owner's release store of an entry's key publishes the entry; pairs with A1 in find().
//   R2  the owner's release store of a posted receive's stamp publishes it; pairs with A2 in find_posted().
//   S1  initiator: activity odd, full fence, look at the entry, copy, activity even.
//   S2  owner: key 0, full fence, look at every peer's activity. One of the two sees the other: once
//       deregistering has returned nobody copies. The same with `connection` even, before what was posted on a
//       connection goes back to the program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/segment.hpp"
#include "base/wait_word.hpp"

namespace viaduct::via {

constexpr std::uint64_t kTableLayout = layout_hash(
    "port table 1: header 64, words {activity, wants_room, connection, shows_posted: u32}, entries 64, "
    "posted {stamp u64, address u64, key u32, length u32, unused u64} 128 per connection");
constexpr std::uint32_t kMostConnections = 16384;
constexpr std::uint32_t kMostRegions = 65536;

using MemoryKey = std::uint32_t;  // of a registration; 0: none

enum Enable : std::uint64_t { kRdmaWrite = 1, kRdmaRead = 2 };

struct alignas(kCacheLine) TableHeader {
  std::uint32_t connections;
  std::uint32_t regions;
};
static_assert(sizeof(TableHeader) == kCacheLine);

struct ConnectionWords {
  std::atomic<std::uint32_t> activity;    // odd while this side copies from or to the peer's memory
  std::atomic<std::uint32_t> wants_room;  // the owner sleeps with messages that did not fit: tell it when there is room
  std::atomic<std::uint32_t> connection;  // odd: its number, while the peer may touch what is posted; even: it may not
  std::atomic<std::uint32_t> shows_posted;  // 1: its page of posted receives is there
};
static_assert(sizeof(ConnectionWords) == 16);

struct RegistrationEntry {
  std::atomic<std::uint32_t> key;  // 0: nothing is registered here
  std::atomic<std::uint32_t> region_fd;
  std::atomic<std::uint64_t> base;
  std::atomic<std::uint64_t> length;
  std::atomic<std::uint64_t> access;     // protection tag << 2 | Enable
  std::atomic<std::uint64_t> region_id;  // of engine-owned memory; 0: ordinary memory
  std::atomic<std::uint64_t> region_offset;
  std::atomic<std::uint64_t> region_inode;
  std::uint64_t unused;
};
static_assert(sizeof(RegistrationEntry) == kCacheLine);

struct PostedReceive {
  std::atomic<std::uint64_t> stamp;  // posted_stamp(); 0: none that could be written to
  std::atomic<std::uint64_t> address;
  std::atomic<std::uint32_t> key;
  std::atomic<std::uint32_t> length;
  std::uint64_t unused;
};
static_assert(sizeof(PostedReceive) == 32);

constexpr std::uint32_t kPostedPerConnection = 128;
constexpr std::size_t kPostedBytes = kPostedPerConnection * sizeof(PostedReceive);
static_assert(kPostedBytes == 4096, "pages: each is reserved when its connection needs it");

// Which receive of which connection: the ring is not cleared in between.
constexpr std::uint64_t posted_stamp(std::uint32_t connection, std::uint64_t number) {
  return std::uint64_t{connection} << 32 | static_cast<std::uint32_t>(number);
}

constexpr std::size_t kWordsOffset = sizeof(TableHeader);
constexpr std::size_t kEntriesOffset = kWordsOffset + kMostConnections * sizeof(ConnectionWords);
constexpr std::size_t kPostedOffset = (kEntriesOffset + kMostRegions * sizeof(RegistrationEntry) + 4095) / 4096 * 4096;
constexpr std::size_t kTableBytes = kPostedOffset + kMostConnections * kPostedBytes;

// A private copy of an entry.
struct Registration {
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  std::uint64_t tag = 0;
  std::uint64_t enables = 0;
  std::uint64_t region_id = 0;
  std::uint64_t region_offset = 0;
  std::uint64_t region_inode = 0;
  std::uint32_t region_fd = 0;

  bool covers(std::uint64_t address, std::uint64_t size) const {
    return address >= base && size <= length && address - base <= length - size;
  }
};

// Whether a VI may use memory. Tag 0 is NULL: a VI for which no protection was asked.
inline bool tags_agree(std::uint64_t vi, std::uint64_t memory) {
  return vi == memory || vi == 0;
}

// Either side's view of a table.
class TableView {
 public:
  TableView() = default;
  explicit TableView(const Segment& segment) : payload_(segment.payload().data()) {}

  ConnectionWords& words(std::uint32_t slot) const {
    return reinterpret_cast<ConnectionWords*>(payload_ + kWordsOffset)[slot];
  }
  RegistrationEntry& entry(std::uint32_t index) const {
    return reinterpret_cast<RegistrationEntry*>(payload_ + kEntriesOffset)[index];
  }

  PostedReceive& posted(std::uint32_t slot, std::uint64_t number) const {
    auto* const ring = reinterpret_cast<PostedReceive*>(payload_ + kPostedOffset + slot * kPostedBytes);
    return ring[number % kPostedPerConnection];
  }

  // What a key stands for right now; false: nothing.
  bool find(std::uint32_t key, Registration& found) const {
    const RegistrationEntry& from = entry(key & (kMostRegions - 1));
    if (key == 0 || from.key.load(std::memory_order_acquire) != key) return false;  // A1, pairs with R1
    const std::uint64_t access = from.access.load(std::memory_order_relaxed);
    found = {from.base.load(std::memory_order_relaxed),
             from.length.load(std::memory_order_relaxed),
             access >> 2,
             access & 3,
             from.region_id.load(std::memory_order_relaxed),
             from.region_offset.load(std::memory_order_relaxed),
             from.region_inode.load(std::memory_order_relaxed),
             from.region_fd.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    return from.key.load(std::memory_order_relaxed) == key;  // not given to somebody else meanwhile
  }

  // The check of every post: may a VI of this tag use these bytes under this key?
  bool allows(std::uint32_t key, std::uint64_t address, std::uint64_t size, std::uint64_t tag,
              std::uint64_t enables = 0) const {
    const RegistrationEntry& from = entry(key & (kMostRegions - 1));
    if (key == 0 || from.key.load(std::memory_order_acquire) != key) return false;  // A1, pairs with R1
    const std::uint64_t base = from.base.load(std::memory_order_relaxed);
    const std::uint64_t length = from.length.load(std::memory_order_relaxed);
    const std::uint64_t access = from.access.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    return from.key.load(std::memory_order_relaxed) == key && tags_agree(tag, access >> 2) &&
           (access & enables) == enables && address >= base && size <= length && address - base <= length - size;
  }

 private:
  std::byte* payload_ = nullptr;
};

}  // namespace viaduct::via
