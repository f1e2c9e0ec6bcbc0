// send, recv and their kin.
#include <netinet/tcp.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/kernel_or_ring.hpp"
#include "sockets/messages_limit.hpp"
#include "sockets/rights.hpp"
#include "sockets/short_message.hpp"
#include "sockets/table.hpp"
#include "sockets/transfer.hpp"
#include "sockets/user_memory.hpp"

namespace viaduct::sockets {

namespace {

using kernel::libc;

constexpr int kNotForTheRing = MSG_OOB | MSG_ZEROCOPY;
constexpr int kNotUsual = kNotForTheRing | MSG_MORE;
constexpr int kNotOfTheStream = MSG_OOB | MSG_ERRQUEUE;  // the kernel has it, whatever is in the ring

// The usual case of a call, to be tried first: everything else is in a function of its own, so that this needs no
// registers saved. 0: to be done otherwise.
[[gnu::always_inline]] inline std::size_t receive_at_once(int fd, void* buffer, std::size_t size, int flags) {
  Connection* const connection = find_connection(fd);
  if (connection == nullptr || (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) != 0) return 0;
  return receive_short(*connection, fd, buffer, size);
}
[[gnu::always_inline]] inline std::size_t send_at_once(int fd, const void* buffer, std::size_t size, int flags) {
  Connection* const connection = find_connection(fd);
  if (connection == nullptr || (flags & kNotUsual) != 0) return 0;
  return send_short(*connection, fd, buffer, size);
}

// The same, a little later.
std::size_t receive_quickly(Connection& connection, int fd, void* buffer, std::size_t size, int flags) {
  if (!connection.attached() || (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) != 0 ||
      connection.low_water.load(std::memory_order_relaxed) != 1)
    return 0;
  act_on_cancellation();
  return quick_receive(connection, fd, buffer, size);
}
bool send_quickly(Connection& connection, int fd, const void* buffer, std::size_t size, int flags) {
  act_on_cancellation();
  return connection.attached() && (flags & kNotUsual) == 0 && quick_send(connection, fd, buffer, size);
}

ssize_t receive_one(Connection& connection, int fd, void* buffer, std::size_t size, int flags) {
  if ((flags & kNotOfTheStream) != 0) [[unlikely]]
    return libc().recv(fd, buffer, size, flags);
  const iovec piece{buffer, std::min(size, kMostAtOnce)};
  return stream_receive(connection, fd, &piece, 1, flags);
}

ssize_t send_one(Connection& connection, int fd, const void* buffer, std::size_t size, int flags) {
  const iovec piece{const_cast<void*>(buffer), std::min(size, kMostAtOnce)};
  return stream_send(connection, fd, &piece, 1, flags);
}

ssize_t receive_pieces(Connection& connection, int fd, const iovec* pieces, std::size_t count, int flags,
                       Beside* beside = nullptr) {
  return at_most_at_once(pieces, count,
                         [&](auto... cut) { return stream_receive(connection, fd, cut..., flags, beside); });
}
ssize_t send_pieces(Connection& connection, int fd, const iovec* pieces, std::size_t count, int flags) {
  return at_most_at_once(pieces, count, [&](auto... cut) { return stream_send(connection, fd, cut..., flags); });
}

// recv() of no bytes waits for some, unlike read().
ssize_t receive_nothing(Connection& connection, int fd, int flags) {
  char byte;
  const ssize_t there = receive_one(connection, fd, &byte, 1, (flags & (MSG_DONTWAIT | kNotOfTheStream)) | MSG_PEEK);
  return there < 0 ? -1 : 0;
}

// TCP_INQ; the end counts as a byte.
void say_what_is_left(Connection& connection, int fd, msghdr& message, std::size_t room) {
  const int left = bytes_unread(connection, fd) + (connection.peer_says_end() ? 1 : 0);
  if (message.msg_control == nullptr || room < CMSG_LEN(sizeof left)) {
    message.msg_flags |= MSG_CTRUNC;
    return;
  }
  message.msg_controllen = std::min(CMSG_SPACE(sizeof left), room);
  auto* const header = static_cast<cmsghdr*>(message.msg_control);
  header->cmsg_level = SOL_TCP;
  header->cmsg_type = TCP_CM_INQ;
  header->cmsg_len = CMSG_LEN(sizeof left);
  std::memcpy(CMSG_DATA(header), &left, sizeof left);
}

ssize_t receive_message(Connection& connection, int fd, msghdr& message, int flags) {
  const bool bad_name = message.msg_name != nullptr && message.msg_namelen > INT_MAX;
  if ((flags & kNotOfTheStream) != 0 || bad_name) return libc().recvmsg(fd, &message, flags);
  const bool nothing = Pieces(message.msg_iov, message.msg_iovlen).done();
  Beside beside{message.msg_control, message.msg_controllen};
  const ssize_t got = nothing ? receive_nothing(connection, fd, flags)
                              : receive_pieces(connection, fd, message.msg_iov, message.msg_iovlen, flags, &beside);
  if (got < 0) return got;
  if (message.msg_name != nullptr) message.msg_namelen = 0;
  message.msg_controllen = beside.used;
  message.msg_flags = (flags & MSG_CMSG_CLOEXEC) | beside.flags;
  const bool is_told = (beside.used | static_cast<unsigned>(beside.flags)) != 0;
  if (connection.tells_unread.load(std::memory_order_relaxed) && !is_told) [[unlikely]]
    say_what_is_left(connection, fd, message, beside.room);
  return got;
}

// The kernel has the right answer. On the ring bad memory is a fault, as docs/sockets.md says: nothing is asked there.
bool bad_pieces(const Connection& connection, const iovec* pieces, std::size_t count) {
  if (count > IOV_MAX) return true;
  if (!connection.attached() && !is_readable(pieces, count * sizeof *pieces)) return true;
  return std::any_of(pieces, pieces + count, [](const iovec& piece) { return piece.iov_len > SSIZE_MAX; });
}
bool bad_pieces(const Connection& connection, const iovec* pieces, int count) {
  return count < 0 || bad_pieces(connection, pieces, static_cast<std::size_t>(count));
}
bool bad_message(const Connection& connection, const msghdr* message) {
  if (!connection.attached() && !is_readable(message)) return true;
  return bad_pieces(connection, message->msg_iov, message->msg_iovlen);
}

constexpr socklen_t kLongestName = sizeof(sockaddr_storage);
constexpr unsigned kMostMessages = UIO_MAXIOV;  // of one sendmmsg()

// Asked without a byte to send; an error that waits for this call is told by it.
bool is_refused(int fd, const msghdr& given) {
  if (given.msg_controllen == 0 && given.msg_namelen <= kLongestName) [[likely]]
    return false;
  msghdr message = given;
  message.msg_iovlen = 0;
  return libc().sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EPIPE && errno != EAGAIN;
}

// Before a send: what only the kernel can do. Urgent data is in the way of counting what came before the ring. And who
// sends without copies is told when the kernel is done with the bytes, so it has to carry them; but programs ask for
// the option just to see whether it is there, and the flag without it is nothing.
void leave_to_kernel_for(int flags, Connection& connection, int fd) {
  if ((flags & kNotForTheRing) == 0 || connection.life.load() == Life::plain) [[likely]]
    return;
  if ((flags & MSG_OOB) != 0) {
    if (!connection.attached()) make_plain(connection, fd, Why::handed_back);
    return;
  }
  int wanted = 0;
  socklen_t size = sizeof wanted;
  if (libc().getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &wanted, &size) == 0 && wanted != 0)
    make_plain(connection, fd, Why::kernel_feature);
}

// Of preadv2() and pwritev2() at no place of their own: the connection to go on with. What flags mean that are not
// known here is the kernel's to say, which then has the connection again.
Connection* connection_for_flags(int fd, off_t offset, int flags) {
  constexpr int kNoAppend = 0x20;
  constexpr int kHarmless = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | kNoAppend;
  Connection* const connection = offset == -1 ? find_connection(fd) : nullptr;
  if (connection == nullptr || (flags & ~kHarmless) == 0) return connection;
  make_plain(*connection, fd, Why::kernel_feature);
  return nullptr;
}
int message_flags(int flags) {
  return (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
}

[[gnu::noinline]] ssize_t recv_otherwise(int fd, void* buffer, size_t size, int flags) {
  Connection* const connection = find_connection(fd);
  const auto call = [&] { return libc().recv(fd, buffer, size, flags); };
  if (connection == nullptr) return call();
  if (const std::size_t got = receive_quickly(*connection, fd, buffer, size, flags); got != 0)
    return static_cast<ssize_t>(got);
  return receiving(*connection, fd, call, [&] {
    if (size == 0) [[unlikely]]
      return receive_nothing(*connection, fd, flags);
    return receive_one(*connection, fd, buffer, size, flags);
  });
}

[[gnu::noinline]] ssize_t read_otherwise(int fd, void* buffer, size_t size) {
  Connection* const connection = find_connection(fd);
  const auto call = [&] { return libc().read(fd, buffer, size); };
  if (connection == nullptr) return call();
  if (const std::size_t got = receive_quickly(*connection, fd, buffer, size, 0); got != 0)
    return static_cast<ssize_t>(got);
  return receiving(*connection, fd, call, [&] { return receive_one(*connection, fd, buffer, size, 0); });
}

[[gnu::noinline]] ssize_t recvfrom_otherwise(int fd, void* buffer, size_t size, int flags, sockaddr* from,
                                             socklen_t* length) {
  Connection* const connection = find_connection(fd);
  const auto call = [&] { return libc().recvfrom(fd, buffer, size, flags, from, length); };
  if (connection == nullptr) return call();
  if (from == nullptr)
    if (const std::size_t got = receive_quickly(*connection, fd, buffer, size, flags); got != 0)
      return static_cast<ssize_t>(got);
  return receiving(*connection, fd, call, [&] {
    const ssize_t got =
        size != 0 ? receive_one(*connection, fd, buffer, size, flags) : receive_nothing(*connection, fd, flags);
    if (got >= 0 && from != nullptr && length != nullptr) *length = 0;  // a stream names no sender
    return got;
  });
}

[[gnu::noinline]] ssize_t send_otherwise(int fd, const void* buffer, size_t size, int flags) {
  Connection* const connection = find_connection(fd);
  if (connection == nullptr) return libc().send(fd, buffer, size, flags);
  if (send_quickly(*connection, fd, buffer, size, flags)) return static_cast<ssize_t>(size);
  leave_to_kernel_for(flags, *connection, fd);
  if (connection->attached()) [[likely]]
    return send_one(*connection, fd, buffer, size, flags);
  const auto* const bytes = static_cast<const char*>(buffer);
  if (size > kFirstPart && (flags & MSG_OOB) == 0)
    return sending_parts(
        *connection, fd, size,
        [&](std::size_t at, std::size_t part) { return libc().send(fd, bytes + at, part, flags | quiet_behind(at)); },
        [&](std::size_t at) { return send_one(*connection, fd, bytes + at, size - at, flags | quiet_behind(at)); });
  return sending(
      *connection, fd, [&] { return libc().send(fd, buffer, size, flags); },
      [&] { return send_one(*connection, fd, buffer, size, flags); }, size);
}

[[gnu::noinline]] ssize_t write_otherwise(int fd, const void* buffer, size_t size) {
  Connection* const connection = find_connection(fd);
  if (connection == nullptr) return libc().write(fd, buffer, size);
  if (send_quickly(*connection, fd, buffer, size, 0)) return static_cast<ssize_t>(size);
  if (connection->attached()) [[likely]]
    return send_one(*connection, fd, buffer, size, 0);
  const auto* const bytes = static_cast<const char*>(buffer);
  if (size > kFirstPart)
    return sending_parts(
        *connection, fd, size,
        [&](std::size_t at, std::size_t part) { return libc().send(fd, bytes + at, part, quiet_behind(at)); },
        [&](std::size_t at) { return send_one(*connection, fd, bytes + at, size - at, quiet_behind(at)); });
  return sending(
      *connection, fd, [&] { return libc().write(fd, buffer, size); },
      [&] { return send_one(*connection, fd, buffer, size, 0); }, size);
}

[[gnu::noinline]] ssize_t sendto_otherwise(int fd, const void* buffer, size_t size, int flags, const sockaddr* to,
                                           socklen_t length) {
  Connection* const connection = find_connection(fd);
  const auto call = [&] { return libc().sendto(fd, buffer, size, flags, to, length); };
  if (connection == nullptr) return call();
  if (send_quickly(*connection, fd, buffer, size, flags)) return static_cast<ssize_t>(size);
  leave_to_kernel_for(flags, *connection, fd);
  return sending(*connection, fd, call, [&] { return send_one(*connection, fd, buffer, size, flags); });
}

// A receiver that found nothing: what comes at once is taken without any detour.
template <class Otherwise>
[[gnu::always_inline]] inline ssize_t receive_soon(int fd, void* buffer, size_t size, int flags,
                                                   Otherwise&& otherwise) {
  Connection* const connection = find_connection(fd);
  if (connection != nullptr && (flags & ~MSG_NOSIGNAL) == 0)
    if (const std::size_t got = receive_short_soon(*connection, fd, buffer, size); got != 0)
      return static_cast<ssize_t>(got);
  return otherwise();
}
[[gnu::noinline, gnu::hot]] ssize_t recv_soon(int fd, void* buffer, size_t size, int flags) {
  return receive_soon(fd, buffer, size, flags, [=] { return recv_otherwise(fd, buffer, size, flags); });
}
[[gnu::noinline, gnu::hot]] ssize_t read_soon(int fd, void* buffer, size_t size) {
  return receive_soon(fd, buffer, size, 0, [=] { return read_otherwise(fd, buffer, size); });
}

}  // namespace

extern "C" {

[[gnu::hot]] VIADUCT_EXPORT ssize_t recv(int fd, void* buffer, size_t size, int flags) {
  if (const std::size_t got = receive_at_once(fd, buffer, size, flags); got != 0) [[likely]]
    return static_cast<ssize_t>(got);
  return recv_soon(fd, buffer, size, flags);
}

[[gnu::hot]] VIADUCT_EXPORT ssize_t read(int fd, void* buffer, size_t size) {
  if (const std::size_t got = receive_at_once(fd, buffer, size, 0); got != 0) [[likely]]
    return static_cast<ssize_t>(got);
  return read_soon(fd, buffer, size);
}

[[gnu::hot]] VIADUCT_EXPORT ssize_t recvfrom(int fd, void* buffer, size_t size, int flags, sockaddr* from,
                                             socklen_t* length) {
  if (from == nullptr)
    if (const std::size_t got = receive_at_once(fd, buffer, size, flags); got != 0) [[likely]]
      return static_cast<ssize_t>(got);
  return recvfrom_otherwise(fd, buffer, size, flags, from, length);
}

VIADUCT_EXPORT ssize_t readv(int fd, const iovec* pieces, int count) {
  Connection* const connection = find_connection(fd);
  const auto call = [&] { return libc().readv(fd, pieces, count); };
  if (connection == nullptr || bad_pieces(*connection, pieces, count)) return call();
  return receiving(*connection, fd, call,
                   [&] { return receive_pieces(*connection, fd, pieces, static_cast<std::size_t>(count), 0); });
}

// At no place of its own: readv() with flags.
VIADUCT_EXPORT ssize_t preadv2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  const auto call = [&] { return libc().preadv2(fd, pieces, count, offset, flags); };
  Connection* const connection = connection_for_flags(fd, offset, flags);
  if (connection == nullptr || bad_pieces(*connection, pieces, count)) return call();
  return receiving(*connection, fd, call, [&] {
    return receive_pieces(*connection, fd, pieces, static_cast<std::size_t>(count), message_flags(flags));
  });
}
VIADUCT_EXPORT ssize_t preadv64v2(int fd, const iovec* pieces, int count, off64_t offset, int flags) {
  return preadv2(fd, pieces, count, offset, flags);
}

VIADUCT_EXPORT ssize_t recvmsg(int fd, msghdr* message, int flags) {
  Connection* const connection = find_connection(fd);
  const auto call = [&] { return libc().recvmsg(fd, message, flags); };
  if (connection == nullptr || bad_message(*connection, message)) return call();
  return receiving(*connection, fd, call, [&] { return receive_message(*connection, fd, *message, flags); });
}

// Messages of a stream are what each buffer takes. The time limit is looked at between them only, as the kernel does.
VIADUCT_EXPORT int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  Connection* const connection = find_connection(fd);
  if (connection == nullptr || (timeout != nullptr && (!is_readable(timeout) || !is_good(*timeout))))
    return libc().recvmmsg(fd, messages, count, flags, timeout);
  if (!connection->attached()) {
    const auto call = [&] { return libc().recvmmsg(fd, messages, count, flags, timeout); };
    return static_cast<int>(
        receiving(*connection, fd, call, [&] { return recvmmsg(fd, messages, count, flags, timeout); }));
  }
  // An error that waits is told before anything is received, unlike by the other calls.
  int error = 0;
  socklen_t size = sizeof error;
  if (libc().getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0) return errno = error, -1;
  unsigned done = 0;
  for (MessagesLimit limit(timeout); done < count && !(done != 0 && limit.is_over()); ++done) {
    const bool may_wait = done == 0 || (flags & MSG_WAITFORONE) == 0;
    const ssize_t got = receive_message(*connection, fd, messages[done].msg_hdr,
                                        (flags & ~MSG_WAITFORONE) | (may_wait ? 0 : MSG_DONTWAIT));
    if (got < 0) break;
    messages[done].msg_len = static_cast<unsigned>(got);
  }
  return done == 0 && count != 0 ? -1 : static_cast<int>(done);
}

