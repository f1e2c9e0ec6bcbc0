// poll, select and epoll.
#include <poll.h>
#include <sys/select.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>

#include "sockets/epoll_set.hpp"
#include "sockets/epoll_short.hpp"
#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/poll_wait.hpp"
#include "sockets/table.hpp"
#include "sockets/user_memory.hpp"

namespace viaduct::sockets {

using kernel::libc;

namespace {

Deadline after_ms(int ms) {
  if (ms < 0) return Deadline::never();
  return ms == 0 ? Deadline::at_ns(0) : Deadline::after_ns(Clock::steady(), static_cast<std::uint64_t>(ms) * 1'000'000);
}

Deadline after(const timespec* time) {
  if (time == nullptr) return Deadline::never();
  if (time->tv_sec == 0 && time->tv_nsec == 0) return Deadline::at_ns(0);
  return Deadline::after(Clock::steady(), time->tv_sec, time->tv_nsec);
}

// For the kernel to refuse.
bool bad_time(const timespec* time) {
  return time != nullptr && (!is_readable(time) || !is_good(*time));
}
bool bad_time(const timeval* time) {
  return time != nullptr && (!is_readable(time) || time->tv_sec < 0 || time->tv_usec < 0);
}

bool bad_entries(const pollfd* entries, nfds_t count) {
  return count > INT_MAX || !is_readable(entries, count * sizeof *entries);
}

std::size_t bytes_of_set(int count) {
  return static_cast<std::size_t>(count + 63) / 64 * 8;
}

// Of select(): for the kernel to refuse.
bool bad_sets(int count, const fd_set* read, const fd_set* write, const fd_set* except) {
  if (count <= 0 || count > FdMap<Connection>::kMost) return true;
  const auto bad = [count](const fd_set* set) { return set != nullptr && !is_readable(set, bytes_of_set(count)); };
  return bad(read) || bad(write) || bad(except);
}

bool in_set(const fd_set* set, int fd) {
  // Not FD_ISSET: programs with larger sets than fd_set exist, and the fortified macro would stop them.
  return set != nullptr && (reinterpret_cast<const unsigned long*>(set)[fd / 64] >> (fd % 64) & 1) != 0;
}

void put_in(fd_set* set, int fd) {
  if (set != nullptr) reinterpret_cast<unsigned long*>(set)[fd / 64] |= 1UL << (fd % 64);
}

void clear(fd_set* set, int count) {
  if (set != nullptr) std::memset(set, 0, bytes_of_set(count));
}

// The descriptors in any of the sets.
template <class Use>
void each_member(int count, const fd_set* read, const fd_set* write, const fd_set* except, Use&& use) {
  const auto word = [](const fd_set* set, int which) {
    return set != nullptr ? reinterpret_cast<const unsigned long*>(set)[which] : 0;
  };
  for (int first = 0; first < count; first += 64) {
    unsigned long bits = word(read, first / 64) | word(write, first / 64) | word(except, first / 64);
    if (count - first < 64) bits &= (1UL << (count - first)) - 1;
    for (; bits != 0; bits &= bits - 1) use(first + std::countr_zero(bits));
  }
}

// Connections that are, or may become, accelerated while they are waited for.
bool select_sees_accelerated(int count, const fd_set* read, const fd_set* write, const fd_set* except) {
  bool seen = false;
  each_member(count, read, write, except, [&seen](int fd) {
    const Connection* const connection = find_connection(fd);
    seen |= (connection != nullptr && connection->life.load() != Life::plain) || is_epoll_set(fd);
  });
  return seen;
}

int poll_any(pollfd* entries, nfds_t count, Deadline deadline, const sigset_t* mask) {
  if (!any_accelerated(entries, count)) {
    const RawPolling raw(entries, count);
    if (!any_accelerated(entries, count)) {
      const timespec left = to_timespec(deadline.is_never() ? 0 : deadline.left_ns(Clock::steady().now_ns()));
      return libc().ppoll(entries, count, deadline.is_never() ? nullptr : &left, mask);
    }
  }
  return poll_wait(entries, count, deadline, mask);
}

int select_by_poll(int count, fd_set* read, fd_set* write, fd_set* except, Deadline deadline, const sigset_t* mask) {
  nfds_t members = 0;
  each_member(count, read, write, except, [&](int) { ++members; });
  PollEntries buffer(members);
  pollfd* const entries = buffer.get();
  if (buffer.length() < members) return errno = ENOMEM, -1;
  nfds_t used = 0;
  each_member(count, read, write, except, [&](int fd) {
    const short events = static_cast<short>((in_set(read, fd) ? POLLIN : 0) | (in_set(write, fd) ? POLLOUT : 0) |
                                            (in_set(except, fd) ? POLLPRI : 0));
    if (used < members) entries[used++] = {fd, events, 0};
  });
  fd_set* const sets[3] = {read, write, except};
  constexpr short kAsked[3] = {POLLIN, POLLOUT, POLLPRI};
  constexpr short kMeans[3] = {POLLIN | POLLHUP | POLLERR | POLLRDHUP, POLLOUT | POLLERR, POLLPRI};
  const auto means = [&](const pollfd& entry, int kind) {
    return (entry.events & kAsked[kind]) != 0 && (entry.revents & kMeans[kind]) != 0;
  };
  for (;;) {
    const int found = poll_any(entries, used, deadline, mask);
    if (std::any_of(entries, entries + used, [](const pollfd& entry) { return (entry.revents & POLLNVAL) != 0; }))
      return errno = EBADF, -1;
    if (found < 0) return -1;
    int result = 0;
    for (nfds_t i = 0; i < used; ++i)
      for (int kind = 0; kind < 3; ++kind) result += means(entries[i], kind) ? 1 : 0;
    if (found > 0 && result == 0) {  // an end means nothing to who waits for urgent bytes, and goes on doing so
      for (nfds_t i = 0; i < used; ++i)
        if (entries[i].revents != 0) entries[i].fd = -1;
      continue;
    }
    for (fd_set* set : sets) clear(set, count);
    for (nfds_t i = 0; i < used; ++i)
      for (int kind = 0; kind < 3; ++kind)
        if (means(entries[i], kind)) put_in(sets[kind], entries[i].fd);
    return result;
  }
}

[[gnu::noinline]] int wait_otherwise(int epoll, epoll_event* events, int most, int timeout) {
  EpollSet* const set = find_set(epoll);
  if (set == nullptr || most <= 0 || events == nullptr) return libc().epoll_wait(epoll, events, most, timeout);
  return set_wait(*set, epoll, events, most, after_ms(timeout), nullptr);
}

}  // namespace

extern "C" {

VIADUCT_EXPORT int poll(pollfd* entries, nfds_t count, int timeout) {
  if (count == 0 || bad_entries(entries, count)) return libc().poll(entries, count, timeout);
  if (!any_accelerated(entries, count)) {
    if (timeout == 0) return libc().poll(entries, count, timeout);
    const RawPolling raw(entries, count);
    if (!any_accelerated(entries, count)) return libc().poll(entries, count, timeout);
  }
  return poll_wait(entries, count, after_ms(timeout), nullptr);
}

VIADUCT_EXPORT int ppoll(pollfd* entries, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (count == 0 || bad_entries(entries, count) || bad_time(timeout))
    return libc().ppoll(entries, count, timeout, mask);
  if (!any_accelerated(entries, count)) {
    const RawPolling raw(entries, count);
    if (!any_accelerated(entries, count)) return libc().ppoll(entries, count, timeout, mask);
  }
  return poll_wait(entries, count, after(timeout), mask);
}

// Linux leaves the time that is left in `timeout`.
VIADUCT_EXPORT int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  if (bad_sets(count, read, write, except) || bad_time(timeout) || !select_sees_accelerated(count, read, write, except))
    return libc().select(count, read, write, except, timeout);
  timespec time{};
  if (timeout != nullptr) time = {timeout->tv_sec + timeout->tv_usec / 1'000'000, timeout->tv_usec % 1'000'000 * 1000};
  const Deadline deadline = after(timeout != nullptr ? &time : nullptr);
  const int result = select_by_poll(count, read, write, except, deadline, nullptr);
  if (timeout != nullptr) {
    const timespec left = to_timespec(deadline.left_ns(Clock::steady().now_ns()));
    *timeout = {left.tv_sec, left.tv_nsec / 1000};
  }
  return result;
}

VIADUCT_EXPORT int pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
                           const sigset_t* mask) {
  if (bad_sets(count, read, write, except) || bad_time(timeout) || !select_sees_accelerated(count, read, write, except))
    return libc().pselect(count, read, write, except, timeout, mask);
  return select_by_poll(count, read, write, except, after(timeout), mask);
}

