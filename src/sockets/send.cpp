#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/hold_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/kernel_or_ring.hpp"
#include "sockets/path.hpp"
#include "sockets/rendezvous.hpp"
#include "sockets/rest.hpp"
#include "sockets/retired.hpp"
#include "sockets/short_message.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::size_t kMostPieces = 64;

// The rest of the pieces over TCP, or so many bytes of it, as the kernel does it. `limit`: some of the program's time
// limit is over already, and the kernel would begin anew.
ssize_t send_over_tcp(int fd, Pieces& pieces, int flags, Deadline limit, std::size_t most = SIZE_MAX) {
  note_tcp_use();
  const bool limited = !limit.is_never();
  ssize_t total = 0;
  do {
    iovec some[kMostPieces];
    std::size_t count = 0, size = 0;
    Pieces rest = pieces;
    for (; !rest.done() && count < kMostPieces && size < most; ++count) {
      const std::size_t part = std::min(rest.size(), most - size);
      some[count] = {rest.data(), part};
      rest.advance(part);
      size += part;
    }
    msghdr message{};
    message.msg_iov = some;
    message.msg_iovlen = count;
    const ssize_t sent = [&] {
      const Cancellable sleep;
      const int now = limited ? flags | MSG_DONTWAIT : flags;
      return kernel::libc().sendmsg(fd, &message, rest.done() || size == most ? now : (now & ~MSG_OOB) | MSG_MORE);
    }();
    if (sent < 0 && errno == EAGAIN && limited && poll_until(fd, POLLOUT, limit) > 0) continue;
    if (sent < 0) return total != 0 ? total : -1;
    total += sent;
    most -= static_cast<std::size_t>(sent);
    pieces.skip(static_cast<std::size_t>(sent));
    if (static_cast<std::size_t>(sent) < size && !limited) break;
  } while (!pieces.done() && most != 0);
  return total;
}

// A peer that was killed takes nothing off the ring and says nothing: the kernel is asked, at most once in each tick of
// its coarse clock, which costs a few nanoseconds to read.
bool time_to_look(Connection& connection) {
  if (++connection.sends_since_clock % kSendsPerClock != 0) [[likely]]
    return false;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const auto tick = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
  if (tick == connection.last_look_tick) return false;
  connection.last_look_tick = tick;
  return true;
}

// Nobody will read the ring any more: what is sent now is the kernel's to judge.
bool peer_is_gone(Connection& connection, int fd, bool look) {
  if (connection.peer().closed.load(std::memory_order_relaxed) != 0) return true;
  if (!time_to_look(connection) && !look && !connection.end_seen.load(std::memory_order_relaxed)) [[likely]]
    return false;
  pollfd entry{fd, POLLRDHUP, 0};
  if (kernel::libc().poll(&entry, 1, 0) <= 0) return false;
  if ((entry.revents & (POLLHUP | POLLERR)) != 0) return true;
  // Where the end is our own doing, there may be another behind it.
  return connection.peer().finished.load() == 0 && (!connection.reads_no_more.load() || tcp_peer_ended(fd));
}

// Under the sending lock.
Route choose(Connection& connection, int fd, bool look_closely) {
  const Direction& out = connection.outgoing();
  std::uint32_t mode = out.path.mode.load(std::memory_order_relaxed);
  if (mode != kBack && (connection.peer().request.load(std::memory_order_relaxed) & kTakeBack) != 0) {
    serve_take_back(connection, fd);
    return Route::tcp;
  }
  if ((mode != kTcp) && sender_is_to_change_over(connection)) return Route::other_way;
  if (mode == kTcp && !is_to_rest(connection) && switch_to_ring(connection, fd)) mode = kRing;
  if (mode == kTcp) {
    connection.own().raw_senders.fetch_add(1);
    return Route::tcp_counted;
  }
  if (mode == kBack) return Route::tcp;
  const bool asked = hand_back_is_due(connection);
  if (connection.own().finished.load(std::memory_order_relaxed) != 0 ||
      peer_is_gone(connection, fd, look_closely || asked))
    return Route::tcp;
  return asked ? Route::asked_back : Route::ring;
}

constexpr std::uint32_t kKeepMark = 64;  // sends: so that a slot's header never says again what it said (Stillness)

bool mark_is_old(const Connection& connection) {
  return connection.sends_since_clock % kKeepMark == 0;
}

