#include "sockets/rest.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <time.h>

#include <cerrno>

#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/order.hpp"
#include "sockets/path.hpp"
#include "sockets/retired.hpp"
#include "sockets/settings.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/tcp_position.hpp"

namespace viaduct::sockets {

namespace {

// What goes beyond resting: the connection is, or was, asked back, given away, or ended.
bool something_is_in_the_way(const Connection& connection) {
  constexpr std::uint32_t kInTheWay = kHandBack | kTakeBack | kEmptying;
  const End& own = connection.own();
  const End& peer = connection.peer();
  return ((own.request.load() | peer.request.load()) & kInTheWay) != 0 || own.finished.load() != 0 ||
         own.closed.load() != 0 || peer.finished.load() != 0 || peer.closed.load() != 0 || connection.shared.load() ||
         connection.lent.load() || connection.cork.load() != 0;
}

}  // namespace

namespace {

bool may_leave_to_rest(const Connection& connection) {
  const Direction& out = connection.outgoing();
  return out.path.mode.load(std::memory_order_relaxed) == kRing && is_to_rest(connection) &&
         out.path.held.load() == 0 && out.receiving.stage.load() == kReadRing &&
         !Receiver(connection.memory, connection.out()).has_data() && !something_is_in_the_way(connection);
}

bool may_come_back_from_rest(const Connection& connection) {
  const Direction& out = connection.outgoing();
  return sender_rests(connection) && !is_to_rest(connection) && out.receiving.stage.load() == kReadBack &&
         out.path.sent_again.load() == 0 && !something_is_in_the_way(connection);
}

}  // namespace

bool sender_is_to_change_over(const Connection& connection) {
  return may_leave_to_rest(connection) || may_come_back_from_rest(connection);
}

void change_over_for_rest(Connection& connection, int fd) {
  bool comes_back = false;
  {
    const SendingLock lock(connection.memory, connection.out());
    comes_back = may_come_back_from_rest(connection);
    if (comes_back) {
      const int one = 1;  // as the program finds it: what it sets from here on is kept from the kernel
      kernel::libc().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      connection.sets_know_back.store(false);
      connection.outgoing().path.rests.store(0);
      connection.outgoing().path.mode.store(kTcp);
      connection.set_why(Why::accelerated);
    }
  }
  if (comes_back)
    sets_note_attached(connection);  // who sleeps already must be rung for, as when it first came to the ring
  else if (may_leave_to_rest(connection))
    hand_back_to_rest(connection, fd);
}

bool receive_as_before_rest(Connection& connection, int fd) {
  Direction& in = connection.incoming();
  if ((connection.own().request.load() & kTakeBack) != 0 || has_other_holders(connection)) return false;
  connection.leaves_rest.store(true);
  if (connection.raw_receivers.load() != 0) return connection.leaves_rest.store(false), false;
  std::uint64_t taken = 0;
  const bool known = tcp_read(fd, taken);
  if (known) {
    const int one = 1;
    if (connection.low_water.load() != 1) kernel::libc().setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
    in.receiving.tcp_taken.store(taken);
    in.receiving.stage.store(kReadTcp);
  }
  connection.leaves_rest.store(false);
  return known;
}

namespace {

constexpr std::uint32_t chunks_of(std::size_t bytes) {  // as many messages as the ring would count
  const std::size_t chunk = bytes < kLong ? kUsualChunk : kLargestChunk;
  return static_cast<std::uint32_t>((bytes + chunk - 1) / chunk);
}

}  // namespace

std::optional<ssize_t> send_at_rest(Connection& connection, int fd, const iovec* pieces, std::size_t count, int flags) {
  if (!sender_rests(connection) || !is_to_rest(connection) || (flags & MSG_OOB) != 0 ||
      connection.pending_error.load(std::memory_order_relaxed) != 0)
    return std::nullopt;
  const std::uint32_t generation = connection.generation.load();
  Counted raw(connection.raw_senders);  // before 6 above
  if (connection.outgoing().path.mode.load() != kBack) return std::nullopt;
  note_tcp_use();
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = count;
  const ssize_t sent = [&] {
    const Cancellable sleep;
    return kernel::libc().sendmsg(fd, &message, flags);
  }();
  raw.end();
  if (connection.generation.load() != generation) return sent;  // closed; its memory may be gone
  if (sent > 0) {
    connection.outgoing().sending.tcp_messages.fetch_add(chunks_of(static_cast<std::size_t>(sent)),
                                                         std::memory_order_relaxed);
    weigh(connection);
  } else if (sent < 0 && errno == ECONNRESET) {
    connection.reset_told.store(true);
  }
  return sent;
}

std::optional<ssize_t> receive_at_rest(Connection& connection, int fd, const iovec* pieces, std::size_t count,
                                       int flags, Beside* beside) {
  const Direction& in = connection.incoming();
  if (in.receiving.stage.load(std::memory_order_relaxed) != kReadBack || sends_on_ring(connection) ||
      Pieces(pieces, count).done() ||  // what that means differs from call to call
      connection.shared.load(std::memory_order_relaxed) ||
      connection.pending_error.load(std::memory_order_relaxed) != 0)
    return std::nullopt;
  Counted raw(connection.raw_receivers);  // before 5 above
  if (connection.leaves_rest.load() || in.receiving.stage.load() != kReadBack || in.path.mode.load() != kBack ||
      in.path.rests.load() == 0)
    return std::nullopt;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = count;
  if (beside != nullptr) message.msg_control = beside->control, message.msg_controllen = beside->room;
  const std::uint32_t generation = connection.generation.load();
  const ssize_t got = [&] {
    const Cancellable sleep;
    return kernel::libc().recvmsg(fd, &message, flags);
  }();
  const bool closed = connection.generation.load() != generation;
  raw.end();
  if (closed) return got;
  if (beside != nullptr && got >= 0)
    beside->used = message.msg_controllen, beside->flags = message.msg_flags & MSG_CTRUNC;
  if (got < 0 && errno == ECONNRESET) connection.reset_told.store(true);
  if (got > 0) weigh(connection);
  return got;
}

namespace {

void ask_to_rest(Connection& connection) {
  for (int which = 0; which < 2; ++which) {
    Direction& direction = connection.memory.direction(which);
    direction.path.tcp_cost.store(0);
    direction.sending.dearer.store(0);
  }
  for (End& end : connection.memory.control().end) end.request.fetch_or(kRest);
}

void note_dearer(Connection& connection, bool dearer) {
  for (int which = 0; which < 2; ++which) connection.memory.direction(which).sending.dearer.store(dearer ? 1 : 0);
}

void end_rest(Connection& connection) {
  for (End& end : connection.memory.control().end) end.request.fetch_and(~std::uint32_t{kRest});
}

std::uint64_t thread_time_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

Judge::Look look_of(const Connection& connection) {
  Judge::Look look{.thread = thread_mark(), .cpu_ns = thread_time_ns()};
  for (int which = 0; which < 2; ++which) {
    const Direction& direction = connection.memory.direction(which);
    look.messages += direction.tally.messages.load(std::memory_order_relaxed) +
                     direction.sending.tcp_messages.load(std::memory_order_relaxed);
    look.wakes += direction.tally.wakes.load(std::memory_order_relaxed);
    look.doorbells += direction.path.rung.load(std::memory_order_relaxed);
  }
  look.resting = is_to_rest(connection);
  look.dearer = connection.outgoing().sending.dearer.load(std::memory_order_relaxed) != 0;
  look.peer_ring_cost = connection.incoming().path.ring_cost.load(std::memory_order_relaxed);
  look.peer_tcp_cost = connection.incoming().path.tcp_cost.load(std::memory_order_relaxed);
  return look;
}

}  // namespace

void weigh_now(Connection& connection) {
  if (settings().judge == Settings::Judging::off) return;
  const AtMemory here;
  if (!connection.attached() || something_is_in_the_way(connection) || !connection.judge_lock.try_acquire()) return;
  const Judge::Look look = look_of(connection);
  const Judge::Verdict verdict = connection.judge.look(look);
  Path& path = connection.outgoing().path;
  if (const std::uint32_t cost = connection.judge.ring_cost(); cost != path.ring_cost.load(std::memory_order_relaxed))
    path.ring_cost.store(cost);
  if (const std::uint32_t cost = connection.judge.tcp_cost(); cost != 0) path.tcp_cost.store(cost);
  connection.judge_lock.release();
  switch (verdict) {
    case Judge::Verdict::none:
      break;
    case Judge::Verdict::try_tcp:
      ask_to_rest(connection);
      break;
    case Judge::Verdict::stay_on_tcp:
      note_dearer(connection, true);
      break;
    case Judge::Verdict::keep_ring:
      note_dearer(connection, false);
      end_rest(connection);
      break;
    case Judge::Verdict::look_again:
      end_rest(connection);
      break;
  }
}

void weigh_if_always(Connection& connection) {
  if (settings().judge == Settings::Judging::always) weigh_now(connection);
}

Judge new_judge() {
  if (settings().judge != Settings::Judging::always) return Judge();
  return Judge(
      {.window = 4, .windows = 1, .settling = 0, .patience = 0, .pause = 16, .most_pause = 256, .always = true});
}

}  // namespace viaduct::sockets
