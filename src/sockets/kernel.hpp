// The functions that this library stands in front of, as the next library (libc) has them.
#pragma once

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct aiocb;
struct aiocb64;

namespace viaduct::sockets::kernel {

#define VIADUCT_KERNEL_CALLS(X)                                                                                     \
  X(int, socket, (int, int, int))                                                                                   \
  X(int, connect, (int, const sockaddr*, socklen_t))                                                                \
  X(int, listen, (int, int))                                                                                        \
  X(int, accept, (int, sockaddr*, socklen_t*))                                                                      \
  X(int, accept4, (int, sockaddr*, socklen_t*, int))                                                                \
  X(int, shutdown, (int, int))                                                                                      \
  X(int, close, (int))                                                                                              \
  X(ssize_t, read, (int, void*, size_t))                                                                            \
  X(ssize_t, write, (int, const void*, size_t))                                                                     \
  X(ssize_t, readv, (int, const iovec*, int))                                                                       \
  X(ssize_t, writev, (int, const iovec*, int))                                                                      \
  X(ssize_t, preadv2, (int, const iovec*, int, off_t, int))                                                         \
  X(ssize_t, pwritev2, (int, const iovec*, int, off_t, int))                                                        \
  X(ssize_t, recv, (int, void*, size_t, int))                                                                       \
  X(ssize_t, send, (int, const void*, size_t, int))                                                                 \
  X(ssize_t, recvfrom, (int, void*, size_t, int, sockaddr*, socklen_t*))                                            \
  X(ssize_t, sendto, (int, const void*, size_t, int, const sockaddr*, socklen_t))                                   \
  X(ssize_t, recvmsg, (int, msghdr*, int))                                                                          \
  X(ssize_t, sendmsg, (int, const msghdr*, int))                                                                    \
  X(int, recvmmsg, (int, mmsghdr*, unsigned, int, timespec*))                                                       \
  X(int, sendmmsg, (int, mmsghdr*, unsigned, int))                                                                  \
  X(ssize_t, sendfile, (int, int, off_t*, size_t))                                                                  \
  X(ssize_t, splice, (int, off64_t*, int, off64_t*, size_t, unsigned))                                              \
  X(int, poll, (pollfd*, nfds_t, int))                                                                              \
  X(int, ppoll, (pollfd*, nfds_t, const timespec*, const sigset_t*))                                                \
  X(int, select, (int, fd_set*, fd_set*, fd_set*, timeval*))                                                        \
  X(int, pselect, (int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*))                               \
  X(int, epoll_create, (int))                                                                                       \
  X(int, epoll_create1, (int))                                                                                      \
  X(int, epoll_ctl, (int, int, int, epoll_event*))                                                                  \
  X(int, epoll_wait, (int, epoll_event*, int, int))                                                                 \
  X(int, epoll_pwait, (int, epoll_event*, int, int, const sigset_t*))                                               \
  X(int, epoll_pwait2, (int, epoll_event*, int, const timespec*, const sigset_t*))                                  \
  X(int, getsockopt, (int, int, int, void*, socklen_t*))                                                            \
  X(int, setsockopt, (int, int, int, const void*, socklen_t))                                                       \
  X(int, fcntl, (int, int, ...))                                                                                    \
  X(int, ioctl, (int, unsigned long, ...))                                                                          \
  X(int, open, (const char*, int, ...))                                                                             \
  X(int, open64, (const char*, int, ...))                                                                           \
  X(int, openat, (int, const char*, int, ...))                                                                      \
  X(int, openat64, (int, const char*, int, ...))                                                                    \
  X(int, __open_2, (const char*, int))                                                                              \
  X(int, __open64_2, (const char*, int))                                                                            \
  X(int, __openat_2, (int, const char*, int))                                                                       \
  X(int, __openat64_2, (int, const char*, int))                                                                     \
  X(FILE*, fopen, (const char*, const char*))                                                                       \
  X(FILE*, fopen64, (const char*, const char*))                                                                     \
  X(DIR*, opendir, (const char*))                                                                                   \
  X(int, pipe, (int*))                                                                                              \
  X(int, pipe2, (int*, int))                                                                                        \
  X(int, socketpair, (int, int, int, int*))                                                                         \
  X(int, eventfd, (unsigned, int))                                                                                  \
  X(int, timerfd_create, (clockid_t, int))                                                                          \
  X(int, dup, (int))                                                                                                \
  X(int, dup2, (int, int))                                                                                          \
  X(int, dup3, (int, int, int))                                                                                     \
  X(int, close_range, (unsigned, unsigned, int))                                                                    \
  X(void, closefrom, (int))                                                                                         \
  X(FILE*, fdopen, (int, const char*))                                                                              \
  X(int, vdprintf, (int, const char*, va_list))                                                                     \
  X(int, __vdprintf_chk, (int, int, const char*, va_list))                                                          \
  X(int, aio_read, (aiocb*))                                                                                        \
  X(int, aio_read64, (aiocb64*))                                                                                    \
  X(int, aio_write, (aiocb*))                                                                                       \
  X(int, aio_write64, (aiocb64*))                                                                                   \
  X(int, lio_listio, (int, aiocb* const*, int, sigevent*))                                                          \
  X(int, lio_listio64, (int, aiocb64* const*, int, sigevent*))                                                      \
  X(pid_t, fork, ())                                                                                                \
  X(pid_t, _Fork, ())                                                                                               \
  X(int, clone, (int (*)(void*), void*, int, void*, ...))                                                           \
  X(void, _exit, (int))                                                                                             \
  X(void, longjmp, (__jmp_buf_tag*, int))                                                                           \
  X(void, _longjmp, (__jmp_buf_tag*, int))                                                                          \
  X(void, siglongjmp, (__jmp_buf_tag*, int))                                                                        \
  X(void, __longjmp_chk, (__jmp_buf_tag*, int))                                                                     \
  X(int, sigaction, (int, const struct sigaction*, struct sigaction*))                                              \
  X(sighandler_t, signal, (int, sighandler_t))                                                                      \
  X(sighandler_t, __sysv_signal, (int, sighandler_t))                                                               \
  X(sighandler_t, sigset, (int, sighandler_t))                                                                      \
  X(int, siginterrupt, (int, int))                                                                                  \
  X(long, syscall, (long, ...))                                                                                     \
  X(int, system, (const char*))                                                                                     \
  X(FILE*, popen, (const char*, const char*))                                                                       \
  X(int, execve, (const char*, char* const*, char* const*))                                                         \
  X(int, execvpe, (const char*, char* const*, char* const*))                                                        \
  X(int, execveat, (int, const char*, char* const*, char* const*, int))                                             \
  X(int, fexecve, (int, char* const*, char* const*))                                                                \
  X(int, posix_spawn_file_actions_init, (posix_spawn_file_actions_t*))                                              \
  X(int, posix_spawn_file_actions_addclosefrom_np, (posix_spawn_file_actions_t*, int))                              \
  X(int, posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t*, int, int))                                 \
  X(int, posix_spawn,                                                                                               \
    (pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*)) \
  X(int, posix_spawnp,                                                                                              \
    (pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*))

struct Calls {
#define VIADUCT_DECLARE(result, name, parameters) result(*name) parameters;
  VIADUCT_KERNEL_CALLS(VIADUCT_DECLARE)
#undef VIADUCT_DECLARE
};

namespace detail {
extern Calls calls;
extern bool resolved;
void resolve();
}  // namespace detail

// Other libraries' constructors may call in before ours has run.
inline const Calls& libc() {
  if (!detail::resolved) [[unlikely]]
    detail::resolve();
  return detail::calls;
}

}  // namespace viaduct::sockets::kernel
