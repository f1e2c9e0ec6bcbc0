#include "sockets/tcp_position.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <cstddef>

#include "sockets/kernel.hpp"

namespace viaduct::sockets {

namespace {

bool ask_once(int fd, tcp_info& info) {
  socklen_t size = sizeof info;
  info = {};
  return kernel::libc().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         size >= offsetof(tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans;
}

// The kernel notes the state before it locks the socket to note the counts: what comes in between, an end of stream
// that counts as a byte, would be in one of them only. So it is asked until it says the same twice.
bool ask(int fd, tcp_info& info) {
  tcp_info before;
  if (!ask_once(fd, before)) return false;
  for (;; before = info) {
    if (!ask_once(fd, info)) return false;
    if (info.tcpi_state == before.tcpi_state && info.tcpi_bytes_received == before.tcpi_bytes_received &&
        info.tcpi_bytes_sent == before.tcpi_bytes_sent && info.tcpi_notsent_bytes == before.tcpi_notsent_bytes)
      return true;
  }
}

// <linux/tcp.h> and <netinet/tcp.h> exclude each other.
enum State : std::uint8_t {
  kFinWait1 = 4,
  kFinWait2 = 5,
  kTimeWait = 6,
  kClosed = 7,
  kCloseWait = 8,
  kLastAck = 9,
  kClosing = 11
};

// The peer's FIN has come. It counts as a byte received.
bool has_end(const tcp_info& info) {
  return info.tcpi_state == kCloseWait || info.tcpi_state == kLastAck || info.tcpi_state == kClosing ||
         info.tcpi_state == kTimeWait;
}

}  // namespace

bool tcp_is_alive(int fd) {
  tcp_info info;
  return ask_once(fd, info) && info.tcpi_state != kClosed;
}

bool tcp_peer_ended(int fd) {
  tcp_info info;
  return ask(fd, info) && (info.tcpi_state == kClosed || has_end(info));
}

int tcp_unread(int fd) {
  int bytes = 0;
  return kernel::libc().ioctl(fd, SIOCINQ, &bytes) == 0 ? bytes : -1;
}

// Where urgent data is part of the stream, all is counted.
int tcp_unread_past_mark(int fd) {
  const auto& libc = kernel::libc();
  int in_line = 0;
  socklen_t size = sizeof in_line;
  const bool is_so = libc.getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, &size) != 0 || in_line != 0;
  const auto make = [&](int value) { libc.setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &value, sizeof value); };
  if (!is_so) make(1);
  const int bytes = tcp_unread(fd);
  if (!is_so) make(0);
  return bytes;
}

namespace {

struct Counts {
  std::uint64_t sent;          // and what waits to be
  std::uint64_t acknowledged;  // and what waits to be
};

// Acknowledgements may come in at any time: asked until none did meanwhile.
bool count(int fd, Counts& counts) {
  constexpr int kMostTries = 1000;
  for (int tries = 0; tries < kMostTries; ++tries) {
    tcp_info info, again;
    int waiting = 0;
    if (!ask(fd, info) || kernel::libc().ioctl(fd, SIOCOUTQ, &waiting) != 0 || !ask_once(fd, again)) return false;
    if (info.tcpi_bytes_acked != again.tcpi_bytes_acked || info.tcpi_bytes_sent != again.tcpi_bytes_sent ||
        info.tcpi_notsent_bytes != again.tcpi_notsent_bytes || info.tcpi_state != again.tcpi_state)
      continue;
    // Our own FIN counts as a byte, in the one as long as it was not sent, in the other from then on.
    const bool ending = info.tcpi_state == kFinWait1 || info.tcpi_state == kLastAck || info.tcpi_state == kClosing;
    const bool ended = ending || info.tcpi_state == kFinWait2 || info.tcpi_state == kTimeWait;
    const std::uint64_t not_sent = info.tcpi_notsent_bytes - (ending && info.tcpi_notsent_bytes != 0 ? 1 : 0);
    counts.sent = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + not_sent;
    counts.acknowledged = info.tcpi_bytes_acked + static_cast<std::uint32_t>(waiting) - (ended ? 1 : 0);
    return true;
  }
  return false;
}

}  // namespace

bool tcp_written(int fd, std::uint64_t& bytes, Opened opened) {
  Counts counts;
  if (!count(fd, counts)) return false;
  const bool known = opened != Opened::unknown;
  bytes = known ? counts.acknowledged - static_cast<std::uint64_t>(opened) : counts.sent;
  return known || counts.acknowledged - counts.sent <= 1;
}

bool tcp_counts_agree(int fd, Opened& opened) {
  Counts counts;
  if (!count(fd, counts) || counts.acknowledged - counts.sent > 1) return false;
  const Opened found = counts.acknowledged == counts.sent ? Opened::by_peer : Opened::by_us;
  if (opened == Opened::unknown) opened = found;
  return opened == found;
}

// The two numbers are asked for one after the other: something may arrive in between.
bool tcp_read(int fd, std::uint64_t& bytes, int (*unread)(int)) {
  for (;;) {
    const int before = unread(fd);
    tcp_info info;
    if (before < 0 || !ask(fd, info)) return false;
    if (unread(fd) != before) continue;
    if (info.tcpi_state == kClosed) return false;
    bytes = info.tcpi_bytes_received - (has_end(info) ? 1 : 0) - static_cast<std::uint64_t>(before);
    return true;
  }
}

}  // namespace viaduct::sockets
