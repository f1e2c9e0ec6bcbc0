// How sockets and their descriptors come and go.
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <iterator>

#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/export.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/hold_back.hpp"
#include "sockets/internal_fd.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/rendezvous.hpp"
#include "sockets/retired.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/transfer.hpp"
#include "sockets/uring.hpp"
#include "sockets/user_memory.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

using kernel::libc;

namespace {

void duplicated(int from, int to) {
  if (to < 0) return;
  if (Connection* const connection = find_connection(from); connection != nullptr && !in_borrowed_memory())
    adopt_duplicate(*connection, to);
  else if (is_epoll_set(from) && !in_borrowed_memory())
    duplicate_set(from, to);
}

// The number is about to be taken by something else, or closed.
void forget(int fd) {
  if ((find_connection(fd) == nullptr && !is_epoll_set(fd) && !is_ring(fd)) || in_borrowed_memory()) return;
  let_go(fd, fd);
  forget_set(fd);
  forget_ring(fd);
}

// Doorbells go to a number, under this lock: whoever has it next sees whose it is by then.
template <class Use>
int while_nobody_rings(Connection& connection, Use&& use) {
  const SendingLock lock(connection.memory, connection.out());
  return use();
}

// dup2 and dup3. What had the number is kept open until the kernel has answered: a refusal must change nothing, and a
// connection is taken leave of on its own socket.
template <class Call>
int duplicate_over(int from, int to, Call&& call) {
  if (in_borrowed_memory()) return call();
  const Uncancelled here(Uncancelled::Sleeps::too);
  if (is_internal(to)) give_up_internal(to);
  Connection* const known = find_connection(to);
  if (known != nullptr) tell_of_deletions(*known, to);
  const int kept = known != nullptr ? libc().fcntl(to, F_DUPFD_CLOEXEC, 3) : -1;
  Connection* former = nullptr;
  Connection* now = nullptr;
  const auto exchange = [&] {
    const int copy = call();
    now = copy >= 0 ? find_connection(from) : nullptr;
    if (now != nullptr) former = give_number(to, *now);
    return copy;
  };
  const int copy = known != nullptr && known->attached() ? while_nobody_rings(*known, exchange) : exchange();
  const int error = errno;
  if (now != nullptr) {
    if (former == now)
      now->descriptors.fetch_sub(1);  // it was its own before
    else if (former != nullptr)
      number_lost(*former, to, kept);
    forget_set(to);
    forget_ring(to);
    if (is_standard(to)) make_plain(*now, to, Why::stdio);
  } else if (copy >= 0) {
    let_go(to, kept);
    forget_set(to);
    forget_ring(to);
    duplicated(from, to);
  }
  if (kept >= 0) libc().close(kept);
  errno = error;
  return copy;
}

// Of a connection that is taken apart by one of its numbers: until then they are nobody's, then what that one is. More
// than a few are the kernel's from then on.
class OtherNumbers {
 public:
  OtherNumbers(const Connection& connection, int but) {
    connections.each([&](int fd, const Connection* one) {
      if (one != &connection || fd == but) return;
      let_go(fd, fd);
      if (count_ < std::size(numbers_)) numbers_[count_++] = fd;
    });
  }
  void follow(int fd) const {
    Connection* const connection = find_connection(fd);
    for (std::size_t i = 0; connection != nullptr && i < count_; ++i) adopt_duplicate(*connection, numbers_[i]);
  }

