// The memory of an accelerated connection (docs/formats/stream.md): two rings of bytes in one sealed segment, shared by
// every process that holds either end of the TCP connection.
//
//   page 0     StreamControl
//   then       direction 0 (side 0 to side 1): slots of 64 bytes, then its bulk area; direction 1 the same
//
// An end of a socket, unlike an end of a via::Channel, may be used by several threads and processes at once (fork,
// dup), and by another program after exec. So no position is private: all of them are here, and an end works on them
// under its lock. Both ends can write everything: what is read is masked and bounded, and nothing but bytes of this
// connection is ever in here.
//
// A slot with small bytes may still grow until the next one is published: messages of a few bytes share a cache line,
// and a receiver keeps its place in a slot until it sees the next.
//
// Which slot of the ring comes next is for the one before it to say. Where nearly all was read it is one of the same
// eight again and again: lines that both cores have at hand. A stream goes through all the others in turn.
//
// Ordering edges:
//   R1  sender's release store of a slot's header publishes slot and bulk bytes; pairs with A1 in Receiver::look().
//   R2  receiver's release store of head and bulk_head gives room back; pairs with A2 in Sender::refresh(). What it
//       says of head behind a message of its own (SlotTrailer) is ordered by R1 and A1 of that.
//   R3  sender's release store of `mode` publishes where the path changes; pairs with A3, the receiver's acquire load.
//   F1  sender: publish, full fence, look at data.armed.    Receiver: arm, full fence, look at the ring.
//   F2  receiver: give back, full fence, look at room.armed. Sender: arm, full fence, look at head. Not after a short
//       message, where the fence would be a tenth of a round trip: should the look be too early, then the next one sees
//       who waits, at the latest the one that finds the ring empty; and no sender sleeps for long without looking.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/segment.hpp"
#include "sockets/family.hpp"

namespace viaduct::sockets {

constexpr std::size_t kLine = 64;
constexpr std::uint32_t kSlots = 256;
constexpr std::size_t kSlotBytes = 64;
constexpr std::size_t kInlineBytes = kSlotBytes - 8;
constexpr std::size_t kBesideTrailer = kInlineBytes - 8;
constexpr std::uint32_t kFewSlots = 8;
constexpr std::size_t kLeastBulkBytes = std::size_t{64} << 10;
constexpr std::size_t kFirstBulkBytes = std::size_t{256} << 10;  // until more proves worth its memory
constexpr std::size_t kMostBulkBytes = std::size_t{4} << 20;
constexpr std::size_t kUsualChunk = std::size_t{16} << 10;
constexpr std::size_t kLargestChunk = (std::size_t{32} << 10) - kLine;  // of long messages

// Where a direction's bytes go. A sender moves on; and from kBack to kTcp where it only rests there (Path::rests).
enum Mode : std::uint32_t {
  kTcp = 0,   // the kernel's connection
  kRing = 1,  // here, from byte `ring_from` of the direction on; TCP carries doorbells only
  kBack = 2,  // the kernel's connection again, behind what the ring holds and from byte `tcp_from` of the TCP stream
};

// How far a receiver has followed.
enum Stage : std::uint32_t {
  kReadTcp = 0,   // the sender may change to the ring at any time
  kReadRest = 1,  // `tcp_left` bytes on TCP, then the ring
  kReadRing = 2,
  kDiscard = 3,   // doorbells up to byte `tcp_from`
  kReadBack = 4,  // TCP, as long as the sender does not say kTcp: then kReadTcp is next
};

struct alignas(kLine) Path {  // written by the sending end
  std::atomic<std::uint32_t> mode;
  std::atomic<std::uint32_t> rung;         // doorbells ever put on TCP in this direction, for data and for room
  std::atomic<std::uint64_t> ring_from;    // TCP bytes of this direction before the ring's first
  std::atomic<std::uint64_t> rung_ns;      // when it last rang, CLOCK_MONOTONIC
  std::atomic<std::uint64_t> tcp_from;     // TCP bytes, doorbells included, before the first after the ring
  std::atomic<std::uint32_t> sent_again;   // what the ring holds comes over TCP: nobody is to read it here
  std::atomic<std::uint32_t> held_bell;    // `rung` when the bell was rung that lets go what is held back
  std::atomic<std::uint64_t> held;         // how many bytes are, and above them the position of the slot they go before
  std::atomic<std::uint32_t> rung_before;  // `rung` when the ring was last gone to
  std::atomic<std::uint32_t> rests;        // with kBack: not for good
  // What a message costs this end in processor time, in nanoseconds, of the connection's both ways; 0: it is not known.
  std::atomic<std::uint32_t> ring_cost;
  std::atomic<std::uint32_t> tcp_cost;
};
static_assert(sizeof(Path) == kLine);

// A slot: its position in the stream, of which the low bits are enough, and its index in the ring. With it goes the
// index of a neighbour and, where one reads, how many of its bytes were taken: all of it is read and written at once,
// so that whoever dies, or jumps away, leaves it as it was or as it is to be.
class Spot {
 public:
  Spot() = default;
  explicit Spot(std::uint64_t word) : word_(word) {}
  Spot(std::uint32_t position, std::uint8_t index, std::uint8_t neighbour)
      : word_(std::uint64_t{position} << 32 | static_cast<std::uint64_t>(neighbour) << 8 | index) {}
  std::uint64_t word() const { return word_; }
  std::uint32_t position() const { return static_cast<std::uint32_t>(word_ >> 32); }
  std::uint8_t index() const { return static_cast<std::uint8_t>(word_); }
  std::uint8_t neighbour() const { return static_cast<std::uint8_t>(word_ >> 8); }
  std::uint32_t taken() const { return static_cast<std::uint16_t>(word_ >> 16); }
  // The same, of which so many bytes were taken.
  Spot with(std::size_t taken) const { return Spot((word_ & ~kTaken) | static_cast<std::uint64_t>(taken) << 16); }
  bool is_slot_of(Spot other) const { return ((word_ ^ other.word_) & ~kTaken) == 0; }

