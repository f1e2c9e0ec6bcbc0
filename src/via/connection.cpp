#include "via/connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/segment.hpp"
#include "via/vipl_fork.hpp"
#include "via/vipl_nic.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint64_t kMagic = 0x6f6c6c65486c7056;  // "VplHello", little endian
constexpr std::uint32_t kVersion = 1;
constexpr int kBacklog = 4096;

bool any_peer() {
  return Config::process().text("VIADUCT_PEERS") == "any";
}

std::string hex(const std::uint8_t* bytes, std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string discriminator_of(const WireAddress& address) {
  return hex(address.bytes + address.host_length, address.discriminator_length);
}

struct SocketAddress {
  sockaddr_un name{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// Names that are too long for a socket are told apart by their hash; the Hello says the whole of them.
SocketAddress socket_address(std::string path) {
  SocketAddress address;
  const std::size_t most = sizeof address.name.sun_path - 1;
  if (path.size() > most) path = fmt::format("{}#{:016x}", path.substr(0, most - 17), layout_hash(path));
  address.name.sun_family = AF_UNIX;
  path.copy(address.name.sun_path + 1, path.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return address;
}

std::string prefix() {
  return any_peer() ? "viaduct/via/any" : fmt::format("viaduct/via/{}", ::geteuid());
}

Result<Fd> make_socket() {
  Fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return Error::from_errno("make a UNIX socket");
  return made;
}

bool sane(const WireAddress& address) {
  return address.host_length <= kMostHostAddress && address.discriminator_length <= kMostDiscriminator;
}

template <class Message>
bool send_message(int socket, const Message& message, int fd = -1) {
  const std::span<const int> fds(&fd, fd < 0 ? 0 : 1);
  return send_with_fds(socket, std::as_bytes(std::span(&message, 1)), fds).ok();
}

}  // namespace

// ---- addresses

bool read_address(const VIP_NET_ADDRESS* from, WireAddress& to) {
  to = {};
  if (from == nullptr || from->HostAddressLen > kMostHostAddress || from->DiscriminatorLen > kMostDiscriminator)
    return false;
  to.host_length = from->HostAddressLen;
  to.discriminator_length = from->DiscriminatorLen;
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(from) + offsetof(VIP_NET_ADDRESS, HostAddress);
  std::memcpy(to.bytes, bytes, std::size_t{to.host_length} + to.discriminator_length);
  return true;
}

void write_address(const WireAddress& from, VIP_NET_ADDRESS* to) {
  if (to == nullptr) return;
  to->HostAddressLen = from.host_length;
  to->DiscriminatorLen = from.discriminator_length;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(to) + offsetof(VIP_NET_ADDRESS, HostAddress);
  std::memcpy(bytes, from.bytes, std::size_t{from.host_length} + from.discriminator_length);
}

// All addresses of this host are one host: it is the discriminator that tells.
int compare(const WireAddress& a, const WireAddress& b) {
  return discriminator_of(a).compare(discriminator_of(b));
}

std::string server_name(const WireAddress& address) {
  return fmt::format("{}/server/{}", prefix(), discriminator_of(address));
}

std::string peer_name(const WireAddress& a, const WireAddress& b) {
  std::string first = discriminator_of(a), second = discriminator_of(b);
  if (second < first) std::swap(first, second);
  return fmt::format("{}/peers/{}/{}", prefix(), first, second);
}

// ---- sockets

Result<Fd> listen_at(const std::string& name) {
  const SocketAddress address = socket_address(name);
  VIADUCT_TRY(Fd listener, make_socket());
  if (::bind(listener.get(), address.get(), address.length) != 0 || ::listen(listener.get(), kBacklog) != 0)
    return Error::from_errno(fmt::format("wait for connections at {}", name));
  return listener;
}

Result<Fd> accept_at(int listener) {
  Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket && (errno == EINTR || errno == ECONNABORTED)) errno = EAGAIN;
  if (!socket) return Error::from_errno("accept a connection");
  return socket;
}

Result<Fd> connect_at(const std::string& name) {
  const SocketAddress address = socket_address(name);
  VIADUCT_TRY(Fd socket, make_socket());
  if (::connect(socket.get(), address.get(), address.length) == 0) return socket;
  return Error::from_errno(fmt::format("connect to {}", name));
}

Result<pid_t> check_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Error::from_errno("ask who the peer is");
  if (peer.uid != ::geteuid() && !any_peer())
    return Error(EACCES,
                 fmt::format("refused: the peer is user {}, this process is user {}; VIADUCT_PEERS=any allows it",
                             peer.uid, ::geteuid()));
  return peer.pid;
}

// ---- the handshake

Handshake::Handshake(Fd socket, pid_t peer, bool opener) : socket_(std::move(socket)), peer_(peer), opener_(opener) {
  close_in_children(socket_.get());
}

Handshake::~Handshake() {
  if (descriptor() >= 0) keep_in_children(descriptor());
}

std::unique_ptr<via::Channel> Handshake::take_channel() {
  if (channel_) keep_in_children(channel_->descriptor());
  return std::move(channel_);
}

// The socket becomes the channel's, or is closed.
template <class Make>
bool Handshake::make_channel(Make make) {
  keep_in_children(socket_.get());
  channel_ = make(socket_.release());
  if (channel_) close_in_children(channel_->descriptor());
  return channel_ != nullptr;
}

Result<std::unique_ptr<Handshake>> Handshake::open(Fd socket) {
  VIADUCT_TRY(const pid_t peer, check_peer(socket.get()));
  std::unique_ptr<Handshake> made(new Handshake(std::move(socket), peer, true));
  made->began_ns = Clock::steady().now_ns();
  return made;
}

Result<std::unique_ptr<Handshake>> Handshake::join(Fd socket, const Hello& mine, int table_fd) {
  VIADUCT_TRY(const pid_t peer, check_peer(socket.get()));
  Hello hello = mine;
  hello.magic = kMagic;
  hello.version = kVersion;
  std::unique_ptr<Handshake> made(new Handshake(std::move(socket), peer, false));
  if (!send_message(made->socket_.get(), hello, table_fd)) return Error(ECONNRESET, "the peer has gone");
  return made;
}

Handshake::Step Handshake::fail() {
  expecting_ = Expecting::nothing;
  return Step::gone;
}

Handshake::Step Handshake::advance() {
  for (;;) {
    Step step = Step::gone;
    switch (expecting_) {
      case Expecting::hello:
        step = take_hello();
        break;
      case Expecting::decision:
        return Step::heard;
      case Expecting::answer:
        step = take_answer();
        break;
      case Expecting::channel:
        step = take_channel_segment();
        break;
      case Expecting::confirmation:
        step = take_confirmation();
        break;
      case Expecting::nothing:
        break;
    }
    const bool goes_on = step == Step::pending && have_ == SIZE_MAX;  // a whole message was taken
    if (!goes_on) return step;
    have_ = 0;
  }
}

// Fills the buffer with `size` bytes; done: they are all there.
Handshake::Step Handshake::read(std::size_t size) {
  iovec io{buffer_.data() + have_, size - have_};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(descriptor(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Step::pending;
  for (cmsghdr* part = got < 0 ? nullptr : CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      table_.reset(fd);
    }
  }
  if (got <= 0) return fail();
  have_ += static_cast<std::size_t>(got);
  return have_ == size ? Step::done : Step::pending;
}

Handshake::Step Handshake::take_hello() {
  if (const Step step = read(sizeof(Hello)); step != Step::done) return step;
  std::memcpy(&theirs_, buffer_.data(), sizeof theirs_);
  const bool fits = theirs_.magic == kMagic && theirs_.version == kVersion && theirs_.slot < kMostVis && table_ &&
                    sane(theirs_.local) && sane(theirs_.remote);
  if (!fits) {
    log::fault("connect: the peer does not speak this protocol, or another version of it; update the older side");
    return fail();
  }
  have_ = SIZE_MAX;
  expecting_ = opener_ ? Expecting::decision : Expecting::answer;
  return Step::pending;
}

Handshake::Step Handshake::take_answer() {
  if (const Step step = read(sizeof(Answer)); step != Step::done) return step;
  Answer answer;
  std::memcpy(&answer, buffer_.data(), sizeof answer);
  if (answer.magic != kMagic || answer.verdict > VIP_ERROR_NOT_SUPPORTED) return fail();
  verdict_ = static_cast<VIP_RETURN>(answer.verdict);
  expecting_ = verdict_ == VIP_SUCCESS ? Expecting::channel : Expecting::nothing;
  if (verdict_ != VIP_SUCCESS) return Step::refused;
  have_ = SIZE_MAX;
  return Step::pending;
}

Handshake::Step Handshake::take_channel_segment() {
  if (!wait_readable(socket_.get(), Deadline::at_ns(0))) return Step::pending;
  std::error_code fault;
  if (!make_channel([&](int socket) { return via::join_channel(socket, 0, fault); })) return fail();
  expecting_ = Expecting::nothing;
  return send_message(channel_->descriptor(), Answer{kMagic, VIP_SUCCESS, 0}) ? Step::done : fail();
}

Handshake::Step Handshake::take_confirmation() {
  if (const Step step = read(sizeof(Answer)); step != Step::done) return step;
  Answer answer;
  std::memcpy(&answer, buffer_.data(), sizeof answer);
  if (answer.magic != kMagic || answer.verdict != VIP_SUCCESS) return fail();
  expecting_ = Expecting::nothing;
  return Step::done;
}

bool Handshake::accept(const Hello& mine, int table_fd, const via::ChannelOptions& options) {
  Hello hello = mine;
  hello.magic = kMagic;
  hello.version = kVersion;
  if (!send_message(socket_.get(), hello, table_fd) || !send_message(socket_.get(), Answer{kMagic, VIP_SUCCESS, 0}))
    return false;
  std::error_code fault;
  expecting_ = Expecting::confirmation;
  have_ = 0;
  return make_channel([&](int socket) { return via::open_channel(socket, options, fault); });
}

// A refusal comes with a Hello too, so that the joiner reads the same messages always.
void Handshake::refuse(VIP_RETURN verdict) {
  Hello hello{};
  hello.magic = kMagic;
  hello.version = kVersion;
  (void)send_message(socket_.get(), hello, table_.get());
  (void)send_message(socket_.get(), Answer{kMagic, static_cast<std::uint32_t>(verdict), 0});
  expecting_ = Expecting::nothing;
}

bool Handshake::other_has_left() const {
  pollfd entry{descriptor(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool Handshake::wait_readable(int fd, Deadline deadline) {
  const Clock& clock = Clock::steady();
  timespec left{};
  if (!deadline.is_never()) left = to_timespec(deadline.left_ns(clock.now_ns()));
  pollfd entry{fd, POLLIN, 0};
  return ::ppoll(&entry, 1, deadline.is_never() ? nullptr : &left, nullptr) > 0;
}

}  // namespace viaduct::vipl