 private:
  int numbers_[16];
  std::size_t count_ = 0;
};

// A vfork child closes all that it finds before it becomes another program, which may go on with a connection of its
// parent and needs its memory. What it has put in that place itself has no such flag, and is closed.
bool is_left_to_exec(int fd) {
  return (libc().fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

// Everything in the range but what is ours.
int close_all_but_internal(unsigned first, unsigned last) {
  const unsigned known = std::min<unsigned>(last, FdMap<Connection>::kMost - 1);
  if (!in_borrowed_memory()) {
    connections.each([&](int fd, Connection*) {
      if (static_cast<unsigned>(fd) >= first && static_cast<unsigned>(fd) <= last) let_go(fd, fd);
    });
    forget_sets_in(first, last);
    forget_rings_in(first, last);
  }
  int result = 0;
  unsigned from = first;
  for_each_internal([&](int fd) {
    const auto number = static_cast<unsigned>(fd);
    if (number < first || number > known) return;
    if (number > from) result |= libc().close_range(from, number - 1, 0);
    from = number + 1;
  });
  if (from <= last) result |= libc().close_range(from, last, 0);
  return result;
}

// One that came from another process is not known here.
bool is_tcp_listener(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  return find_connection(fd) != nullptr ||
         (libc().getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP);
}

void adopt_accepted(int listener, int fd, bool nonblocking) {
  adopt(fd, nonblocking);
  Connection* const connection = find_connection(fd);
  if (connection == nullptr) return;
  connection->opened.store(Opened::by_peer, std::memory_order_relaxed);
  if (const Connection* const from = find_connection(listener)) {
    connection->no_time_to_receive.store(from->no_time_to_receive.load());
    connection->no_time_to_send.store(from->no_time_to_send.load());
  }
  count_birth(*connection, fd);
}

}  // namespace

extern "C" {

VIADUCT_EXPORT int socket(int domain, int type, int protocol) {
  const int fd = with_room([=] { return libc().socket(domain, type, protocol); });
  constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  if (fd >= 0 && (domain == AF_INET || domain == AF_INET6) && (type & ~kFlags) == SOCK_STREAM &&
      (protocol == 0 || protocol == IPPROTO_TCP))
    adopt(fd, (type & SOCK_NONBLOCK) != 0);
  return fd;
}

VIADUCT_EXPORT int listen(int fd, int backlog) {
  const int result = libc().listen(fd, backlog);
  if (Connection* const connection = find_connection(fd); connection != nullptr && result == 0)
    make_plain(*connection, fd, Why::not_connected);
  return result;
}

VIADUCT_EXPORT int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  const int accepted = with_room([=] { return libc().accept4(fd, address, length, flags); });
  if (accepted >= 0 && is_tcp_listener(fd)) adopt_accepted(fd, accepted, (flags & SOCK_NONBLOCK) != 0);
  return accepted;
}

VIADUCT_EXPORT int accept(int fd, sockaddr* address, socklen_t* length) {
  const int accepted = with_room([=] { return libc().accept(fd, address, length); });
  if (accepted >= 0 && is_tcp_listener(fd)) adopt_accepted(fd, accepted, false);
  return accepted;
}

// Taking a connection apart to use its socket again (AF_UNSPEC): it starts from the beginning.
VIADUCT_EXPORT int connect(int fd, const sockaddr* address, socklen_t length) {
  Connection* const connection = find_connection(fd);
  const bool again = connection != nullptr && connection->life.load() != Life::plain && address != nullptr &&
                     length >= sizeof address->sa_family && is_readable(&address->sa_family) &&
                     address->sa_family == AF_UNSPEC;
  if (connection != nullptr) {
    note_tcp_use();
    Opened nobody = Opened::unknown;  // or it is connected already, as the kernel will say
    connection->opened.compare_exchange_strong(nobody, Opened::by_us, std::memory_order_relaxed);
  }
  if (!again) return libc().connect(fd, address, length);
  const bool nonblocking = is_nonblocking(*connection, fd);
  const Memberships sets(*connection, fd);
  const OtherNumbers others(*connection, fd);
  let_go(fd, fd);
  const int result = libc().connect(fd, address, length);
  adopt(fd, nonblocking);
  others.follow(fd);
  sets.renew();
  return result;
}

VIADUCT_EXPORT int shutdown(int fd, int how) {
  Connection* const connection = find_connection(fd);
  if (connection == nullptr || how < SHUT_RD || how > SHUT_RDWR) return libc().shutdown(fd, how);
  note_tcp_use();
  const bool sent = connection->sends_no_more.load(), read = connection->reads_no_more.load();
  // Before the end itself: who attaches just now tells of it, or this call finds it attached.
  if (how != SHUT_RD) connection->sends_no_more.store(true);
  if (how != SHUT_WR) connection->reads_no_more.store(true);
  if (!connection->attached()) {
    const int result = libc().shutdown(fd, how);
    if (result != 0) {
      connection->sends_no_more.store(sent);
      connection->reads_no_more.store(read);
    }
    return result;
  }
  serve_requests(*connection, fd);  // there is no other time for it
  if (how != SHUT_RD) let_go_held(*connection, fd);
  // What is being sent is in the ring before the end is seen.
  const SendingLock lock(connection->memory, connection->out());
  tell_of_shutdown(*connection);
  wake_room_sleepers(connection->outgoing().room);  // another thread, in the middle of a send
  return libc().shutdown(fd, how);
}

VIADUCT_EXPORT int close(int fd) {
  if (is_internal(fd)) [[unlikely]] {
    if (!in_borrowed_memory()) return errno = EBADF, -1;
    if (is_left_to_exec(fd)) return 0;
  } else {
    forget(fd);
  }
  const int result = libc().close(fd);
  unmap_closed();
  return result;
}

VIADUCT_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  if (flags == CLOSE_RANGE_UNSHARE && first <= last && !in_borrowed_memory()) {
    if (::unshare(CLONE_FILES) != 0) return -1;
    flags = 0;
  }
  if (flags != 0 || first > last) return libc().close_range(first, last, flags);
  return close_all_but_internal(first, last);
}

VIADUCT_EXPORT void closefrom(int lowest) noexcept {
  close_all_but_internal(static_cast<unsigned>(std::max(lowest, 0)), UINT_MAX);
}

VIADUCT_EXPORT int dup(int fd) noexcept {
  const int copy = with_room([=] { return libc().dup(fd); });
  duplicated(fd, copy);
  return copy;
}

VIADUCT_EXPORT int dup2(int from, int to) noexcept {
  if (from == to || is_internal(from)) return libc().dup2(from, to);
  return duplicate_over(from, to, [=] { return libc().dup2(from, to); });
}

VIADUCT_EXPORT int dup3(int from, int to, int flags) noexcept {
  if (from == to || is_internal(from)) return libc().dup3(from, to, flags);
  return duplicate_over(from, to, [=] { return libc().dup3(from, to, flags); });
}

}  // extern "C"

}  // namespace viaduct::sockets
