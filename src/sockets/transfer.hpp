// Sending and receiving on an attached connection, as the system calls do it: return values and errno are theirs.
#pragma once

#include <sys/single_threaded.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>

#include "sockets/connection.hpp"
#include "sockets/few_or_many.hpp"

namespace viaduct::sockets {

// Of a call in the middle of which its connection was closed, and the number perhaps given to another: where there is
// no other thread a signal handler did it.
inline int closed_meanwhile() {
  return __libc_single_threaded != 0 ? EINTR : EBADF;
}

class SendWait;

constexpr std::size_t kMostAtOnce = 0x7fff'f000;  // bytes of one call, as the kernel has it

// What one call moves at most, of all that the pieces hold: `call(pieces, count)`.
template <class Call>
ssize_t at_most_at_once(const iovec* pieces, std::size_t count, Call&& call) {
  if (count <= 1 || Pieces(pieces, count).bytes_left() <= kMostAtOnce) [[likely]]
    return call(pieces, count);
  FewOrMany<iovec, 64> cut(count);
  std::size_t used = 0;
  for (std::size_t left = kMostAtOnce; left != 0 && used < count && used < cut.length(); ++used) {
    cut[used] = {pieces[used].iov_base, std::min(pieces[used].iov_len, left)};
    left -= cut[used].iov_len;
  }
  return call(cut.get(), used);
}

// A call that succeeds leaves errno as it was: there are programs that look at it all the same.
template <class Call>
ssize_t keeping_errno(Call&& call) {
  const int kept = errno;
  const ssize_t result = call();
  if (result >= 0) [[likely]]
    errno = kept;
  return result;
}

ssize_t stream_send(Connection& connection, int fd, const iovec* pieces, std::size_t count, int flags);
ssize_t stream_send_file(Connection& connection, int fd, int file, off_t* offset, std::size_t count);
ssize_t stream_splice(Connection& connection, int fd, int pipe, std::size_t count, unsigned flags);
// What the kernel says of bytes that it delivered, beside them: time stamps.
struct Beside {
  void* control;
  std::size_t room;
  std::size_t used = 0;
  int flags = 0;
};
ssize_t stream_receive(Connection& connection, int fd, const iovec* pieces, std::size_t count, int flags,
                       Beside* beside = nullptr);

// What those who send have in common. Whether a reset is to be told first, as errno.
bool tells_reset(Connection& connection);
// The ring is full. False: errno says why nothing more is sent. `has_some`: of this call something is.
bool goes_on_when_full(Connection& connection, int fd, SendWait& wait, bool may_wait, bool has_some);
// How the next bytes go. tcp: for good, and there may be a reset to tell now. tcp_counted: while the peer does not use
// the ring yet; own().raw_senders counts this one already. asked_back: to be asked again after
// hand_back_while_read(), other_way: after change_over_for_rest(); next_route() never says so.
enum class Route { ring, tcp, tcp_counted, asked_back, other_way };
Route next_route(Connection& connection, int fd);

// Under the sending lock, before something is put into the ring: its place among all that is sent (order.hpp).
void mark_order(Connection& connection, Sender& ring);
// Nothing was put there after all. What comes instead is to be heard behind what went over TCP before, as this was.
void unmark_order(Connection& connection, SentMark mark);

// The usual case in few instructions: a message that fits a line, on a connection that is on the ring in that
// direction. Zero, or false: take the long way.
bool quick_send(Connection& connection, int fd, const void* bytes, std::size_t size);
std::size_t quick_receive(Connection& connection, int fd, void* bytes, std::size_t size);

// Unread bytes on TCP that are data, and then what is in the ring.
int bytes_unread(Connection& connection, int fd);

// What poll() would say, without asking the kernel: the ring only.
bool ring_readable(Connection& connection, int fd);
// True as well where TCP is to be asked.
bool ring_writable(Connection& connection, Sender::Growth growth = Sender::Growth::counted);

// Its sending half is not closed, nor back on TCP. Else nobody tells us of room: who waits for it looks by himself. To
// go back to TCP instead would leave behind all that is unread.
bool peer_rings_for_room(const Connection& connection);

// Whether the direction is on the ring, so that what the kernel says about the socket is doorbells.
bool sends_on_ring(const Connection& connection);
bool receives_on_ring(const Connection& connection);
// Some of what comes, or all, may be on TCP.
bool receives_over_tcp(const Connection& connection);

// After a doorbell, or before sleeping: follows the sender, takes doorbells off if the ring is empty. True: there is
// something for a reader; `kernel_readable` is what poll() said of the socket, `own_sleeps` how often the caller itself
// is among those who sleep on the connection.
bool readable_after_all(Connection& connection, int fd, bool kernel_readable, std::uint32_t own_sleeps = 0);

// Is the descriptor non-blocking?
bool is_nonblocking(Connection& connection, int fd);

// What a signal handler is told that uses the very half which its thread is in the middle of: -1 and EAGAIN, or EINTR
// of a call that would have waited.
ssize_t interrupted_here(Connection& connection, int fd, int flags);

}  // namespace viaduct::sockets
