#include "via/connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "via/vipl_fork.hpp"
#include "via/vipl_nic.hpp"

namespace viaduct::vipl {

namespace {

using meeting::Peers;

constexpr std::uint64_t kMagic = 0x6f6c6c65486c7056;  // "VplHello", little endian
constexpr std::uint32_t kVersion = 1;

std::string hex(const std::uint8_t* bytes, std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string discriminator_of(const WireAddress& address) {
  return hex(address.bytes + address.host_length, address.discriminator_length);
}

std::string prefix() {
  return meeting::any_user_may(Peers::by_setting) ? "viaduct/via/any" : fmt::format("viaduct/via/{}", ::geteuid());
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
  return meeting::fit_name(fmt::format("{}/server/{}", prefix(), discriminator_of(address)));
}

std::string peer_name(const WireAddress& a, const WireAddress& b) {
  std::string first = discriminator_of(a), second = discriminator_of(b);
  if (second < first) std::swap(first, second);
  return meeting::fit_name(fmt::format("{}/peers/{}/{}", prefix(), first, second));
}

// ---- the handshake

Handshake::Handshake(Fd socket, pid_t peer, bool opener) : socket_(std::move(socket)), peer_(peer), opener_(opener) {
  close_in_children(socket_.get());
}

Handshake::~Handshake() {
  if (descriptor() >= 0) keep_in_children(descriptor());
}

std::unique_ptr<via::Channel> Handshake::take_channel() {
  if (channel_) keep_in_children(channel_->shared()->descriptor());
  return std::move(channel_);
}

// The socket becomes the channel's, or is closed.
template <class Make>
bool Handshake::make_channel(Make make) {
  keep_in_children(socket_.get());
  channel_ = make(socket_.release());
  if (channel_) close_in_children(channel_->shared()->descriptor());
  return channel_ != nullptr;
}

Result<std::unique_ptr<Handshake>> Handshake::open(Fd socket) {
  VIADUCT_TRY(const pid_t peer, meeting::check_peer(socket.get(), Peers::by_setting));
  std::unique_ptr<Handshake> made(new Handshake(std::move(socket), peer, true));
  made->began_ns = Clock::steady().now_ns();
  return made;
}

Result<std::unique_ptr<Handshake>> Handshake::join(Fd socket, const Hello& mine, int table_fd) {
  VIADUCT_TRY(const pid_t peer, meeting::check_peer(socket.get(), Peers::by_setting));
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
    const Expecting before = expecting_;
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
    if (step != Step::pending || expecting_ == before) return step;
  }
}

template <class Message>
Handshake::Step Handshake::read(Message& message) {
  switch (reader_.read(descriptor(), std::as_writable_bytes(std::span(&message, 1)))) {
    case MessageReader::Step::whole:
      return Step::done;
    case MessageReader::Step::pending:
      return Step::pending;
    case MessageReader::Step::closed:
    case MessageReader::Step::failed:
      break;
  }
  return fail();
}

Handshake::Step Handshake::take_hello() {
  if (const Step step = read(theirs_); step != Step::done) return step;
  table_ = reader_.take_fd();
  const bool fits = theirs_.magic == kMagic && theirs_.version == kVersion && theirs_.slot < kMostVis && table_ &&
                    sane(theirs_.local) && sane(theirs_.remote);
  if (!fits) {
    log::fault("connect: the peer does not speak this protocol, or another version of it; update the older side");
    return fail();
  }
  expecting_ = opener_ ? Expecting::decision : Expecting::answer;
  return Step::pending;
}

Handshake::Step Handshake::take_answer() {
  if (const Step step = read(answer_); step != Step::done) return step;
  if (answer_.magic != kMagic || answer_.verdict > VIP_ERROR_NOT_SUPPORTED) return fail();
  verdict_ = static_cast<VIP_RETURN>(answer_.verdict);
  expecting_ = verdict_ == VIP_SUCCESS ? Expecting::channel : Expecting::nothing;
  return verdict_ == VIP_SUCCESS ? Step::pending : Step::refused;
}

Handshake::Step Handshake::take_channel_segment() {
  if (!meeting::wait_for(socket_.get(), POLLIN, Deadline::at_ns(0))) return Step::pending;
  std::error_code fault;
  if (!make_channel([&](int socket) { return via::join_channel(socket, 0, fault); })) return fail();
  expecting_ = Expecting::nothing;
  return send_message(channel_->shared()->descriptor(), Answer{kMagic, VIP_SUCCESS, 0}) ? Step::done : fail();
}

Handshake::Step Handshake::take_confirmation() {
  if (const Step step = read(answer_); step != Step::done) return step;
  if (answer_.magic != kMagic || answer_.verdict != VIP_SUCCESS) return fail();
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

}  // namespace viaduct::vipl
