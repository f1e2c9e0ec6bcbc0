#include "sockets/table.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/event_bell.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/hold_back.hpp"
#include "sockets/inherit.hpp"
#include "sockets/internal_fd.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/rendezvous.hpp"
#include "sockets/rest.hpp"
#include "sockets/retired.hpp"
#include "sockets/slab.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

constinit FdMap<Connection> connections;

namespace {

constexpr int kHandBackMs = 200;  // for bytes that the peer holds; it may be busy elsewhere

Slab<Connection> slab;
std::atomic<pid_t> pid_of_tables{0};

void start(Connection& connection, bool nonblocking) {
  connection.set_why(settings().enabled ? Why::young : Why::switched_off);
  connection.nonblocking.store(nonblocking);
  connection.shared.store(false);
  connection.waits_for_ever.store(false);
  connection.no_time_to_receive.store(false);
  connection.no_time_to_send.store(false);
  connection.lent.store(false);
  connection.opened.store(Opened::unknown);
  connection.look_at_kernel.store(false);
  connection.blocked.store(false);
  connection.reads_no_more.store(false);
  connection.sends_no_more.store(false);
  connection.reset_told.store(false);
  connection.end_seen.store(false);
  connection.pending_error.store(0);
  connection.vain_asks.store(0);
  connection.seen.forget();
  connection.last_reader.store(0);
  connection.bell_shared.store(false);
  connection.named.store(false);
  connection.full_since_ns.store(0);
  connection.hand_back_from_ns.store(0);
  connection.hand_back_pause_ns.store(0);
  connection.tiny_stream.forget();
  connection.reader = FarReader{};
  connection.next_line.store(nullptr);
  connection.next_bulk.store(nullptr);
  connection.sent_in_a_row.store(0);
  connection.low_water.store(1);
  connection.tells_unread.store(false);
  connection.sleepers_here.store(0);
  connection.same_user.store(!settings().any_user);
  connection.bells_asked_for.store(0);
  connection.has_left = false;
  connection.sets_know_back.store(false);
  connection.operations.store(0);
  connection.next_attempt = 0;
  connection.events_to_weigh.store(0);
  connection.leaves_rest.store(false);
  connection.judge = new_judge();
  connection.place.known = false;
  connection.family = nullptr;
  connection.memory = {};
  connection.set_life(settings().enabled ? Life::young : Life::plain);
}

// Whether this end has bytes that nobody has read. A doorbell that is left on TCP would reset the connection like one.
bool has_unread(Connection& connection, int fd) {
  Direction& in = connection.incoming();
  const ReceivingLock lock(connection);
  (void)follow_path(connection, fd);  // nobody may have looked since the peer went over
  const bool unread = receives_on_ring(connection) && Receiver(connection.memory, connection.in()).has_data();
  if (in.receiving.stage.load() >= kReadRing) drain_doorbells(connection, fd);
  return unread;
}

void say_closed(Connection& connection) {
  RoomWait& room = connection.incoming().room;
  connection.own().closed.store(1);
  if ((room.armed.load() & kOnFutex) != 0) wake_room_sleepers(room);
}

// As close() of a TCP socket does it: unread bytes reset the connection, otherwise the peer reads on and finds the end.
// Other processes that hold this end may sleep on its doorbells: those are left alone.
void leave_stream(Connection& connection, int fd) {
  Family& holders = connection.own().holders;
  leave_family(holders, own_pid());
  if (!sole_member(holders, own_pid())) return;
  connection.incoming().data.armed.store(0);
  serve_requests(connection, fd);
  let_go_held(connection, fd);
  if (has_unread(connection, fd)) {
    const linger reset{1, 0};
    kernel::libc().setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  connection.outgoing().room.armed.store(0);  // a bell for room would reset the connection
  say_closed(connection);
}

bool close_memory_descriptor(Connection& connection) {
  const int fd = std::atomic_ref(connection.memory.fd).exchange(-1);
  if (fd < 0) return false;
  close_internal(fd);
  return true;
}

// Against a thread that starts a program, and goes through all connections (Departure).
void end_under_lock(Connection& connection, int fd) {
  const BriefLock::Hold hold(connection.upgrade_lock);
  const bool attached = connection.attached();
  learn_from_end(connection);
  withdraw(connection);
  if (connection.family != nullptr) leave_family(*connection.family, own_pid());
  if (attached) leave_stream(connection, fd);
  registry_remove(connection);
  connection.generation.fetch_add(1);
  connection.life.store(Life::plain, std::memory_order_release);
  if (attached) {
    close_memory_descriptor(connection);
    retire_memory(connection.memory.base - kSegmentPayloadOffset, kSegmentPayloadOffset + connection.memory_bytes);
    forget_bells_of_the_dead();
  }
}

void end(Connection& connection, int fd) {
  const int kept = errno;
  end_under_lock(connection, fd);
  if (nobody_is_inside())
    slab.let_go(&connection);
  else
    slab.let_rest(&connection);
  errno = kept;
}

}  // namespace

pid_t own_pid() {
  pid_t pid = pid_of_tables.load(std::memory_order_relaxed);
  if (pid == 0) pid_of_tables.store(pid = ::getpid());
  return pid;
}

bool has_other_holders(const Connection& connection) {
  return connection.shared.load() && !sole_member(connection.own().holders, own_pid());
}

bool in_borrowed_memory() {
  return ::getpid() != own_pid();
}

void adopt(int fd, bool nonblocking) {
  if (static_cast<unsigned>(fd) >= static_cast<unsigned>(FdMap<Connection>::kMost) || in_borrowed_memory()) return;
  let_go(fd, -1);  // closed behind our back
  Connection* const connection = slab.make();
  if (connection == nullptr) return;
  start(*connection, nonblocking);
  connection->descriptors.store(1);
  if (is_high_number(fd)) [[unlikely]]
    (void)give_descriptors_back(Want::some_soon);
  sweep_retired();
  if (!connections.put(fd, connection)) return slab.let_go(connection);
  registry_add(*connection, fd);
  if (is_standard(fd)) make_plain(*connection, fd, Why::stdio);
}

void adopt_duplicate(Connection& connection, int fd) {
  connection.descriptors.fetch_add(1);
  if (connections.put(fd, &connection)) {
    if (is_standard(fd)) make_plain(connection, fd, Why::stdio);
    return;
  }
  connection.descriptors.fetch_sub(1);
  make_plain(connection, fd, Why::no_memory);  // that number is used without us
}

void number_lost(Connection& connection, int fd, int socket) {
  const Uncancelled here;
  forget_in_sets(connection, fd, connection.descriptors.load() != 1 ? any_number_of(connection) : -1);
  if (connection.descriptors.fetch_sub(1) == 1) {
    if (connection.life.load() != Life::plain) note_tcp_use();
    end(connection, socket);
  } else
    registry_descriptor_closed(connection, fd);
}

Connection* give_number(int fd, Connection& connection) {
  connection.descriptors.fetch_add(1);
  if (Connection* const former = connections.replace(fd, &connection)) return former;
  connection.descriptors.fetch_sub(1);
  adopt_duplicate(connection, fd);
  return nullptr;
}

int any_number_of(const Connection& connection) {
  int found = -1;
  connections.each([&](int fd, const Connection* one) { found = one == &connection ? fd : found; });
  return found;
}

void let_go(int fd, int socket) {
  if (Connection* const connection = connections.take(fd)) number_lost(*connection, fd, socket);
}

namespace {

// The other end of the connection, where this process holds it too.
Connection* local_peer(const Connection& connection, int& peer_fd) {
  if (!is_member(connection.peer().holders, own_pid())) return nullptr;
  Connection* found = nullptr;
  connections.each([&](int fd, Connection* other) {
    if (other->attached() && other->side != connection.side && other->memory_inode == connection.memory_inode)
      found = other, peer_fd = fd;
  });
  return found;
}

}  // namespace

void make_plain(Connection& connection, int fd, Why why) {
  const Uncancelled here;
  const BriefLock::Hold hold(connection.upgrade_lock);
  if (connection.attached()) {
    int peer_fd = -1;
    Connection* const peer = local_peer(connection, peer_fd);
    // Which may go the same way next, and find nobody any more who could send it again.
    if (peer != nullptr) (void)ask_for_unread_over_tcp(*peer, peer_fd);
    const bool pending = begin_hand_back(connection, fd, why);
    if (pending && peer != nullptr) serve_requests(*peer, peer_fd);
    return finish_hand_back(connection, fd, pending ? kHandBackMs : 0);
  }
  withdraw(connection);
  connection.set_why(why);
  connection.set_life(Life::plain);
}

namespace {

// Without its memory a program that goes on with it would not get what is unread; a peer that has ended does not send
// it again.
bool may_be_passed_on_unread(const Connection& connection) {
  return connection.peer().finished.load() != 0 || Receiver(connection.memory, connection.in()).has_data();
}

}  // namespace

bool give_descriptors_back(Want want) {
  if (internal_count() == 0 || in_borrowed_memory()) return false;
  const Uncancelled here(Uncancelled::Sleeps::too);  // calls that make descriptors do not throw
  constexpr int kAtOnce = 8;  // for a single call; without it programs that are started cannot go on with a connection
  // Not all of them for each socket that is near the limit, which would cost it the more the more there are: until the
  // last quarter of the numbers is taken, all of ours have had their turn many times.
  constexpr int kLooks = 16;
  static int next = 0;  // under the lock of while_no_program_starts()
  const bool offers = want == Want::one_now;
  const int kept = errno;
  int given = 0;
  const auto give = [&](int, Connection* connection) {
    if (connection == of_process()) return true;
    if (connection->attached() && !may_be_passed_on_unread(*connection) && close_memory_descriptor(*connection)) {
      registry_attached(*connection);
      ++given;
    }
    if (offers && connection->life.load() == Life::offering && connection->upgrade_lock.try_acquire()) {
      given += withdraw_for_now(*connection) ? 1 : 0;
      connection->upgrade_lock.release();
    }
    return given < kAtOnce && internal_count_of_connections() != 0;
  };
  if (internal_count_of_connections() != 0)
    (void)while_no_program_starts(
        [&] { next = internal_fds.some(next, offers ? FdMap<Connection>::kMost : kLooks, give); });
  if (offers && given == 0 && give_up_bells()) ++given;
  if (offers && given == 0 && registry_gives_descriptor()) ++given;
  errno = kept;
  return given != 0;
}

void give_up_internal(int fd) {
  const Uncancelled here(Uncancelled::Sleeps::too);
  const int moved = make_internal(kernel::libc().fcntl(fd, F_DUPFD_CLOEXEC, 3), Need::now, internal_fds.find(fd));
  connections.each([=](int, Connection* connection) {
    if (connection->attached() && connection->memory.fd == fd) connection->memory.fd = moved;
    if (connection->meeting == fd) connection->meeting = moved;
  });
  registry_moved(fd, moved);
  bell_moved(fd, moved);
  forget_internal(fd);
}

// What is unread resets a connection, as the kernel and the peer find out by themselves; somebody may still read it.
void table_at_exit() {
  if (in_borrowed_memory()) return;
  connections.each([](int fd, Connection* connection) {
    if (!connection->attached()) return;
    Family& holders = connection->own().holders;
    const bool again = std::exchange(connection->has_left, true);  // by another of its numbers
    if (!sole_member(holders, own_pid())) {
      if (!again) leave_family(holders, own_pid());  // until it is waited for it counts as alive
    } else if (!has_unread(*connection, fd))
      say_closed(*connection);
  });
}

// ---- exec

namespace {

bool is_closed_by_exec(const Connection& connection, int fd) {
  const auto goes = [](int number) { return (kernel::libc().fcntl(number, F_GETFD) & FD_CLOEXEC) != 0; };
  bool all = goes(fd);
  if (all && connection.descriptors.load() != 1)
    connections.each([&](int other, const Connection* one) { all &= one != &connection || goes(other); });
  return all;
}

}  // namespace

// The number of the process stays, so nobody would find out.
void table_before_exec() {
  if (in_borrowed_memory()) return;
  const Uncancelled here(Uncancelled::Sleeps::too);
  const int kept = errno;
  connections.each([](int fd, Connection* connection) {
    const bool attached = connection->attached();
    if ((!attached && connection->family == nullptr) || !is_closed_by_exec(*connection, fd)) return;
    Family& family = attached ? connection->own().holders : *connection->family;
    if (!is_member(family, own_pid())) return;  // by another of its numbers, or one of many
    if (attached && sole_member(family, own_pid()) && !has_unread(*connection, fd)) say_closed(*connection);
    leave_family(family, own_pid());
    connection->has_left = true;
  });
  errno = kept;
}

void table_after_failed_exec() {
  if (in_borrowed_memory()) return;
  connections.each([](int, Connection* connection) {
    if (!std::exchange(connection->has_left, false)) return;
    if (!connection->attached()) return join_family(*connection->family, own_pid());
    join_family(connection->own().holders, own_pid());
    const bool shut = connection->sends_no_more.load() && connection->reads_no_more.load();
    if (!shut) connection->own().closed.store(0);
  });
}

// ---- fork

void table_before_fork() {
  const pid_t pid = own_pid();
  connections.each([pid](int, Connection* connection) {
    connection->shared.store(true);
    if (connection->attached()) {
      connection->own().holders.crowd.fetch_add(1);  // until the child has counted itself
      return;
    }
    if (connection->life.load() == Life::plain) return;
    if (connection->family == nullptr) connection->family = make_family(pid);
    if (connection->family != nullptr)
      connection->family->crowd.fetch_add(1);  // until the child has counted itself
    else
      connection->set_why(Why::no_memory), connection->set_life(Life::plain);
  });
}

// There is no child that will count itself.
void table_after_failed_fork() {
  connections.each([](int, Connection* connection) {
    Family* const family = connection->attached() ? &connection->own().holders : connection->family;
    if (family != nullptr) leave_crowd(*family);
  });
}

void table_after_fork_in_child() {
  forget_thread_mark();
  pid_of_tables.store(::getpid());
  slab.lock().reset();
  bells_after_fork_in_child();
  retired_after_fork_in_child();
  bool attached = false;
  connections.each([&attached](int, Connection* connection) {
    attached |= connection->attached();
    connection->upgrade_lock.reset();
    connection->judge_lock.reset();
    connection->raw_receivers.store(0);
    connection->raw_senders.store(0);
    connection->sleepers_here.store(0);
    if (connection->attached()) {
      join_family(connection->own().holders, own_pid());
      leave_crowd(connection->own().holders);
    }
    if (connection->attached() || connection->family == nullptr) return;
    withdraw(*connection);  // the parent's offer stays its own
    if (connection->life.load() == Life::offering) connection->life.store(Life::young);
    join_family(*connection->family, own_pid());
    leave_crowd(*connection->family);
  });
  registry_after_fork_in_child(attached);
}

}  // namespace viaduct::sockets
