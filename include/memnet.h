/* memnet.h: sockets whose TCP is done by a TCP server (`viaduct tcp-server`), on another processor of this host or on
 * another host. Programs talk to it over memory.
 *
 *   int s = memnet_socket(AF_INET, SOCK_STREAM, 0);
 *   memnet_connect(s, address, length);
 *   memnet_mem_t memory;
 *   memnet_register_mem(buffer, size, &memory);
 *   memnet_job_t job;
 *   memnet_async_send(s, memory, 0, size, 0, &job);   // returns at once
 *   ...                                               // the buffer must not change meanwhile
 *   struct memnet_result result;
 *   memnet_job_wait(job, -1, &result);                // result.bytes, result.error
 *
 * Calls that are named like those of sockets do what those do, and fail with the same errno. A socket is a small
 * number, and no descriptor of the kernel. Memory may be any; that of adma_alloc() is never copied on its way.
 *
 * Everything may be called from any thread. After fork() the child has no sockets; it may make its own.
 */
#ifndef MEMNET_H
#define MEMNET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <viaduct/api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t memnet_mem_t; /* 0: none */
typedef uint64_t memnet_job_t; /* 0: none */

/* Which server: "NAME" of this host, or "HOST/NAME". NULL: VIADUCT_MEMNET_SERVER, else "tcp-server". Called by itself
 * with the first socket. ECONNREFUSED: there is none; EBUSY: it takes no more; EACCES: it is another user's. */
VIADUCT_API int memnet_open(const char* server);
/* Closes all sockets and leaves the server. Registered memory is no longer registered. */
VIADUCT_API int memnet_shut(void);

/* ---- sockets, as those of the kernel */
VIADUCT_API int memnet_socket(int family, int type, int protocol); /* SOCK_STREAM, with SOCK_NONBLOCK or not */
VIADUCT_API int memnet_bind(int socket, const struct sockaddr* address, socklen_t length);
VIADUCT_API int memnet_listen(int socket, int backlog);
VIADUCT_API int memnet_accept(int socket, struct sockaddr* address, socklen_t* length);
VIADUCT_API int memnet_accept4(int socket, struct sockaddr* address, socklen_t* length, int flags);
VIADUCT_API int memnet_connect(int socket, const struct sockaddr* address, socklen_t length);
VIADUCT_API ssize_t memnet_send(int socket, const void* bytes, size_t length, int flags);
VIADUCT_API ssize_t memnet_sendv(int socket, const struct iovec* pieces, int count);
VIADUCT_API ssize_t memnet_sendmsg(int socket, const struct msghdr* message, int flags);
VIADUCT_API ssize_t memnet_recv(int socket, void* bytes, size_t length, int flags);
VIADUCT_API ssize_t memnet_recvv(int socket, const struct iovec* pieces, int count);
VIADUCT_API ssize_t memnet_recvmsg(int socket, struct msghdr* message, int flags);
VIADUCT_API int memnet_shutdown(int socket, int how);
VIADUCT_API int memnet_close(int socket);
VIADUCT_API int memnet_getsockopt(int socket, int level, int name, void* value, socklen_t* length);
VIADUCT_API int memnet_setsockopt(int socket, int level, int name, const void* value, socklen_t length);
VIADUCT_API int memnet_getsockname(int socket, struct sockaddr* address, socklen_t* length);
VIADUCT_API int memnet_getpeername(int socket, struct sockaddr* address, socklen_t* length);
VIADUCT_API int memnet_set_nonblocking(int socket, int on);

/* memnet_setsockopt() at this level: MEMNET_PUSH (int, 1 to begin with). 0: what comes waits at the server until
 * recv_direct or async_recv has posted memory for it. A listener's is that of what it accepts. */
#define SOL_MEMNET 0x4d4e
#define MEMNET_PUSH 1

struct pollfd;
VIADUCT_API int memnet_poll(struct pollfd* entries, unsigned long count, int timeout_ms); /* fd: a socket of MemNet */

/* ---- memory and jobs */
VIADUCT_API int memnet_register_mem(void* buffer, size_t length, memnet_mem_t* memory);
VIADUCT_API int memnet_deregister_mem(memnet_mem_t memory); /* EBUSY: a job uses it */