[[gnu::hot]] VIADUCT_EXPORT ssize_t send(int fd, const void* buffer, size_t size, int flags) {
  if (const std::size_t sent = send_at_once(fd, buffer, size, flags); sent != 0) [[likely]]
    return static_cast<ssize_t>(sent);
  return send_otherwise(fd, buffer, size, flags);
}

[[gnu::hot]] VIADUCT_EXPORT ssize_t write(int fd, const void* buffer, size_t size) {
  if (const std::size_t sent = send_at_once(fd, buffer, size, 0); sent != 0) [[likely]]
    return static_cast<ssize_t>(sent);
  return write_otherwise(fd, buffer, size);
}

[[gnu::hot]] VIADUCT_EXPORT ssize_t sendto(int fd, const void* buffer, size_t size, int flags, const sockaddr* to,
                                           socklen_t length) {
  if (to != nullptr && length > kLongestName) [[unlikely]]
    return libc().sendto(fd, buffer, size, flags, to, length);  // which refuses it
  if (const std::size_t sent = send_at_once(fd, buffer, size, flags); sent != 0) [[likely]]
    return static_cast<ssize_t>(sent);
  return sendto_otherwise(fd, buffer, size, flags, to, length);
}

VIADUCT_EXPORT ssize_t writev(int fd, const iovec* pieces, int count) {
  Connection* const connection = find_connection(fd);
  const auto call = [&] { return libc().writev(fd, pieces, count); };
  if (connection == nullptr || bad_pieces(*connection, pieces, count)) return call();
  if (Pieces(pieces, static_cast<std::size_t>(count)).done())
    return call();  // nothing, whatever the connection's state
  return sending(*connection, fd, call,
                 [&] { return send_pieces(*connection, fd, pieces, static_cast<std::size_t>(count), 0); });
}

