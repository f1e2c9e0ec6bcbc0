// What MSG_MORE and TCP_CORK hold back: bytes that wait in the shared memory, beside the ring, for more to go with.
// They are let go with the next send that holds nothing back, or as soon as there are too many, when TCP_CORK ends or
// TCP_NODELAY is set, and with the end of the stream.
//
// TCP lets them go after 200 ms too. So does this: when it begins to hold something back, it writes a doorbell to the
// TCP connection that says that more follows, which the kernel keeps for so long. Whoever takes that bell off lets go
// what is held, in place of its sender; so does who finds the end of the stream. No clock is looked at for that, and a
// sender that is killed, or never calls again, keeps nothing back.
//
//   H1  sender: holds, full fence, looks whether the bell was taken off. Receiver: takes it off, full fence, looks at
//       what is held.
//
// All of it is under the lock of the sending half.
#pragma once

#include <cstring>

#include "sockets/connection.hpp"
#include "sockets/few_or_many.hpp"

namespace viaduct::sockets {

// Those of a direction. They count for as long as the slot is the next one before which they are to be sent: whoever is
// killed in the middle of letting them go leaves none behind that were sent already.
class HeldBytes {
 public:
  HeldBytes(const StreamMemory& memory, int direction)
      : direction_(memory.direction(direction)), bytes_(memory.control().held[direction]) {}

  std::size_t count() const {
    const std::uint64_t word = direction_.path.held.load(std::memory_order_relaxed);
    const std::size_t count = word & UINT32_MAX;
    return static_cast<std::uint32_t>(word >> 32) == next_slot() ? std::min(count, kMostHeld) : 0;
  }
  // Their bell was taken off.
  bool are_due() const {
    const std::uint32_t taken = direction_.receiving.drained.load(std::memory_order_relaxed);
    return count() != 0 &&
           static_cast<std::int32_t>(taken - direction_.path.held_bell.load(std::memory_order_relaxed)) >= 0;
  }
  bool have_room_for(std::size_t bytes) const { return bytes <= kMostHeld - count(); }
  void add(Pieces& pieces) {
    std::size_t count = this->count();
    for (; !pieces.done(); pieces.advance(pieces.size())) {
      std::memcpy(bytes_ + count, pieces.data(), pieces.size());
      count += pieces.size();
    }
    set(count);
  }
  // What is held and `pieces`, as one: `put(pieces)` says how many bytes of all it put into the ring, this how many of
  // `pieces`.
  template <class Put>
  std::size_t go_before(Pieces& pieces, Put&& put) {
    const std::size_t held = count();
    if (held == 0) [[likely]] {
      if (direction_.path.held.load(std::memory_order_relaxed) != 0) set(0);
      return put(pieces);
    }
    FewOrMany<iovec, 64> all(pieces.count() + 1);
    std::size_t used = 0;
    all[used++] = {bytes_, held};
    for (Pieces rest = pieces; !rest.done() && used < all.length(); rest.advance(rest.size()))
      all[used++] = {rest.data(), rest.size()};
    Pieces whole(all.get(), used);
    const std::size_t sent = put(whole);
    const std::size_t left = held - std::min(held, sent);
    std::memmove(bytes_, bytes_ + (held - left), left);
    set(left);
    if (sent <= held) return 0;
    pieces.skip(sent - held);
    return sent - held;
  }
  // Into the ring, as many as it has room for.
  void go(Sender& ring) {
    Pieces none(nullptr, 0);
    if (count() != 0) go_before(none, [&ring](Pieces& all) { return ring.write(all); });
  }
  void go_over_tcp(int fd);  // behind what the ring has held

 private:
  std::uint32_t next_slot() const { return Spot(direction_.sending.tail.load(std::memory_order_relaxed)).position(); }
  void set(std::size_t count) { direction_.path.held.store(count == 0 ? 0 : std::uint64_t{next_slot()} << 32 | count); }
  Direction& direction_;
  std::byte* bytes_;
};

// On the ring. All of `pieces`, or nothing. False: not to be held back, or no more.
bool hold_back(Connection& connection, int fd, Sender& ring, Pieces& pieces);

// Something was let go: the kernel keeps the bell no longer, unless it has gone with another. It would come to a peer
// that has read everything and closed, and reset the connection.
void stop_clock(Connection& connection, int fd);

// What this end holds back; wakes the receiver. Takes the lock.
void let_go_held(Connection& connection, int fd);

// Under the receiving lock: of the other end, where they are due, or it has ended.
void take_held(Connection& connection, bool has_ended);

// Before a receiver sleeps, and after bells were taken off.
inline void take_held_if_due(Connection& connection) {
  if (connection.incoming().path.held.load(std::memory_order_relaxed) != 0) [[unlikely]]
    take_held(connection, false);
}

}  // namespace viaduct::sockets
