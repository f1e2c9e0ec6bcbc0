#include <sched.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/fence.hpp"
#include "base/spin.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/few_or_many.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/hold_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/rendezvous.hpp"
#include "sockets/rest.hpp"
#include "sockets/retired.hpp"
#include "sockets/short_message.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

enum class Got { bytes, nothing, mark, end, fault };  // mark: of urgent data, which a call does not read across

constexpr std::uint64_t kKernelLookNs = 20'000;  // an empty ring asks the kernel for the end of the stream as often

// One attempt, under the receiving lock.
class Reading {
 public:
  Reading(Connection& connection, int fd, Pieces& pieces, int flags, bool will_sleep, Beside* beside)
      : connection_(connection),
        direction_(connection.incoming()),
        state_(direction_.receiving),
        fd_(fd),
        pieces_(pieces),
        flags_(flags),
        will_sleep_(will_sleep),
        beside_(beside) {}

  // `going_on`: behind bytes that this call has received already.
  Got attempt(bool going_on) {
    for (;;) {
      Got got;
      switch (state_.stage.load(std::memory_order_relaxed)) {
        case kReadRing:
          // Not even where our lock overtook that of somebody who empties the ring.
          if (direction_.path.sent_again.load(std::memory_order_relaxed) != 0 &&
              follow_path(connection_, fd_) != kReadRing)
            continue;
          if (from_ring(got)) return got;
          break;
        case kReadTcp:
          if (from_tcp(got)) return got;
          break;
        case kReadRest:
          got = from_kernel(static_cast<std::size_t>(state_.tcp_left.load()));
          if (got == Got::bytes && (flags_ & MSG_PEEK) == 0)
            state_.tcp_left.fetch_sub(bytes_);
          else if (got == Got::bytes && bytes_ == state_.tcp_left.load() && !pieces_.done() &&
                   !ring_comes_over_tcp(connection_))
            bytes_ += Receiver(connection_.memory, connection_.in()).read(pieces_, Receiver::Take::peek);
          follow_path(connection_, fd_);
          return got;
        case kDiscard:
          break;
        default:
          if (direction_.path.mode.load(std::memory_order_acquire) == kTcp &&
              follow_path(connection_, fd_) != kReadBack)
            continue;
          if (going_on && at_urgent_mark()) return Got::mark;
          got = from_kernel(SIZE_MAX);
          if (got == Got::end && follow_path(connection_, fd_) == kReadRing) continue;
          return got;
      }
      const std::uint32_t stage = follow_path(connection_, fd_);
      if (stage == kDiscard && is_shut_and_empty()) return Got::end;
      if (stage == kDiscard || stage == kReadTcp) return Got::nothing;
    }
  }

  std::size_t bytes() const { return bytes_; }

 private:
  // What is in the ring is to come over TCP, but there is nothing, and the program wants no more.
  bool is_shut_and_empty() const {
    return connection_.reads_no_more.load() && direction_.path.mode.load(std::memory_order_acquire) != kBack &&
           !Receiver(connection_.memory, connection_.in()).has_data();
  }

  // The answer of the kernel's socket, which never waits here.
  Got from_kernel(std::size_t most) {
    const ssize_t got = kernel_receive(most);
    if (got > 0) return Got::bytes;
    if (got < 0 && errno == EAGAIN) return Got::nothing;
    if (const int told = said_to_doorbell(); told != 0) return errno = told, Got::fault;
    return got == 0 ? Got::end : Got::fault;
  }

  // That one cannot send any more concerns no receiver.
  int said_to_doorbell() const {
    const int told = connection_.pending_error.exchange(0);
    return told == EPIPE ? 0 : told;
  }

  bool at_urgent_mark() const {
    int at_mark = 0;
    return kernel::libc().ioctl(fd_, SIOCATMARK, &at_mark) == 0 && at_mark != 0;
  }

