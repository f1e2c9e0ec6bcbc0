#include "copy/link_handshake.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <new>

#include "base/fd.hpp"
#include "copy/link_format.hpp"

namespace viaduct::copy {

namespace {

using handshake_format::Hello;
using handshake_format::Verdict;
constexpr std::uint64_t kMagic = handshake_format::kMagic;

Status wait_for(int socket, short events, Deadline deadline) {
  const Clock& clock = Clock::steady();
  for (;;) {
    timespec left{};
    if (!deadline.is_never()) left = to_timespec(deadline.left_ns(clock.now_ns()));
    pollfd entry{socket, events, 0};
    const int count = ::ppoll(&entry, 1, deadline.is_never() ? nullptr : &left, nullptr);
    if (count > 0) return {};
    if (count == 0) return Error(ETIMEDOUT, "the peer does not answer");
    if (errno != EINTR) return Error::from_errno("wait for the peer");
  }
}

// One message with the sender's credentials and at most one descriptor.
Status send_message(int socket, std::span<const std::byte> bytes, int fd, Deadline deadline) {
  iovec io{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(sizeof(ucred)) + (fd < 0 ? 0 : CMSG_SPACE(sizeof(int)));
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_CREDENTIALS;
  part->cmsg_len = CMSG_LEN(sizeof(ucred));
  const ucred self{::getpid(), ::geteuid(), ::getegid()};
  std::memcpy(CMSG_DATA(part), &self, sizeof self);
  if (fd >= 0) {
    part = CMSG_NXTHDR(&message, part);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(bytes.size())) return {};
    if (sent >= 0) return Error(EIO, "speak to the peer: short write");
    if (errno == EPIPE) return Error(ECONNRESET, "speak to the peer: it has gone");
    if (errno != EAGAIN && errno != EINTR) return Error::from_errno("speak to the peer");
    VIADUCT_CHECK(wait_for(socket, POLLOUT, deadline));
  }
}

struct Heard {
  ucred sender{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  Fd fd;
};

Status receive_message(int socket, std::span<std::byte> bytes, Heard& heard, Deadline deadline) {
  for (std::size_t have = 0; have < bytes.size();) {
    VIADUCT_CHECK(wait_for(socket, POLLIN, deadline));
    iovec io{bytes.data() + have, bytes.size() - have};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t received = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (received < 0) return Error::from_errno("hear the peer");
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET) continue;
      const auto* const data = reinterpret_cast<const char*>(CMSG_DATA(part));
      if (part->cmsg_type == SCM_CREDENTIALS) std::memcpy(&heard.sender, data, sizeof heard.sender);
      if (part->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= part->cmsg_len; at += sizeof(int)) {
        int fd;
        std::memcpy(&fd, data + at, sizeof fd);
        heard.fd.reset(fd);
      }
    }
    if (received == 0) return Error(ECONNRESET, "the peer went away");
    have += static_cast<std::size_t>(received);
  }
  return {};
}

template <class T>
Status send_struct(int socket, const T& value, int fd, Deadline deadline) {
  return send_message(socket, std::as_bytes(std::span(&value, 1)), fd, deadline);
}

template <class T>
Status receive_struct(int socket, T& value, Heard& heard, Deadline deadline) {
  return receive_message(socket, std::as_writable_bytes(std::span(&value, 1)), heard, deadline);
}

// Credentials come with messages only while somebody asks for them.
class PassCredentials {
 public:
  explicit PassCredentials(int socket) : socket_(socket) { set(1); }
  ~PassCredentials() { set(0); }
  PassCredentials(const PassCredentials&) = delete;
  PassCredentials& operator=(const PassCredentials&) = delete;

 private:
  void set(int on) { (void)::setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on); }
  int socket_;
};

bool read_token(pid_t peer, const Hello& hello) {
  std::uint64_t seen = 0;
  iovec here{&seen, sizeof seen};
  iovec there{reinterpret_cast<void*>(hello.token_address), sizeof seen};
  return ::process_vm_readv(peer, &here, 1, &there, 1, 0) == sizeof seen && seen == hello.token;
}

Status check_hello(const Hello& hello, const ucred& sender) {
  if (hello.magic != kMagic) return Error(EPROTO, "the peer does not speak this protocol; is it a Viaduct program?");
  if (hello.version != link_format::kVersion)
    return Error(EPROTO,
                 fmt::format("the peer speaks version {} of the link, this program version {}; update the older",
                             hello.version, link_format::kVersion));
  return check_user(sender.uid);
}

Result<Segment> make_table() {
  VIADUCT_TRY(auto segment, Segment::create({.name = "viaduct-copy-link",
                                             .layout = link_format::kLayout,
                                             .payload_size = sizeof(link_format::LinkTable)}));
  new (segment.payload().data()) link_format::LinkTable;  // the memory is zero, and stays so
  return segment;
}

}  // namespace

Status check_user(uid_t peer) {
  if (peer == ::geteuid()) return {};
  return Error(EACCES,
               fmt::format("refused: the peer is user {}, this process is user {}; a link joins processes of one user",
                           static_cast<int>(peer), ::geteuid()));
}

Result<Agreement> shake_hands(int socket, Deadline deadline, const HandshakeOptions& options) {
  const PassCredentials asking(socket);
  Hello mine{};
  mine.magic = kMagic;
  mine.version = link_format::kVersion;
  mine.flags = options.cma ? 0 : handshake_format::kNoCma;
  volatile std::uint64_t token = 0;
  if (::getrandom(const_cast<std::uint64_t*>(&token), sizeof token, 0) != sizeof token)
    return Error::from_errno("choose a token");
  mine.token = token;
  mine.token_address = reinterpret_cast<std::uint64_t>(&token);
  VIADUCT_CHECK(send_struct(socket, mine, -1, deadline));

  Hello theirs{};
  Heard hello;
  VIADUCT_CHECK(receive_struct(socket, theirs, hello, deadline));
  VIADUCT_CHECK(check_hello(theirs, hello.sender));
  if (theirs.token == mine.token) return Error(EPROTO, "the peer repeats what it hears");

  Agreement agreed;
  agreed.side = mine.token < theirs.token ? 0 : 1;
  agreed.peer = hello.sender.pid;
  const bool try_cma = options.cma && (theirs.flags & handshake_format::kNoCma) == 0 && agreed.peer > 0;
  agreed.reach_peer = try_cma && read_token(agreed.peer, theirs);

  const Verdict verdict{kMagic, agreed.reach_peer ? 1u : 0u, 0};
  if (agreed.side == 0) {
    VIADUCT_TRY(agreed.table, make_table());
    VIADUCT_CHECK(send_struct(socket, verdict, agreed.table.fd(), deadline));
  }
  Verdict answer{};
  Heard heard;
  VIADUCT_CHECK(receive_struct(socket, answer, heard, deadline));
  if (answer.magic != kMagic || answer.reaches > 1) return Error(EPROTO, "the peer answers garbage");
  agreed.peer_reaches = try_cma && answer.reaches == 1;
  if (agreed.side == 1) {
    if (!heard.fd) return Error(EPROTO, "the peer offers no shared memory");
    VIADUCT_TRY(agreed.table, Segment::adopt(std::move(heard.fd), link_format::kLayout));
    if (agreed.table.payload().size() < sizeof(link_format::LinkTable)) return Error(EPROTO, "the table is too small");
    VIADUCT_CHECK(send_struct(socket, verdict, -1, deadline));
  }
  return agreed;
}

}  // namespace viaduct::copy
