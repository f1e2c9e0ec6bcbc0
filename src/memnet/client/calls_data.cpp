// Plain sending and receiving: one copy, from or to the program's memory.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <climits>

#include "memnet/client/call.hpp"

using namespace viaduct;
using namespace viaduct::memnet;

namespace {

constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR | MSG_CONFIRM;
constexpr int kReceiveFlags = MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_TRUNC | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;

// -1: longer than can be said.
ssize_t length_of(std::span<const iovec> pieces) {
  std::size_t length = 0;
  for (const iovec& piece : pieces)
    if (__builtin_add_overflow(length, piece.iov_len, &length) || length > SSIZE_MAX) return -1;
  return static_cast<ssize_t>(length);
}

int broken_pipe(int flags) {
  if ((flags & MSG_NOSIGNAL) == 0) (void)::pthread_kill(::pthread_self(), SIGPIPE);
  return fail(EPIPE);
}

// Up to `most` bytes of the pieces, from `offset` on.
std::size_t part_of(std::span<const iovec> pieces, std::size_t offset, std::size_t most, std::span<iovec> part) {
  std::size_t count = 0;
  for (const iovec& piece : pieces) {
    if (offset >= piece.iov_len) {
      offset -= piece.iov_len;
      continue;
    }
    if (most == 0 || count == part.size()) break;
    const std::size_t length = std::min(piece.iov_len - offset, most);
    part[count++] = {static_cast<std::byte*>(piece.iov_base) + offset, length};
    most -= length;
    offset = 0;
  }
  return count;
}

std::size_t bytes_in(std::span<const iovec> pieces) {
  std::size_t sum = 0;
  for (const iovec& piece : pieces) sum += piece.iov_len;
  return sum;
}

ssize_t send_pieces(int descriptor, std::span<const iovec> pieces, int flags) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if ((flags & MSG_OOB) != 0) return fail(EOPNOTSUPP);  // urgent data has no place in a pipeline
  if ((flags & ~kSendFlags) != 0) return fail(EOPNOTSUPP);
  const ssize_t whole = length_of(pieces);
  if (whole < 0) return fail(EINVAL);
  ClientSocket& socket = call.socket();
  const bool may_wait = !socket.nonblocking && (flags & MSG_DONTWAIT) == 0;
  const auto length = static_cast<std::size_t>(whole);
  std::size_t sent = 0;
  const auto so_far = [&](int error) -> ssize_t { return sent > 0 ? static_cast<ssize_t>(sent) : fail(error); };
  const auto has_room = [&] { return socket.outstanding < kSendWindow && socket.line->has_room(); };
  const auto stops = [&] {
    return socket.failed || socket.output_over || socket.line == nullptr || socket.descriptor < 0;
  };
  for (bool looked = false;;) {
    if (socket.descriptor < 0) return so_far(EBADF);
    if (socket.error != 0 && !socket.connecting)
      return sent > 0 ? static_cast<ssize_t>(sent) : fail(std::exchange(socket.error, 0));
    if (socket.output_over || socket.failed) return sent > 0 ? static_cast<ssize_t>(sent) : broken_pipe(flags);
    if (socket.connecting) {
      if (!may_wait) return fail(EAGAIN);
      if (call.wait(call.send_deadline(), [&] { return !socket.connecting || stops(); }) != Client::Waited::ready)
        return fail(EAGAIN);
      continue;
    }
    if (!socket.connected) return broken_pipe(flags);
    if (sent == length) return whole;
    const std::size_t room =
        std::min<std::size_t>(kSendWindow - socket.outstanding, socket.line->channel().largest_fragment());
    iovec part[64];
    const std::size_t count = part_of(pieces, sent, room, part);
    const std::size_t bytes = bytes_in({part, count});
    const bool more = (flags & MSG_MORE) != 0 || sent + bytes < length;
    if (bytes > 0 && socket.line->try_send(more ? Ask::send_more : Ask::send, socket.number, {part, count})) {
      socket.outstanding += static_cast<std::uint32_t>(bytes);
      sent += bytes;
      continue;
    }
    if (!std::exchange(looked, true)) {
      call.unlock();
      call.client().poll();
      call.lock();
      continue;
    }
    if (!may_wait) return so_far(EAGAIN);
    switch (call.wait(call.send_deadline(), [&] { return stops() || has_room(); })) {
      case Client::Waited::timeout:
        return so_far(EAGAIN);
      case Client::Waited::interrupted:
        return so_far(EINTR);
      case Client::Waited::ready:
        break;
    }
  }
}