  // As much as there is, into all pieces: who gets less takes the socket for empty.
  ssize_t kernel_receive(std::size_t most) {
    FewOrMany<iovec, 64> buffers(pieces_.count());
    msghdr message{};
    message.msg_iov = buffers.get();
    for (Pieces rest = pieces_; most != 0 && !rest.done() && message.msg_iovlen < buffers.length();) {
      const std::size_t part = std::min(most, rest.size());
      buffers[message.msg_iovlen++] = {rest.data(), part};
      rest.advance(part);
      most -= part;
    }
    // What comes by the ring has nothing beside it; nor has what lies before that on TCP.
    const bool tells = beside_ != nullptr && state_.stage.load(std::memory_order_relaxed) == kReadBack;
    if (tells) message.msg_control = beside_->control, message.msg_controllen = beside_->room;
    const ssize_t got = kernel::libc().recvmsg(fd_, &message, flags_ | MSG_DONTWAIT);
    if (tells && got >= 0) beside_->used = message.msg_controllen, beside_->flags = message.msg_flags & MSG_CTRUNC;
    if (got > 0) {
      pieces_.skip(static_cast<std::size_t>(got));
      bytes_ += static_cast<std::size_t>(got);
    }
    return got;
  }

  // The sender may leave TCP at any time, doorbells follow what it sent before: only what had arrived while it was
  // still there is surely data. False: it has left.
  bool from_tcp(Got& got) {
    const auto left = [this] { return direction_.path.mode.load(std::memory_order_acquire) != kTcp; };  // A3
    int ready = tcp_unread(fd_);
    char bytes[512];
    const ssize_t end = ready == 0 ? kernel::libc().recv(fd_, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT) : 1;
    const int fault = errno;
    if (ready == 0 && end > 0) ready = static_cast<int>(end);  // behind the mark of urgent data, which is not counted
    if (left()) return false;
    if (ready > 0) {
      got = from_kernel(static_cast<std::size_t>(ready));
      if (got == Got::bytes && (flags_ & MSG_PEEK) == 0) state_.tcp_taken.fetch_add(bytes_);
    } else if (end >= 0)
      got = end == 0 ? Got::end : Got::nothing;
    else
      got = fault == EAGAIN ? Got::nothing : (errno = fault, Got::fault);
    return true;
  }

  bool from_ring(Got& got) {
    Receiver ring(connection_.memory, connection_.in());
    const auto take = (flags_ & MSG_PEEK) != 0    ? Receiver::Take::peek
                      : (flags_ & MSG_TRUNC) != 0 ? Receiver::Take::discard
                                                  : Receiver::Take::consume;
    if ((flags_ & (MSG_PEEK | MSG_TRUNC)) == (MSG_PEEK | MSG_TRUNC)) [[unlikely]]
      bytes_ = std::min(ring.bytes_ready(), pieces_.bytes_left());  // counted only: there may be no buffer
    else
      bytes_ = ring.read(pieces_, take);
    const std::uint32_t rung = direction_.path.rung.load(std::memory_order_relaxed);
    if (take == Receiver::Take::peek && direction_.path.mode.load(std::memory_order_relaxed) == kBack)
      peek_behind_ring();
    if (bytes_ != 0) [[likely]] {
      // A doorbell stays on TCP for as long as there is something to read, so that everybody's poll sees it.
      const bool doorbells = rung != state_.drained.load(std::memory_order_relaxed);
      if (doorbells && !ring.has_data()) settle_doorbells(connection_, fd_, 0);
      fence::full();  // F2
      wake_senders(connection_, fd_, ring.senders_to_wake(false));
      got = Got::bytes;
      return true;
    }
    return nothing_in(ring, got);
  }

  // What the sender, back on TCP, has sent there after what is in the ring. Doorbells lie before it.
  void peek_behind_ring() {
    const auto bells = static_cast<int>(direction_.path.rung.load() - state_.drained.load());
    const int behind = bytes_ != 0 && !pieces_.done() ? tcp_unread(fd_) - bells : 0;
    if (behind <= 0) return;
    if ((flags_ & MSG_TRUNC) != 0) {  // counted only
      if (!at_urgent_mark()) bytes_ += std::min(static_cast<std::size_t>(behind), pieces_.bytes_left() - bytes_);
      return;
    }
    drain_doorbells(connection_, fd_);
    if (direction_.path.rung.load() == state_.drained.load() && !at_urgent_mark()) (void)kernel_receive(SIZE_MAX);
  }