struct Marked {
  SentMark mark;
  bool in_a_slot_of_its_own;
};

[[gnu::noinline]] Marked mark_anew(Connection& connection, std::uint32_t in_a_row) {
  const std::uint64_t tcp = tcp_used.load(std::memory_order_relaxed);
  const bool after_tcp = tcp != connection.tcp_used_then.load(std::memory_order_relaxed);
  const bool in_between = this_thread.last_sent_on != &connection || after_tcp;
  if (!in_between && in_a_row != 0 && !mark_is_old(connection))
    return {SentMark(connection.sent_mark.load(std::memory_order_relaxed)), false};
  const SentMark mark = SentMark::of(moment_of_send(), after_tcp);
  connection.sent_mark.store(mark.without_tcp().word(), std::memory_order_relaxed);
  if (after_tcp) {
    connection.tcp_used_then.store(tcp, std::memory_order_relaxed);
    connection.outgoing().tally.tcp_used.store(tcp, std::memory_order_relaxed);
  }
  return {mark, in_between};
}

// Under the sending lock, before the ring is written to: marks what follows with its place among all that is sent. One
// connection alone keeps its mark for a while, where no other thread can use another meanwhile. `in_a_row`: small
// messages since this end last received.
[[gnu::always_inline]] inline void put_in_order(Connection& connection, Sender& ring, std::uint32_t in_a_row) {
  if (this_thread.last_sent_on == &connection && __libc_single_threaded != 0 && !mark_is_old(connection)) [[likely]]
    return ring.sent_at(SentMark(connection.sent_mark.load(std::memory_order_relaxed)));
  const Marked marked = mark_anew(connection, in_a_row);
  if (marked.in_a_slot_of_its_own) ring.begin_slot();
  ring.sent_at(marked.mark);
}

// A server answers its clients in turn, and each answer waits for the client's processor to let go of a line. So the
// line of the one that is likely to be next is asked for now.
[[gnu::always_inline]] inline void fetch_line_of_follower(Connection& connection) {
  Connection* const last = this_thread.last_sent_on;
  if (last == &connection) return;
  this_thread.last_sent_on = &connection;
  if (last != nullptr) last->follower.store(&connection, std::memory_order_relaxed);
  if (const Connection* const next = connection.follower.load(std::memory_order_relaxed); next != nullptr)
    prefetch_to_write(next->next_line.load(std::memory_order_relaxed));
}

}  // namespace

void mark_order(Connection& connection, Sender& ring) {
  put_in_order(connection, ring, 0);
  this_thread.last_sent_on = &connection;
}

[[gnu::cold]] void unmark_order(Connection& connection, SentMark mark) {
  if (!mark.after_tcp()) return;
  connection.tcp_used_then.store(0, std::memory_order_relaxed);
  if (this_thread.last_sent_on == &connection) this_thread.last_sent_on = nullptr;
}

namespace {

// What SendingLock does, where every instruction counts. False: not to be used.
[[gnu::cold, gnu::noinline]] bool put_right(const StreamLock& lock, const Connection& connection) {
  if (lock.was_left_behind()) Sender(connection.memory, connection.out()).recover();
  return !lock.is_refused();
}

}  // namespace

[[gnu::hot]] bool quick_send(Connection& connection, int fd, const void* bytes, std::size_t size) {
  const AtMemory here;
  if (size - 1 >= kUsualChunk || !connection.attached()) return false;
  Direction& out = connection.outgoing();
  {
    const HeldLock held(out.sending.lock);
    const QuickLock<LettingGo::is_a_fence> lock(out.sending.lock, connection.alone());
    if (!lock.is_taken()) [[unlikely]]
      return false;
    if (connection.sending_is_odd() || !connection.sends_plainly()) return false;
    if (time_to_look(connection)) {
      connection.last_look_tick = 0;  // the long way looks
      connection.sends_since_clock -= 1;
      return false;
    }
    const std::uint32_t before = connection.sent_in_a_row.load(std::memory_order_relaxed);
    Sender ring(connection.memory, connection.out());
    ring.learn(connection.reader);
    put_in_order(connection, ring, before);
    const bool small = size <= Sender::kSmallMessage;
    const bool more_follows = before >= kSendsInARow;
    if (!(small ? ring.write_small(bytes, size, more_follows) : ring.write_chunk(bytes, size, more_follows)))
      return unmark_order(connection, ring.mark()), false;
    connection.sent_in_a_row.store(before + 1, std::memory_order_relaxed);
    connection.next_bulk.store(small ? nullptr : ring.next_bulk(), std::memory_order_relaxed);
    connection.next_line.store(ring.next_line(), std::memory_order_relaxed);
    fetch_line_of_follower(connection);
  }  // F1
  connection.tiny_stream.interrupted();
  if (out.data.armed.load(std::memory_order_relaxed) != 0) [[unlikely]]
    wake_receiver(connection, fd);
  return true;
}