VIADUCT_EXPORT ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  const auto call = [&] { return libc().pwritev2(fd, pieces, count, offset, flags); };
  Connection* const connection = connection_for_flags(fd, offset, flags);
  if (connection == nullptr || bad_pieces(*connection, pieces, count)) return call();
  if (Pieces(pieces, static_cast<std::size_t>(count)).done()) return call();
  return sending(*connection, fd, call, [&] {
    return send_pieces(*connection, fd, pieces, static_cast<std::size_t>(count), message_flags(flags));
  });
}
VIADUCT_EXPORT ssize_t pwritev64v2(int fd, const iovec* pieces, int count, off64_t offset, int flags) {
  return pwritev2(fd, pieces, count, offset, flags);
}

VIADUCT_EXPORT ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  Connection* const connection = find_connection(fd);
  const auto call = [&] { return libc().sendmsg(fd, message, flags); };
  if (connection == nullptr) {
    release_passed(message);
    return call();
  }
  if (bad_message(*connection, message)) return call();
  leave_to_kernel_for(flags, *connection, fd);
  return sending(*connection, fd, call, [&] {
    if (is_refused(fd, *message)) return ssize_t{-1};
    return send_pieces(*connection, fd, message->msg_iov, message->msg_iovlen, flags);
  });
}