  bool nothing_in(Receiver& ring, Got& got) {
    if (ring.broken()) {
      errno = ECONNRESET;
      got = Got::fault;
      return true;
    }
    fence::full();  // F2: what was given back, then who waits for it
    wake_senders(connection_, fd_, ring.senders_to_wake(true));
    const Path& path = direction_.path;
    if (path.mode.load(std::memory_order_relaxed) == kBack && follow_path(connection_, fd_) != kReadRing) return false;
    settle_doorbells(connection_, fd_, 0);
    take_held_if_due(connection_);
    if (ring.has_data() && !pieces_.done()) return false;  // published meanwhile, perhaps by us
    got = should_ask_kernel() ? ask_kernel(ring) : Got::nothing;
    return got != Got::bytes || bytes_ != 0;  // published meanwhile: look again
  }

  bool should_ask_kernel() {
    if (connection_.look_at_kernel.exchange(false, std::memory_order_relaxed)) return true;
    if (connection_.peer_says_end()) {
      connection_.vain_asks.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    if (will_sleep_) return false;
    const std::uint64_t now = Clock::steady().now_ns();
    if (now - connection_.last_kernel_look.load(std::memory_order_relaxed) < kKernelLookNs) return false;
    connection_.last_kernel_look.store(now, std::memory_order_relaxed);
    return true;
  }

  // End and errors are the kernel's to tell, but all that was published before them is read first.
  Got ask_kernel(Receiver& ring) {
    char byte;
    ssize_t answer = [&] {
      const Cancellable here;  // who never sleeps has no other place
      return kernel::libc().recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    }();
    if (answer < 0 && errno == EAGAIN) return Got::nothing;
    if (answer == 0) take_held(connection_, true);
    if (ring.has_data()) return Got::bytes;
    if (const int told = said_to_doorbell(); told != 0) answer = -1, errno = told;
    if (answer < 0 && errno == ECONNRESET && reset_by_doorbell()) answer = 0;
    if (answer == 0) {
      connection_.look_at_kernel.store(true, std::memory_order_relaxed);  // the next time too: it lasts
      if (peer_lost_bytes(connection_, fd_)) return errno = ECONNRESET, Got::fault;
      connection_.note_end();
      return Got::end;
    }
    if (answer < 0) return Got::fault;
    // A byte that nobody rang: written by somebody who holds the other end and knows nothing of rings.
    if (direction_.path.rung.load() != state_.drained.load() || direction_.path.mode.load() == kBack)
      return Got::nothing;
    return from_kernel(1);
  }

  // It ended in good order, having read everything but a doorbell of ours.
  bool reset_by_doorbell() {
    const Direction& out = connection_.outgoing();
    return out.path.mode.load() == kRing && out.path.rung.load() != out.receiving.drained.load() &&
           !Receiver(connection_.memory, connection_.out()).has_data();
  }

  Connection& connection_;
  Direction& direction_;
  ReceiveState& state_;
  int fd_;
  Pieces& pieces_;
  int flags_;
  bool will_sleep_;
  Beside* beside_;
  std::size_t bytes_ = 0;
};

}  // namespace

namespace {

void note_reader(Connection& connection) {
  if (const std::uint32_t me = thread_mark(); connection.last_reader.load(std::memory_order_relaxed) != me)
    connection.last_reader.store(me, std::memory_order_relaxed);
}

}  // namespace

