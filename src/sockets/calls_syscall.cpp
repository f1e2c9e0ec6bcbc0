// syscall(): who calls by number means the same. libuv, and so node, closes descriptors this way; one that were not
// seen to go would be taken for a connection when its number is a file's.
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <type_traits>
#include <utility>

#include "base/clock.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/process.hpp"
#include "sockets/uring.hpp"
#include "sockets/user_memory.hpp"

namespace viaduct::sockets {

namespace {

struct Arguments {
  long at[6];

  template <class T>
  T as(int which) const {
    if constexpr (std::is_pointer_v<T>)
      return reinterpret_cast<T>(at[which]);
    else
      return static_cast<T>(at[which]);
  }
};

// `::name` is this library's own.
template <class Result, class... Parameters, std::size_t... At>
long call(Result (*function)(Parameters...), const Arguments& given, std::index_sequence<At...>) {
  return static_cast<long>(function(given.as<Parameters>(static_cast<int>(At))...));
}
template <class Result, class... Parameters>
long call(Result (*function)(Parameters...), const Arguments& given) {
  const Uncancelled here(Uncancelled::Sleeps::too);
  return call(function, given, std::index_sequence_for<Parameters...>{});
}

int fcntl_of_three(int fd, int command, void* argument) {
  return ::fcntl(fd, command, argument);
}
int ioctl_of_three(int fd, unsigned long request, void* argument) {
  return ::ioctl(fd, request, argument);
}
int send_many(int fd, mmsghdr* messages, unsigned count, int flags) {
  return ::sendmmsg(fd, messages, count, flags);
}

// The place in two halves, of which the first holds all of it here.
ssize_t read_at(int fd, const iovec* pieces, int count, off_t offset, long, int flags) {
  return ::preadv2(fd, pieces, count, offset, flags);
}
ssize_t write_at(int fd, const iovec* pieces, int count, off_t offset, long, int flags) {
  return ::pwritev2(fd, pieces, count, offset, flags);
}

// Of the kernel's masks, which are shorter than libc's.
struct MaskAndSize {
  const sigset_t* mask;
  std::size_t size;
};
bool is_refused(const MaskAndSize& given) {
  constexpr std::size_t kBytes = _NSIG / 8;
  return given.mask != nullptr && given.size != kBytes && (errno = EINVAL, true);
}

// Unlike libc's functions, what is called by number leaves there what is left of the time.
template <class Call>
int leaving_what_is_left(timespec* limit, Call&& wait) {
  if (limit == nullptr || !is_readable(limit) || !is_good(*limit)) return wait(limit);  // which refuses it
  const timespec asked = *limit;
  const Deadline end = Deadline::after(Clock::steady(), asked.tv_sec, asked.tv_nsec);
  const int result = wait(&asked);
  if (!end.is_never()) {
    const int kept = errno;  // the kernel says whether it can be written to; where not, it is left as it is
    if (kernel::libc().syscall(SYS_clock_gettime, CLOCK_MONOTONIC, limit) == 0)
      *limit = to_timespec(end.left_ns(Clock::steady().now_ns()));
    errno = kept;
  }
  return result;
}

int select_with_mask(int count, fd_set* in, fd_set* out, fd_set* other, timespec* limit, const MaskAndSize* given) {
  if (given != nullptr && !is_readable(given)) return errno = EFAULT, -1;
  const MaskAndSize mask = given != nullptr ? *given : MaskAndSize{};
  if (is_refused(mask)) return -1;
  return leaving_what_is_left(limit,
                              [&](const timespec* time) { return ::pselect(count, in, out, other, time, mask.mask); });
}
int poll_with_mask(pollfd* entries, nfds_t count, timespec* limit, const sigset_t* mask, std::size_t size) {
  if (is_refused({mask, size})) return -1;
  return leaving_what_is_left(limit, [&](const timespec* time) { return ::ppoll(entries, count, time, mask); });
}
int wait_with_mask(int epoll, epoll_event* events, int most, int timeout, const sigset_t* mask, std::size_t size) {
  return is_refused({mask, size}) ? -1 : ::epoll_pwait(epoll, events, most, timeout, mask);
}
int wait_with_mask_and_time(int epoll, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask,
                            std::size_t size) {
  return is_refused({mask, size}) ? -1 : ::epoll_pwait2(epoll, events, most, timeout, mask);
}

// Of the calling process.
bool makes_copy(long number, const Arguments& given) {
  switch (number) {
#if defined(SYS_fork)
    case SYS_fork:
      return true;
#endif
    case SYS_clone:
      return (given.as<unsigned long>(0) & CLONE_VM) == 0;
    case SYS_clone3:
      return is_readable(given.as<const clone_args*>(0)) && (given.as<const clone_args*>(0)->flags & CLONE_VM) == 0;
    default:
      return false;
  }
}

// False: not a call of ours, or none that is done here.
bool known(long number, const Arguments& given, long& result) {
  switch (number) {
#define VIADUCT_BY(number, function) \
  case SYS_##number:                 \
    result = call(function, given);  \
    return true
#define VIADUCT_SAME(name) VIADUCT_BY(name, &::name)
    VIADUCT_SAME(close);
    VIADUCT_SAME(read);
    VIADUCT_SAME(write);
    VIADUCT_SAME(readv);
    VIADUCT_SAME(writev);
    VIADUCT_SAME(recvmsg);
    VIADUCT_SAME(sendmsg);
    VIADUCT_SAME(recvfrom);
    VIADUCT_SAME(sendto);
    VIADUCT_SAME(recvmmsg);
    VIADUCT_SAME(sendfile);
    VIADUCT_SAME(splice);
    VIADUCT_SAME(socket);
    VIADUCT_SAME(connect);
    VIADUCT_SAME(listen);
    VIADUCT_SAME(accept);
    VIADUCT_SAME(accept4);
    VIADUCT_SAME(shutdown);
    VIADUCT_SAME(setsockopt);
    VIADUCT_SAME(getsockopt);
    VIADUCT_SAME(dup);
    VIADUCT_SAME(dup2);
    VIADUCT_SAME(dup3);
    VIADUCT_SAME(close_range);
    VIADUCT_SAME(poll);
    VIADUCT_SAME(select);
    VIADUCT_SAME(epoll_create);
    VIADUCT_SAME(epoll_create1);
    VIADUCT_SAME(epoll_ctl);
    VIADUCT_SAME(epoll_wait);
    VIADUCT_SAME(execve);
    VIADUCT_SAME(execveat);
    VIADUCT_BY(sendmmsg, &send_many);
    VIADUCT_BY(preadv2, &read_at);
    VIADUCT_BY(pwritev2, &write_at);
    VIADUCT_BY(pselect6, &select_with_mask);
    VIADUCT_BY(ppoll, &poll_with_mask);
    VIADUCT_BY(epoll_pwait, &wait_with_mask);
    VIADUCT_BY(epoll_pwait2, &wait_with_mask_and_time);
    VIADUCT_BY(fcntl, &fcntl_of_three);
    VIADUCT_BY(ioctl, &ioctl_of_three);
#undef VIADUCT_SAME
#undef VIADUCT_BY
    case SYS_io_uring_enter:
      look_through_ring(given.as<int>(0), given.as<unsigned>(1), given.as<unsigned>(3));
      return false;
    case SYS_io_uring_register:
      look_at_registered(given.as<unsigned>(1), given.as<const void*>(2), given.as<unsigned>(3));
      return false;
    case SYS_exit_group:
      ::_exit(static_cast<int>(given.at[0]));
    default:
      return false;
  }
}

}  // namespace

extern "C" {

VIADUCT_EXPORT long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  Arguments given;
  for (long& one : given.at) one = va_arg(list, long);
  va_end(list);
  long result;
  if (known(number, given, result)) return result;
  const auto ask = [&] {
    return kernel::libc().syscall(number, given.at[0], given.at[1], given.at[2], given.at[3], given.at[4], given.at[5]);
  };
  if (makes_copy(number, given)) return forking(ask);
  result = ask();
  if (number == SYS_io_uring_setup && result >= 0)
    watch_ring(static_cast<int>(result), *given.as<const io_uring_params*>(1));
  return result;
}

}  // extern "C"

}  // namespace viaduct::sockets