ssize_t receive_pieces(int descriptor, std::span<const iovec> pieces, int flags) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if ((flags & MSG_OOB) != 0) return fail(EOPNOTSUPP);
  if ((flags & ~kReceiveFlags) != 0) return fail(EOPNOTSUPP);
  const ssize_t whole = length_of(pieces);
  if (whole < 0) return fail(EINVAL);
  ClientSocket& socket = call.socket();
  const bool may_wait = !socket.nonblocking && (flags & MSG_DONTWAIT) == 0;
  const bool peek = (flags & MSG_PEEK) != 0;
  const auto length = static_cast<std::size_t>(whole);
  const bool all = (flags & MSG_WAITALL) != 0 && !peek;
  const Deadline deadline = call.receive_deadline();
  std::size_t got = 0;
  const auto so_far = [&](int error) -> ssize_t { return got > 0 ? static_cast<ssize_t>(got) : fail(error); };
  for (bool looked = false;;) {
    if (socket.descriptor < 0) return so_far(EBADF);
    if (socket.listening || (!socket.connected && !socket.connecting && !socket.failed && socket.error == 0))
      return fail(ENOTCONN);
    if (length == 0 && !socket.failed) return 0;
    if (socket.stashed() > 0 && socket.held.empty() && socket.posted == 0) {
      iovec part[64];
      const std::size_t count = part_of(pieces, got, length - got, part);
      got += call.client().take_from_stash(socket, {part, count}, peek);
      if (got == length || !all) return static_cast<ssize_t>(got);
      looked = false;
      continue;
    }
    if (got > 0 && !all) return static_cast<ssize_t>(got);
    if (!socket.connecting && socket.error != 0)
      return got > 0 ? static_cast<ssize_t>(got) : fail(std::exchange(socket.error, 0));
    if (socket.input_over || socket.failed) return static_cast<ssize_t>(got);
    // What comes is pushed from now on, behind what jobs have asked for.
    if (socket.line != nullptr && (!socket.push || socket.quieting) && socket.held.empty()) Client::push(socket);
    if (!std::exchange(looked, true)) {
      call.unlock();
      call.client().poll();
      call.lock();
      continue;
    }
    if (!may_wait) return so_far(EAGAIN);
    switch (call.wait(deadline, [&] {
      return (socket.stashed() > 0 && socket.held.empty() && socket.posted == 0) || socket.input_over ||
             socket.failed || socket.descriptor < 0 || (socket.error != 0 && !socket.connecting);
    })) {
      case Client::Waited::timeout:
        return so_far(EAGAIN);
      case Client::Waited::interrupted:
        return so_far(EINTR);
      case Client::Waited::ready:
        break;
    }
  }
}

}  // namespace

ssize_t memnet_send(int socket, const void* bytes, size_t length, int flags) {
  const iovec piece{const_cast<void*>(bytes), length};
  return send_pieces(socket, {&piece, 1}, flags);
}

ssize_t memnet_sendv(int socket, const iovec* pieces, int count) {
  if (count < 0 || count > IOV_MAX) return fail(EINVAL);
  return send_pieces(socket, {pieces, static_cast<std::size_t>(count)}, 0);
}

ssize_t memnet_sendmsg(int socket, const msghdr* message, int flags) {
  if (message == nullptr) return fail(EFAULT);
  if (message->msg_iovlen > IOV_MAX) return fail(EMSGSIZE);
  if (message->msg_controllen != 0) return fail(EOPNOTSUPP);  // TCP carries none that we know
  return send_pieces(socket, {message->msg_iov, message->msg_iovlen}, flags);
}

ssize_t memnet_recv(int socket, void* bytes, size_t length, int flags) {
  const iovec piece{bytes, length};
  return receive_pieces(socket, {&piece, 1}, flags);
}

ssize_t memnet_recvv(int socket, const iovec* pieces, int count) {
  if (count < 0 || count > IOV_MAX) return fail(EINVAL);
  return receive_pieces(socket, {pieces, static_cast<std::size_t>(count)}, 0);
}

ssize_t memnet_recvmsg(int socket, msghdr* message, int flags) {
  if (message == nullptr) return fail(EFAULT);
  if (message->msg_iovlen > IOV_MAX) return fail(EMSGSIZE);
  const ssize_t got = receive_pieces(socket, {message->msg_iov, message->msg_iovlen}, flags);
  if (got < 0) return got;
  message->msg_namelen = 0;
  message->msg_controllen = 0;
  message->msg_flags = 0;
  return got;
}