[[gnu::hot]] std::size_t quick_receive(Connection& connection, int fd, void* bytes, std::size_t size) {
  const AtMemory here;
  if (!connection.attached()) return 0;
  Direction& in = connection.incoming();
  ReceiveState& state = in.receiving;
  if (state.stage.load(std::memory_order_relaxed) != kReadRing) return 0;
  Receiver ring(connection.memory, connection.in());
  const bool seen = ring.has_seen(size, connection.seen);
  if (!seen && connection.tiny_stream.is_likely() && !ring.is_behind()) [[unlikely]]
    connection.tiny_stream.let_fill(ring);
  Receiver::Taken taken;
  {
    const HeldLock held(state.lock);
    const QuickLock<LettingGo::is_none> lock(state.lock, connection.alone());  // F2, the quick way
    if (!lock.is_taken()) [[unlikely]]
      return 0;
    if (state.stage.load(std::memory_order_relaxed) != kReadRing ||
        in.path.mode.load(std::memory_order_relaxed) != kRing ||
        in.path.rung.load(std::memory_order_relaxed) != state.drained.load(std::memory_order_relaxed))
      return 0;
    if (seen)
      taken.bytes = ring.read_seen(bytes, size, connection.seen);
    else
      taken = ring.read_small(bytes, size, connection.seen);
    if (taken.bytes == 0 && size != 0) {
      const iovec piece{bytes, std::min(size, kMostAtOnce)};
      Pieces pieces(&piece, 1);
      taken = ring.read_all(pieces);
      fence::full();  // F2
    }
  }
  wake_senders(connection, fd, ring.senders_to_wake(false));
  if (taken.bytes != 0) {
    note_reader(connection);
    if (!seen) connection.tiny_stream.found(taken.bytes, taken.slots);
    if (const bool two = taken.slots > 1; connection.two_lines.load(std::memory_order_relaxed) != two)
      connection.two_lines.store(two, std::memory_order_relaxed);
    connection.sent_in_a_row.store(0, std::memory_order_relaxed);
    fetch_lines_of_answer(connection);
  }
  return taken.bytes;
}

std::size_t received_from_sleeper(Connection& connection, int fd, std::size_t bytes) {
  const AtMemory here;
  if (connection.attached())
    wake_senders(connection, fd, Receiver(connection.memory, connection.in()).senders_to_wake(false));
  return bytes;
}

namespace {

// What is there is not taken, so nothing would wake a sleeper when more has come: looked at again and again.
ssize_t peek_at_all(Connection& connection, int fd, const iovec* pieces, std::size_t count, int flags, Beside* beside) {
  constexpr int kNapMs = 1;
  const auto wanted = static_cast<ssize_t>(Pieces(pieces, count).bytes_left());
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(connection, fd);
  const Deadline limit = time_limit(connection, fd, SO_RCVTIMEO);
  for (ssize_t before = 0;;) {
    const ssize_t got = stream_receive(connection, fd, pieces, count, flags & ~MSG_WAITALL, beside);
    if (got <= 0 || got >= wanted || !may_wait || limit.expired(Clock::steady().now_ns())) return got;
    pollfd end{fd, POLLRDHUP, 0};
    const int found = kernel::libc().poll(&end, 1, kNapMs);
    if (found < 0 || (found > 0 && got == before)) return got;
    before = got;
  }
}

ssize_t receive_some(Connection& connection, int fd, const iovec* first, std::size_t count, int flags, Beside* beside) {
  const Uncancelled here;
  const AtMemory at_ring;
  if (!connection.attached()) [[unlikely]]
    return errno = closed_meanwhile(), -1;
  if ((flags & (MSG_PEEK | MSG_WAITALL)) == (MSG_PEEK | MSG_WAITALL)) [[unlikely]]
    return peek_at_all(connection, fd, first, count, flags, beside);
  if (const auto got = receive_at_rest(connection, fd, first, count, flags, beside)) return *got;
  ReceiveWait wait(connection, fd);
  // Most waits are for a short message, of which nothing needs to be looked into once it is there.
  const bool plain = count == 1 && (flags & ~MSG_NOSIGNAL) == 0 && !connection.shared.load(std::memory_order_relaxed) &&
                     !connection.nonblocking.load(std::memory_order_relaxed) &&
                     connection.low_water.load(std::memory_order_relaxed) == 1;
  const auto short_message = [&] { return plain ? quick_receive(connection, fd, first->iov_base, first->iov_len) : 0; };
  if (plain && comes_at_once(connection))
    if (const std::size_t got = short_message(); got != 0) return static_cast<ssize_t>(got);
  Pieces pieces(first, count);
  announce_if_ready(connection, fd);
  serve_requests(connection, fd);
  const std::size_t wanted = pieces.bytes_left();
  if (wanted == 0) return 0;
  const bool all = (flags & MSG_WAITALL) != 0 && (flags & MSG_PEEK) == 0;
  const std::size_t least =
      all ? wanted
          : std::min<std::size_t>(wanted,
                                  static_cast<std::size_t>(connection.low_water.load(std::memory_order_relaxed)));
  const int kernel_flags = flags & (MSG_PEEK | MSG_TRUNC);
  std::size_t total = 0;
  bool waited = false;
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(connection, fd);  // now, whatever changes later
  for (;;) {
    if (wait.was_closed()) [[unlikely]]
      return errno = closed_meanwhile(), total != 0 ? static_cast<ssize_t>(total) : -1;
    Got got;
    const ReceiveState& state = connection.incoming().receiving;
    const std::uint32_t head = Spot(state.head.load(std::memory_order_relaxed)).position();
    bool may_go_on = false;  // elsewhere: who gets less than it asked for takes the socket for empty
    {
      const ReceivingLock lock(connection, connection.alone());
      if (lock.is_refused()) [[unlikely]]
        return total != 0 ? static_cast<ssize_t>(total) : interrupted_here(connection, fd, flags);
      const std::uint32_t stage = state.stage.load(std::memory_order_relaxed);
      Reading reading(connection, fd, pieces, kernel_flags, may_wait, beside);
      got = reading.attempt(total != 0);
      total += reading.bytes();
      const std::uint32_t mode = connection.incoming().path.mode.load(std::memory_order_relaxed);
      may_go_on = stage == kReadRing ? mode == kBack : stage != kReadBack && mode != kTcp;
    }
    if (connection.bell_shared.load(std::memory_order_relaxed)) [[unlikely]]
      sets_note_read(connection);
    if (got == Got::end || got == Got::mark) return static_cast<ssize_t>(total);
    if (got == Got::fault && total != 0) connection.pending_error.store(errno);  // told the next time
    if (got == Got::fault && total == 0 && errno == ECONNRESET) connection.reset_told.store(true);
    if (got == Got::fault) return total != 0 ? static_cast<ssize_t>(total) : -1;
    if (got == Got::bytes && may_go_on && !pieces.done() && (flags & MSG_PEEK) == 0) continue;
    if (got == Got::bytes && (total >= least || (flags & MSG_PEEK) != 0)) {
      note_reader(connection);
      if (!waited)
        connection.tiny_stream.found(total, Spot(state.head.load(std::memory_order_relaxed)).position() - head);
      return static_cast<ssize_t>(total);
    }
    if (got == Got::bytes) continue;
    if (total >= least) return static_cast<ssize_t>(total);
    if (!may_wait) {
      connection.tiny_stream.interrupted();
      if (total != 0) return static_cast<ssize_t>(total);
      errno = EAGAIN;
      return -1;
    }
    connection.tiny_stream.interrupted();
    waited = true;
    if (!wait.for_data(total != 0)) return total != 0 ? static_cast<ssize_t>(total) : -1;
    if (total == 0)
      if (const std::size_t got_at_once = short_message(); got_at_once != 0) return static_cast<ssize_t>(got_at_once);
  }
}

}  // namespace