/* Straight from and to registered memory: the whole has been sent when send_direct returns. */
VIADUCT_API ssize_t memnet_send_direct(int socket, memnet_mem_t memory, size_t offset, size_t length, int flags);
VIADUCT_API ssize_t memnet_recv_direct(int socket, memnet_mem_t memory, size_t offset, size_t length, int flags);

struct memnet_piece {
  memnet_mem_t memory;
  size_t offset;
  size_t length;
};
VIADUCT_API ssize_t memnet_sendv_direct(int socket, const struct memnet_piece* pieces, int count, int flags);

/* Return at once with a job; the memory is in use until it has ended. EAGAIN: too many are under way on the socket. */
VIADUCT_API int memnet_async_send(int socket, memnet_mem_t memory, size_t offset, size_t length, int flags,
                                  memnet_job_t* job);
VIADUCT_API int memnet_async_sendv(int socket, const struct memnet_piece* pieces, int count, int flags,
                                   memnet_job_t* job);
VIADUCT_API int memnet_async_recv(int socket, memnet_mem_t memory, size_t offset, size_t length, int flags,
                                  memnet_job_t* job);
/* The result's bytes are the new socket. */
VIADUCT_API int memnet_async_accept(int socket, memnet_job_t* job);
/* From an open file, not through this program. From another host than the server's it is read here. */
VIADUCT_API int memnet_async_sendfile(int socket, int file, off_t offset, size_t length, int flags, memnet_job_t* job);
VIADUCT_API ssize_t memnet_sendfile(int socket, int file, off_t* offset, size_t length);

struct memnet_result {
  memnet_job_t job;
  ssize_t bytes; /* moved; -1: none, and why is in error */
  int error;     /* an errno value; 0: none */
  void* context; /* as it was submitted */
};
/* 1: the job has ended, and is told once. 0: it has not, by the timeout (milliseconds; -1: none). -1: errno. */
VIADUCT_API int memnet_job_wait(memnet_job_t job, int timeout_ms, struct memnet_result* result);
VIADUCT_API int memnet_job_done(memnet_job_t job, struct memnet_result* result);
/* Instead of a place among those that memnet_reap() gives: the function is called once, by the thread that finds the
 * job ended, which may be any that is in a call. Then memnet_job_done(). 1: it will be; 0: it has ended already. */
VIADUCT_API int memnet_job_notify(memnet_job_t job, void (*notify)(void*), void* argument);
/* What has not begun of it is given up; it ends with ECANCELED, or as it would have. */
VIADUCT_API int memnet_job_cancel(memnet_job_t job);

enum memnet_operation { MEMNET_SEND, MEMNET_RECV, MEMNET_ACCEPT, MEMNET_SENDFILE };
struct memnet_request {
  int operation;
  int socket;
  int flags;
  int file;
  memnet_mem_t memory;
  size_t offset; /* into the memory, or the file */
  size_t length;
  void* context;
  memnet_job_t job; /* filled in; 0: not submitted */
};
/* How many were submitted; -1, errno: not even the first. */
VIADUCT_API int memnet_submit(struct memnet_request* requests, int count);
/* Jobs that have ended, whosoever, in the order in which they did. How many; 0: none by the timeout. */
VIADUCT_API int memnet_reap(struct memnet_result* results, int most, int timeout_ms);

/* ---- many sockets */

struct memnet_event {
  int socket;
  short events; /* as poll's; told once for each change */
  void* context;
};
/* Tells of the socket from now on, and of what is there already. */
VIADUCT_API int memnet_watch(int socket, void* context);
VIADUCT_API int memnet_unwatch(int socket);
VIADUCT_API int memnet_events(struct memnet_event* events, int most, int timeout_ms);

/* Until an event or an ended job can be taken. 1: there is one; 0: none by the timeout. */
VIADUCT_API int memnet_wait(int timeout_ms);
/* A descriptor for poll, select and epoll, one per process. memnet_prepare() 1: it becomes readable as soon as there
 * may be something. 0: there is something already. After any sleep on it: look (events, reap, poll) first. */
VIADUCT_API int memnet_descriptor(void);
VIADUCT_API int memnet_prepare(void);

#ifdef __cplusplus
}
#endif
#endif
