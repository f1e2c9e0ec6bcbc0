#include "copy/link_handshake.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <new>

#include "base/meeting.hpp"
#include "base/socket_message.hpp"
#include "copy/link_format.hpp"

namespace viaduct::copy {

namespace {

using handshake_format::Hello;
using handshake_format::Verdict;
constexpr std::uint64_t kMagic = handshake_format::kMagic;
constexpr ucred kNobody{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};

// With the sender's credentials and at most one descriptor.
Status send_message(int socket, std::span<const std::byte> bytes, int fd, Deadline deadline) {
  for (;;) {
    const ssize_t sent = send_part(socket, bytes, {&fd, fd < 0 ? 0u : 1u}, MSG_DONTWAIT, Credentials::ours);
    if (sent == static_cast<ssize_t>(bytes.size())) return {};
    if (sent >= 0) return Error(EIO, "speak to the peer: short write");
    if (errno == EPIPE) return Error(ECONNRESET, "speak to the peer: it has gone");
    if (errno != EAGAIN && errno != EINTR) return Error::from_errno("speak to the peer");
    VIADUCT_CHECK(meeting::wait_for(socket, POLLOUT, deadline));
  }
}

Status receive_message(int socket, std::span<std::byte> bytes, MessageReader& reader, Deadline deadline) {
  for (;;) {
    VIADUCT_CHECK(meeting::wait_for(socket, POLLIN, deadline));
    switch (reader.read(socket, bytes)) {
      case MessageReader::Step::whole:
        return {};
      case MessageReader::Step::closed:
        return Error(ECONNRESET, "the peer went away");
      case MessageReader::Step::failed:
        return Error::from_errno("hear the peer");
      case MessageReader::Step::pending:
        break;
    }
  }
}

template <class T>
Status send_struct(int socket, const T& value, int fd, Deadline deadline) {
  return send_message(socket, std::as_bytes(std::span(&value, 1)), fd, deadline);
}

template <class T>
Status receive_struct(int socket, T& value, MessageReader& reader, Deadline deadline) {
  return receive_message(socket, std::as_writable_bytes(std::span(&value, 1)), reader, deadline);
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

Status check_hello(const Hello& hello, const ucred& sender) {
  if (hello.magic != kMagic) return Error(EPROTO, "the peer does not speak this protocol; is it a Viaduct program?");
  if (hello.version != link_format::kVersion)
    return Error(EPROTO,
                 fmt::format("the peer speaks version {} of the link, this program version {}; update the older",
                             hello.version, link_format::kVersion));
  return meeting::check_user(sender.uid, meeting::Peers::own_user);
}

Result<Segment> make_table() {
  VIADUCT_TRY(auto segment, Segment::create({.name = "viaduct-copy-link",
                                             .layout = link_format::kLayout,
                                             .payload_size = sizeof(link_format::LinkTable)}));
  new (segment.payload().data()) link_format::LinkTable;  // the memory is zero, and stays so
  return segment;
}

}  // namespace

Result<Agreement> shake_hands(int socket, Deadline deadline, const HandshakeOptions& options) {
  const PassCredentials asking(socket);
  Hello mine{};
  mine.magic = kMagic;
  mine.version = link_format::kVersion;
  mine.flags = options.cma ? 0 : handshake_format::kNoCma;
  VIADUCT_TRY(const auto token, OwnToken::choose());
  mine.token = token->token().value;
  mine.token_address = token->token().address;
  VIADUCT_CHECK(send_struct(socket, mine, -1, deadline));

  Hello theirs{};
  MessageReader reader;
  VIADUCT_CHECK(receive_struct(socket, theirs, reader, deadline));
  const ucred sender = reader.sender().value_or(kNobody);
  VIADUCT_CHECK(check_hello(theirs, sender));
  if (theirs.token == mine.token) return Error(EPROTO, "the peer repeats what it hears");

  Agreement agreed;
  agreed.side = mine.token < theirs.token ? 0 : 1;
  const bool try_cma = options.cma && (theirs.flags & handshake_format::kNoCma) == 0;
  agreed.peer = std::make_unique<PeerMemory>(sender.pid, Token{theirs.token, theirs.token_address}, try_cma,
                                             PeerMemory::Lasting::no);

  const Verdict verdict{kMagic, agreed.peer->reaches_by_cma() ? 1u : 0u, 0};
  if (agreed.side == 0) {
    VIADUCT_TRY(agreed.table, make_table());
    VIADUCT_CHECK(send_struct(socket, verdict, agreed.table.fd(), deadline));
  }
  Verdict answer{};
  VIADUCT_CHECK(receive_struct(socket, answer, reader, deadline));
  if (answer.magic != kMagic || answer.reaches > 1) return Error(EPROTO, "the peer answers garbage");
  agreed.peer_reaches = try_cma && answer.reaches == 1;
  if (agreed.side == 1) {
    Fd offered = reader.take_fd();
    if (!offered) return Error(EPROTO, "the peer offers no shared memory");
    VIADUCT_TRY(agreed.table, Segment::adopt(std::move(offered), link_format::kLayout));
    if (agreed.table.payload().size() < sizeof(link_format::LinkTable)) return Error(EPROTO, "the table is too small");
    VIADUCT_CHECK(send_struct(socket, verdict, -1, deadline));
  }
  return agreed;
}

}  // namespace viaduct::copy