 private:
  static constexpr std::uint64_t kTaken = 0xffff'0000;
  std::uint64_t word_ = 0;
};

struct alignas(kLine) SendState {  // written by the sending end, under its lock
  std::atomic<std::uint32_t> lock;
  std::atomic<std::uint32_t> growing;  // what the last slot's header says of its length, if it may grow; 0: it may not
  std::atomic<std::uint64_t> tail;     // Spot: where the next slot goes, and the last one
  std::atomic<std::uint32_t> seen_head;     // a position; also by whoever of this end receives a SlotTrailer
  std::atomic<std::uint32_t> tcp_messages;  // sent over TCP while the connection rests there; without the lock
  std::atomic<std::uint64_t> bulk_tail;     // bytes of the bulk area ever used, skipped ones included
  std::atomic<std::uint64_t> seen_bulk_head;
  std::atomic<std::uint32_t> committed;  // bytes of the bulk area that have memory
  std::atomic<std::uint32_t> bulk_size;  // bytes of the bulk area in use: set before the first, changed once
  std::atomic<std::uint32_t> bulk_most;  // what that may grow to; 0: it does not
  std::atomic<std::uint8_t> few_at;      // index of the first of the few, a multiple of kFewSlots: never changed
  std::atomic<std::uint8_t> few_next;    // where tail is not of the few: the one of them that was used longest ago
  std::atomic<std::uint8_t> many_next;   // where it is: of the others
  std::atomic<std::uint32_t> dearer;     // by either end, in both: the ring was found to cost more than TCP
};
static_assert(sizeof(SendState) == kLine);

struct alignas(kLine) ReceiveState {  // written by the receiving end, under its lock
  std::atomic<std::uint32_t> lock;
  std::atomic<std::uint32_t> stage;
  std::atomic<std::uint64_t> head;  // Spot: all before it are given back; and the one behind it
  std::atomic<std::uint64_t> bulk_head;
  std::atomic<std::uint64_t> tcp_left;
  std::atomic<std::uint32_t> drained;    // doorbells taken off TCP
  std::atomic<std::uint64_t> tcp_taken;  // bytes received over TCP so far, in stage kReadTcp
};

// `armed` of a receiver that is about to sleep; 0 nobody does. Any other value names a sleep of its process in which
// the bell of one connection wakes it for all: who has rung for that sleep already need not ring again.
constexpr std::uint64_t kRingForMe = 1;
constexpr int kSleepBits = 42;                                             // below the process number
constexpr std::uint64_t kWithBell = std::uint64_t{1} << (kSleepBits - 1);  // the sleep has an event bell, `bell`

// An eventfd that a sleeper waits for beside its socket, and that costs its waker a third of a byte on TCP. It goes by
// a number that no other has. A waker that does not hold it writes where it takes such descriptors (event_bell.hpp).
struct EventBell {
  std::atomic<std::uint64_t> id;         // written by who is about to sleep, before `armed`; 0: there is none
  std::atomic<std::uint64_t> wanted_at;  // written by who had to ring over TCP; 0: nowhere
};

struct alignas(kLine) DataWait {
  std::atomic<std::uint64_t> armed;     // set by a receiver that is about to sleep, cleared by whoever rings
  std::atomic<std::uint32_t> sleepers;  // receivers asleep
  std::atomic<std::uint32_t> on_edges;  // among them may be such as wake for what is new only, not for what is there
  EventBell bell;                       // of the sleep that `armed` names
};

enum RoomSleep : std::uint32_t {
  kInPoll = 1,   // wants a doorbell on TCP
  kOnFutex = 2,  // sleeps on `armed` itself
  kOnBell = 4,   // waits for `bell`
};

struct alignas(kLine) RoomWait {
  std::atomic<std::uint32_t> armed;  // RoomSleep bits set by senders about to sleep, cleared by whoever wakes them
  std::atomic<std::uint32_t> head_wanted;  // worth waking when both are reached
  std::atomic<std::uint64_t> bulk_wanted;
  EventBell bell;
};

struct alignas(kLine) Tally {  // for those who look on; written by the sending end
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> messages;
  std::atomic<std::uint64_t> wakes;
  std::atomic<std::uint64_t> tcp_used;  // when its process last used TCP, as of the last slot marked so (order.hpp)
  // For the sender itself: the last chunk of the bulk area.
  std::atomic<std::uint32_t> chunk_slot;  // the position of its slot
  std::atomic<std::uint64_t> chunk_from;  // where it begins, among all bytes of the area ever used
  // Where the area was last begun anew, or grew, and up to where that left it out: nobody will ever read between those.
  std::atomic<std::uint64_t> anew_from;
  std::atomic<std::uint64_t> anew_to;
};
static_assert(sizeof(Tally) == kLine);

// The stamp that each slot was last published with, for the sender: to look into the slots would fetch their lines.
struct alignas(kLine) Stamps {
  std::atomic<std::uint16_t> of[kSlots];
};

struct Direction {
  Path path;
  SendState sending;
  ReceiveState receiving;
  DataWait data;
  RoomWait room;
  Tally tally;
  Stamps stamps;
};

enum Request : std::uint32_t {
  kHandBack = 1,    // somebody outside wants this connection on TCP
  kTakeBack = 2,    // of this side: the other must send what this side has not read over TCP
  kEmptying = 4,    // this side is about to take the other's receiving lock, and to empty its ring over TCP
  kTakingHeld = 8,  // this side is about to let go what the other holds back
  kRest = 16,       // of either side: the connection is to rest on TCP, for as long as this is set
};

struct alignas(kLine) End {  // written by its own side, but for `request`
  std::atomic<std::uint32_t> attached;
  std::atomic<std::uint32_t> closed;  // nobody of this side will read or write any more
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint32_t> core;         // on which it last waited, plus one
  std::atomic<std::uint32_t> finished;     // it has shut its sending half down
  std::atomic<std::uint32_t> raw_senders;  // threads that write to TCP just now, all processes of this side
  std::atomic<std::uint32_t> request;
  std::atomic<std::uint32_t> waking_ns;  // how long it takes this end to wake up, lately
  Family holders;                        // the processes that have this end open
};
static_assert(sizeof(End) == kLine);

constexpr std::size_t kMostHeld = 17 * kLine;  // bytes that MSG_MORE and TCP_CORK hold back

struct StreamControl {
  End end[2];  // 0: made the segment
  Direction direction[2];
  std::byte held[2][kMostHeld];  // of each direction, written under the lock of its sending half (hold_back.hpp)
};
static_assert(sizeof(StreamControl) == 64 * kLine);

struct SlotHeader {
  std::uint16_t stamp;   // low bits of the slot's position plus one
  std::uint16_t length;  // up to kInlineBytes: here, with the two flags. With kInBulk: in the bulk area (BulkPlace)
  std::uint32_t sent;    // when: SentMark
};
constexpr std::uint16_t kInBulk = 0x8000;       // there is a SlotTrailer too
constexpr std::uint16_t kWithTrailer = 0x0040;  // at most kBesideTrailer bytes, and a SlotTrailer
constexpr std::uint16_t kAround = 0x0080;       // without trailer: the next slot is the next of the same eight
constexpr std::uint32_t kInlineLimit = 0x0100;  // lengths below are of bytes here
constexpr std::uint32_t kInlineMask = 0x003f;

// In the last bytes of a slot: which one comes next, and how far its sender has read in the other direction. So who
// asks and is answered learns that what it sent was read without looking at the reader's memory.
class SlotTrailer {
 public:
  explicit SlotTrailer(std::uint64_t word) : word_(word) {}
  SlotTrailer(std::uint32_t read, std::uint8_t next) : word_(std::uint64_t{read} << 8 | next) {}
  std::uint64_t word() const { return word_; }
  std::uint32_t read() const { return static_cast<std::uint32_t>(word_ >> 8); }  // a position: head
  std::uint8_t next() const { return static_cast<std::uint8_t>(word_); }

