// The usual call in as few instructions as it takes: a short message on a connection that is on the ring, that this
// process alone holds, with its one thread, and that it sent on last. A program that asks and waits for the answer, or
// answers what it was asked, does nothing else. Whatever is out of the ordinary is left to those who know more:
// quick_send() and quick_receive(), and the long way behind them.
//
// Inline, and with nothing that needs a register saved: what these save is most of what a call costs.
#pragma once

#include <sys/types.h>

#include "sockets/connection.hpp"
#include "sockets/order.hpp"
#include "sockets/retired.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

// Each so many sends are quick_send()'s: it looks at the clock, and marks what it sends anew.
constexpr std::uint32_t kSendsPerClock = 8;
constexpr std::uint32_t kSendsInARow = 4;  // so many are followed by more, probably

// A short question, and the last answer was long: its first lines are on their way until it is written.
[[gnu::always_inline]] inline void fetch_lines_of_answer(const Connection& connection) {
  constexpr std::size_t kAnswerLines = 4;
  if (const std::byte* const line = connection.next_bulk.load(std::memory_order_relaxed); line != nullptr)
    for (std::size_t i = 0; i < kAnswerLines; ++i) prefetch_to_write(line + i * kLine);
}

// What is left to do where somebody sleeps; returns `size` and `bytes`.
[[gnu::cold]] std::size_t sent_to_sleeper(Connection& connection, int fd, std::size_t size);
[[gnu::cold]] std::size_t received_from_sleeper(Connection& connection, int fd, std::size_t bytes);

// 0: to be sent otherwise.
[[gnu::always_inline]] inline std::size_t send_short(Connection& connection, int fd, const void* bytes,
                                                     std::size_t size) {
  if (size - 1 >= Sender::kSmallMessage) return 0;
  const AtMemory here;
  const std::uint32_t mark = this_thread.mark;
  const std::uint32_t sends = connection.sends_since_clock + 1;
  if (!connection.attached() || this_thread.last_sent_on != &connection || sends % kSendsPerClock == 0 || mark == 0 ||
      !connection.alone())
    return 0;
  Direction& out = connection.outgoing();
  {
    const HeldLock held(out.sending.lock);
    const QuickLock<LettingGo::is_a_fence> lock(out.sending.lock, true, mark);
    if (!lock.is_taken() || connection.sending_is_odd() || !connection.sends_plainly()) return 0;
    Sender ring(connection.memory, out, connection.incoming(), connection.out_slots);
    ring.sent_at(SentMark(connection.sent_mark.load(std::memory_order_relaxed)));
    const std::uint32_t before = connection.sent_in_a_row.load(std::memory_order_relaxed);
    if (!ring.write_small(bytes, size, before >= kSendsInARow)) return 0;
    connection.sent_in_a_row.store(before + 1, std::memory_order_relaxed);
    connection.sends_since_clock = sends;
  }  // F1
  connection.tiny_stream.interrupted();
  if (out.data.armed.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return sent_to_sleeper(connection, fd, size);
  return size;
}

// A receiver of whom nothing but bytes is wanted.
[[gnu::always_inline]] inline bool may_receive_short(const Connection& connection) {
  const std::uint32_t mark = this_thread.mark;
  return connection.attached() && connection.low_water.load(std::memory_order_relaxed) == 1 && connection.alone() &&
         mark != 0 && connection.last_reader.load(std::memory_order_relaxed) == mark;
}

[[gnu::always_inline]] inline std::size_t take_short(Connection& connection, int fd, void* bytes, std::size_t size) {
  Direction& in = connection.incoming();
  ReceiveState& state = in.receiving;
  Receiver::Taken taken;
  {
    const HeldLock held(state.lock);
    const QuickLock<LettingGo::is_none> lock(state.lock, true, this_thread.mark);  // F2, the quick way
    if (!lock.is_taken() || connection.peer().request.load(std::memory_order_relaxed) != 0 ||
        state.stage.load(std::memory_order_relaxed) != kReadRing ||
        in.path.mode.load(std::memory_order_relaxed) != kRing ||
        in.path.rung.load(std::memory_order_relaxed) != state.drained.load(std::memory_order_relaxed))
      return 0;
    Receiver ring(in, connection.outgoing(), connection.in_slots);
    const std::uint32_t in_a_row = connection.tiny_stream.in_a_row();
    if (in_a_row != 0) {
      if (const std::size_t seen = ring.read_seen(bytes, size, connection.seen); seen != 0) return seen;
      if (connection.tiny_stream.is_likely() && !ring.is_behind()) return 0;
    }
    taken = ring.read_small(bytes, size, connection.seen);
    if (taken.bytes == 0) return 0;
    connection.tiny_stream.went_on(in_a_row);
  }
  connection.two_lines.store(taken.slots > 1, std::memory_order_relaxed);
  connection.sent_in_a_row.store(0, std::memory_order_relaxed);
  if (in.room.armed.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return received_from_sleeper(connection, fd, taken.bytes);
  fetch_lines_of_answer(connection);
  return taken.bytes;
}

// Into `bytes`, which has room for so many. 0: to be received otherwise.
[[gnu::always_inline]] inline std::size_t receive_short(Connection& connection, int fd, void* bytes, std::size_t size) {
  const AtMemory here;
  return may_receive_short(connection) ? take_short(connection, fd, bytes, size) : 0;
}

// Whether something comes into the ring at once, where the last answer did: a few looks, before anything else is done.
[[gnu::always_inline]] inline bool comes_at_once(Connection& connection) {
  const Direction& in = connection.incoming();
  if (in.receiving.stage.load(std::memory_order_relaxed) != kReadRing ||
      connection.own().core.load(std::memory_order_relaxed) == connection.peer().core.load(std::memory_order_relaxed))
    return false;
  connection.tiny_stream.interrupted();
  const Stillness before(in.receiving, connection.in_slots);
  const bool two_lines = connection.two_lines.load(std::memory_order_relaxed);
  const auto ready = [&]() __attribute__((always_inline)) {
    if (two_lines) before.prefetch_behind();
    return !before.holds();
  };
  return before.has_data() || connection.receive_spinner.glance(ready);
}

// The same, and receives it: by a program that waits. 0: to be received otherwise.
[[gnu::always_inline]] inline std::size_t receive_short_soon(Connection& connection, int fd, void* bytes,
                                                             std::size_t size) {
  const AtMemory here;
  if (!may_receive_short(connection) || connection.nonblocking.load(std::memory_order_relaxed) ||
      connection.tiny_stream.is_likely() || !comes_at_once(connection) || !connection.attached() || !connection.alone())
    return 0;
  if (const std::size_t got = take_short(connection, fd, bytes, size); got != 0) return got;
  return quick_receive(connection, fd, bytes, size);  // it is not that short
}

}  // namespace viaduct::sockets