std::size_t sent_to_sleeper(Connection& connection, int fd, std::size_t size) {
  const AtMemory here;
  if (connection.attached()) wake_receiver(connection, fd);
  return size;
}

namespace {

ssize_t counted_over_tcp(Connection& connection, int fd, Pieces& pieces, int flags, std::size_t most) {
  const Counted raw(connection.own().raw_senders, Counted::Already{});
  return send_over_tcp(fd, pieces, flags, Deadline::never(), most);
}

}  // namespace

bool tells_reset(Connection& connection) {
  if (connection.pending_error.load(std::memory_order_relaxed) != ECONNRESET) [[likely]]
    return false;
  connection.pending_error.store(0);
  connection.reset_told.store(true);
  errno = ECONNRESET;
  return true;
}

bool goes_on_when_full(Connection& connection, int fd, SendWait& wait, bool may_wait, bool has_some) {
  if (may_wait) return wait.for_room(has_some);
  connection.blocked.store(true, std::memory_order_relaxed);
  sets_note_blocked(connection);
  if (!expect_room(connection) && !has_some) return true;
  relieve_stalled(connection, fd);  // who tries again and again asks nobody when to
  if (!sends_on_ring(connection) && !has_some) return true;
  errno = EAGAIN;
  return false;
}

Route next_route(Connection& connection, int fd) {
  Route route;
  do {
    serve_requests(connection, fd);
    {
      const SendingLock lock(connection.memory, connection.out());
      route = choose(connection, fd, true);
    }
    if (route == Route::other_way) change_over_for_rest(connection, fd);
  } while (route == Route::asked_back || route == Route::other_way);
  if (route != Route::ring) note_tcp_use();
  if (route == Route::tcp) {
    (void)find_reset(connection, fd);
    if (!sender_rests(connection)) hand_back_sending(connection, fd, Why::handed_back);
  }
  return route;
}