 private:
  std::uint64_t word_;
};

constexpr std::uint8_t next_around(std::uint8_t index) {
  return static_cast<std::uint8_t>((index & ~(kFewSlots - 1)) | ((index + 1) & (kFewSlots - 1)));
}
constexpr std::uint8_t next_straight(std::uint8_t index) {
  return static_cast<std::uint8_t>(index + 1);
}
static_assert(kSlots == 256);  // as many as an index can say

struct BulkPlace {         // behind the header
  std::uint64_t position;  // among all bytes of the area ever used: what bulk_head grows to
  std::uint32_t offset;
  std::uint32_t in_memory;  // not 0: written past the caches, and better read without asking ahead
};
static_assert(sizeof(BulkPlace) <= kBesideTrailer);
static_assert(kMostBulkBytes <= UINT32_MAX);
static_assert(kLargestChunk < kInBulk);

constexpr std::size_t kPage = 4096;
constexpr std::size_t kControlBytes = kPage;
constexpr std::size_t kRingBytes = kSlots * kSlotBytes;
constexpr std::size_t ring_offset(int direction) {
  return kControlBytes + static_cast<std::size_t>(direction) * kRingBytes;
}
constexpr std::size_t kFirstCommitted = ring_offset(2);  // the rest gets memory as it is used

// The bulk areas, each of as many pages as whoever makes the segment chose, are all the rest.
constexpr std::size_t stream_bytes(std::size_t bulk_bytes) {
  return kFirstCommitted + 2 * bulk_bytes;
}
constexpr std::size_t kLeastStreamBytes = stream_bytes(kLeastBulkBytes);
constexpr std::size_t bulk_bytes_of(std::size_t stream_bytes) {
  const std::size_t each = (stream_bytes - kFirstCommitted) / 2 / kPage * kPage;
  return each < kMostBulkBytes ? each : kMostBulkBytes;
}

constexpr std::uint64_t kStreamLayout = layout_hash(
    "stream 15: control{2 end{8 words,7 holders,crowd}, 2 direction{path,send,receive,data,room,tally,stamps}, 2 "
    "held}, "
    "2 x 256 slots of 64, 2 x bulk");

}  // namespace viaduct::sockets