VIADUCT_EXPORT int epoll_create(int size) noexcept {
  const int fd = with_room([=] { return libc().epoll_create(size); });
  if (fd >= 0) adopt_set(fd);
  return fd;
}

VIADUCT_EXPORT int epoll_create1(int flags) noexcept {
  const int fd = with_room([=] { return libc().epoll_create1(flags); });
  if (fd >= 0) adopt_set(fd);
  return fd;
}

VIADUCT_EXPORT int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  EpollSet* const set = find_set(epoll);
  // The kernel looks at the event before anything else.
  if (operation != EPOLL_CTL_DEL && !is_readable(event)) return libc().epoll_ctl(epoll, operation, fd, event);
  if (set == nullptr) {
    // Inherited, passed on, or there was no memory for it: the kernel alone waits for its members.
    if (Connection* const connection = find_connection(fd);
        connection != nullptr && operation != EPOLL_CTL_DEL && connection->life.load() != Life::plain)
      make_plain(*connection, fd, Why::shared_epoll);
    return libc().epoll_ctl(epoll, operation, fd, event);
  }
  return set_control(*set, epoll, operation, fd, event);
}

[[gnu::hot]] VIADUCT_EXPORT int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  EpollSet* const set = find_set(epoll);
  if (set != nullptr && most > 0 && events != nullptr && wait_short(*set, *events, timeout != 0) != 0) [[likely]]
    return 1;
  return wait_otherwise(epoll, events, most, timeout);
}

VIADUCT_EXPORT int epoll_pwait(int epoll, epoll_event* events, int most, int timeout, const sigset_t* mask) {
  EpollSet* const set = find_set(epoll);
  if (mask == nullptr) return epoll_wait(epoll, events, most, timeout);
  if (set == nullptr || most <= 0 || events == nullptr) return libc().epoll_pwait(epoll, events, most, timeout, mask);
  return set_wait(*set, epoll, events, most, after_ms(timeout), mask);
}

VIADUCT_EXPORT int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout,
                                const sigset_t* mask) {
  EpollSet* const set = find_set(epoll);
  if (set == nullptr || most <= 0 || events == nullptr || bad_time(timeout))
    return libc().epoll_pwait2(epoll, events, most, timeout, mask);
  return set_wait(*set, epoll, events, most, after(timeout), mask, true);
}

}  // extern "C"

}  // namespace viaduct::sockets