namespace {

ssize_t send_some(Connection& connection, int fd, const iovec* first, std::size_t count, int flags) {
  const Uncancelled here;
  const AtMemory at_ring;
  if (!connection.attached()) [[unlikely]]
    return errno = closed_meanwhile(), -1;
  if (const auto sent = send_at_rest(connection, fd, first, count, flags)) return *sent;
  Pieces pieces(first, count);
  Direction& out = connection.outgoing();
  if ((flags & MSG_OOB) != 0) [[unlikely]]
    hand_back_sending(connection, fd, Why::handed_back);
  if (tells_reset(connection)) [[unlikely]]
    return -1;
  std::size_t total = 0;
  const auto result = [&total](bool failed) { return total == 0 && failed ? -1 : static_cast<ssize_t>(total); };
  SendWait wait(connection, fd);
  std::optional<bool> may_wait;  // as it was when this was first asked, whatever changes later
  const auto waits = [&] { return (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(connection, fd); };
  const std::uint32_t generation = connection.generation.load();
  for (bool look_closely = false;; look_closely = true) {
    if (connection.generation.load() != generation) [[unlikely]]
      return errno = closed_meanwhile(), result(true);
    Route route;
    std::size_t written = 0;
    bool is_held = false, held_before = false;
    {
      const bool alone = connection.alone();
      const StreamLock lock(out.sending.lock, alone);
      if (alone && (connection.peer().request.load(std::memory_order_relaxed) & kTakingHeld) != 0) [[unlikely]]
        continue;  // in a way that keeps the peer out
      if (!lock.is_usual() && !put_right(lock, connection)) [[unlikely]]
        return total != 0 ? result(false) : interrupted_here(connection, fd, flags);
      route = choose(connection, fd, look_closely);
      if (route == Route::ring) {
        Sender ring(connection.memory, connection.out());
        ring.learn(connection.reader);
        const bool holds_back = (flags & MSG_MORE) != 0 || connection.cork.load(std::memory_order_relaxed) != 0;
        const std::size_t asked = pieces.bytes_left();
        held_before = out.path.held.load(std::memory_order_relaxed) != 0;
        is_held = holds_back && hold_back(connection, fd, ring, pieces);
        if (is_held) [[unlikely]] {
          written = asked;
        } else if (asked != 0) {
          ring.part_of(total + asked);
          mark_order(connection, ring);
          written = HeldBytes(connection.memory, connection.out()).go_before(pieces, [&](Pieces& all) {
            std::size_t put = ring.write(all);
            if (!all.done() && !may_wait) may_wait = waits();
            if (!all.done() && !*may_wait) put += ring.write_rest(all);  // at once: nobody's bytes in between
            return put;
          });
          if (written == 0) unmark_order(connection, ring.mark());
        }
        connection.next_bulk.store(written > Sender::kSmallMessage ? ring.next_bulk() : nullptr,
                                   std::memory_order_relaxed);
      }
    }
    if (route == Route::asked_back) [[unlikely]] {
      hand_back_while_read(connection, fd);
      continue;
    }
    if (route == Route::other_way) [[unlikely]] {
      change_over_for_rest(connection, fd);
      continue;
    }
    if (route != Route::ring) [[unlikely]] {
      const bool reset = route == Route::tcp && peer_lost_bytes(connection, fd);
      if (route == Route::tcp && !sender_rests(connection)) hand_back_sending(connection, fd, Why::handed_back);
      const int quietly = total != 0 ? flags | MSG_NOSIGNAL : flags;
      // A peer that does not use the ring yet will soon: no more than what was sent so far is sent before the next
      // look. But a time limit is for all of the call.
      const std::size_t part =
          route == Route::tcp_counted && pieces.bytes_left() > kFirstPart && cuts_are_unseen(connection, fd)
              ? std::max(kFirstPart, total)
              : SIZE_MAX;
      const ssize_t sent = reset                         ? (errno = ECONNRESET, -1)
                           : route == Route::tcp_counted ? counted_over_tcp(connection, fd, pieces, quietly, part)
                                                         : send_over_tcp(fd, pieces, quietly, wait.limit());
      if (sent > 0) total += static_cast<std::size_t>(sent);
      if (sent > 0 && static_cast<std::size_t>(sent) == part && !pieces.done()) continue;
      // What went wrong behind bytes that were sent is told the next time.
      if (sent < 0 && total != 0 && errno == ECONNRESET) connection.pending_error.store(errno);
      if (sent < 0 && total == 0 && errno == ECONNRESET) connection.reset_told.store(true);
      return result(sent < 0);
    }
    total += written;  // F1: letting the lock go was the fence
    connection.tiny_stream.interrupted();
    const bool is_quiet = is_held && out.path.held.load(std::memory_order_relaxed) != 0;
    if (!is_quiet && out.data.armed.load(std::memory_order_relaxed) != 0) [[unlikely]]
      wake_receiver(connection, fd);
    weigh_if_always(connection);
    if (held_before && out.path.held.load(std::memory_order_relaxed) == 0) [[unlikely]]
      stop_clock(connection, fd);
    if (pieces.done()) [[likely]]
      return static_cast<ssize_t>(total);
    if (!may_wait) may_wait = waits();
    if (!goes_on_when_full(connection, fd, wait, *may_wait, total != 0)) return result(true);
  }
}

}  // namespace

ssize_t stream_send(Connection& connection, int fd, const iovec* first, std::size_t count, int flags) {
  act_on_cancellation();
  return keeping_errno([&] { return send_some(connection, fd, first, count, flags); });
}

// ---- what others ask

bool peer_rings_for_room(const Connection& connection) {
  return connection.peer().finished.load(std::memory_order_relaxed) == 0 &&
         connection.incoming().path.mode.load(std::memory_order_relaxed) != kBack;
}

bool sends_on_ring(const Connection& connection) {
  return connection.outgoing().path.mode.load(std::memory_order_acquire) == kRing;
}

bool receives_on_ring(const Connection& connection) {
  const std::uint32_t stage = connection.incoming().receiving.stage.load(std::memory_order_relaxed);
  return stage == kReadRing;
}

bool receives_over_tcp(const Connection& connection) {
  return !receives_on_ring(connection) || connection.incoming().path.mode.load(std::memory_order_relaxed) == kBack;
}

namespace {

// SO_RCVLOWAT, or as much as there can be: the ring is full, or what follows comes over TCP.
bool reaches_low_water(const Connection& connection, Receiver& ring, int least) {
  if (ring.broken() || ring.bytes_ready() >= static_cast<std::size_t>(least)) return true;
  const Sender sender(connection.memory, connection.in());
  return ring.has_data() && (connection.incoming().path.mode.load(std::memory_order_relaxed) == kBack ||
                             !sender.has_room_now(Sender::Room::some, Sender::Growth::counted));
}

}  // namespace

bool ring_readable(Connection& connection, int fd) {
  if (!receives_on_ring(connection)) {
    // The sender may have gone over to the ring while nobody read.
    const Direction& in = connection.incoming();
    if (in.path.mode.load(std::memory_order_acquire) == kTcp) return false;
    if (in.path.rests.load() != 0 && in.receiving.stage.load() == kReadBack) return false;
    const ReceivingLock lock(connection);
    if (follow_path(connection, fd) != kReadRing) return false;
  }
  Receiver ring(connection.memory, connection.in());
  const int least = connection.low_water.load(std::memory_order_relaxed);
  if (least > 1 && !connection.peer_says_end()) [[unlikely]]
    return reaches_low_water(connection, ring, least);
  return ring.has_data();
}

bool ring_writable(Connection& connection, Sender::Growth growth) {
  if (!sends_on_ring(connection)) return true;
  if (connection.peer().closed.load(std::memory_order_relaxed) != 0) return true;
  const Sender ring(connection.memory, connection.out());
  return is_asked_back(connection) ? ring.has_room_now(Sender::Room::nearly_all)
                                   : ring.has_room_now(Sender::Room::a_third, growth);
}

bool readable_after_all(Connection& connection, int fd, bool kernel_readable, std::uint32_t own_sleeps) {
  ReceiveState& state = connection.incoming().receiving;
  const ReceivingLock lock(connection);
  const auto kernel_has = [fd](int events) {
    pollfd entry{fd, static_cast<short>(events), 0};
    return kernel::libc().poll(&entry, 1, 0) > 0;
  };
  const std::uint32_t drained = state.drained.load();
  const std::uint32_t stage = follow_path(connection, fd);
  const int least = connection.low_water.load(std::memory_order_relaxed);
  if (stage == kDiscard) return false;
  if (stage != kReadRing)
    return kernel_readable && ((state.drained.load() == drained && least == 1) || kernel_has(POLLIN | POLLRDHUP));
  Receiver ring(connection.memory, connection.in());
  const auto enough = [&] { return least > 1 ? reaches_low_water(connection, ring, least) : ring.has_data(); };
  if (enough()) return true;
  const bool settled = settle_doorbells(connection, fd, own_sleeps);
  if (enough() || (connection.peer_says_end() && (kernel_readable || least == 1))) return true;
  if (!kernel_readable || !settled) return false;
  // Only the doorbell, or bytes that are too few; neither the end of the stream nor an error.
  if (!kernel_has(least == 1 ? POLLIN | POLLRDHUP : POLLRDHUP)) return false;
  connection.look_at_kernel.store(true, std::memory_order_relaxed);
  return true;
}

bool is_nonblocking(Connection& connection, int fd) {
  if (!connection.shared.load(std::memory_order_relaxed)) [[likely]]
    return connection.nonblocking.load(std::memory_order_relaxed);
  // Alone again, as servers are in the child that serves a connection: until this one thread forks it stays so.
  const bool alone = __libc_single_threaded != 0 && !in_borrowed_memory() && connection.attached() &&
                     sends_on_ring(connection) && !connection.lent.load(std::memory_order_relaxed) &&
                     names_nobody_else(connection.own().holders, own_pid());
  const int flags = kernel::libc().fcntl(fd, F_GETFL);
  const bool nonblocking = flags >= 0 && (flags & O_NONBLOCK) != 0;
  if (alone && flags >= 0) {
    connection.nonblocking.store(nonblocking, std::memory_order_relaxed);
    connection.shared.store(false, std::memory_order_relaxed);
    connection.waits_for_ever.store(false, std::memory_order_relaxed);
  }
  return nonblocking;
}

ssize_t interrupted_here(Connection& connection, int fd, int flags) {
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(connection, fd);
  errno = may_wait ? EINTR : EAGAIN;
  return -1;
}

}  // namespace viaduct::sockets