ssize_t stream_receive(Connection& connection, int fd, const iovec* first, std::size_t count, int flags,
                       Beside* beside) {
  act_on_cancellation();
  return keeping_errno([&] { return receive_some(connection, fd, first, count, flags, beside); });
}

int bytes_unread(Connection& connection, int fd) {
  const ReceiveState& state = connection.incoming().receiving;
  const ReceivingLock lock(connection);
  const std::uint32_t stage = follow_path(connection, fd);
  const int on_tcp = tcp_unread(fd);  // now that doorbells may have been taken off
  if (stage == kReadTcp || stage == kReadBack) return on_tcp;
  const auto left = static_cast<std::size_t>(state.tcp_left.load());
  // What is on its way comes before the ring.
  if (stage == kReadRest && on_tcp >= 0 && static_cast<std::size_t>(on_tcp) < left) return on_tcp;
  std::size_t rest = stage == kReadRest ? left : 0;
  // What is on TCP behind the ring counts too: who has read that many does not look again.
  const Path& path = connection.incoming().path;
  const std::uint32_t bells = path.rung.load() - state.drained.load();
  if (stage != kReadRest && path.mode.load() == kBack && on_tcp >= 0 && static_cast<std::uint32_t>(on_tcp) > bells)
    rest = static_cast<std::uint32_t>(on_tcp) - bells;
  return static_cast<int>(
      std::min<std::size_t>(rest + Receiver(connection.memory, connection.in()).bytes_ready(), INT32_MAX));
}

}  // namespace viaduct::sockets