VIADUCT_EXPORT int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  Connection* const connection = find_connection(fd);
  count = std::min(count, kMostMessages);
  const auto call = [&] { return libc().sendmmsg(fd, messages, count, flags); };
  if (connection == nullptr) {
    for (unsigned i = 0; i < count && is_readable(&messages[i]); ++i) release_passed(&messages[i].msg_hdr);
    return call();
  }
  leave_to_kernel_for(flags, *connection, fd);
  if (!connection->attached())
    return static_cast<int>(sending(*connection, fd, call, [&] { return sendmmsg(fd, messages, count, flags); }));
  unsigned done = 0;
  for (; done < count; ++done) {
    const msghdr& message = messages[done].msg_hdr;
    if (bad_pieces(*connection, message.msg_iov, message.msg_iovlen)) {
      (void)libc().sendmsg(fd, &message, flags);  // which says why
      break;
    }
    if (is_refused(fd, message)) break;
    const std::size_t whole = Pieces(message.msg_iov, message.msg_iovlen).bytes_left();
    const ssize_t sent = send_pieces(*connection, fd, message.msg_iov, message.msg_iovlen, flags);
    if (sent < 0) break;
    messages[done].msg_len = static_cast<unsigned>(sent);
    if (static_cast<std::size_t>(sent) < whole) return static_cast<int>(done + 1);  // the next must not follow this
  }
  return done == 0 && count != 0 ? -1 : static_cast<int>(done);
}

}  // extern "C"

}  // namespace viaduct::sockets
