#include "base/meeting.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/config.hpp"
#include "base/segment.hpp"

namespace viaduct::meeting {

namespace {

static_assert(kLongestName + 1 == sizeof(sockaddr_un::sun_path));

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Result<Address> address_of(std::string_view name) {
  if (name.empty()) return Error(EINVAL, "a socket needs a name");
  if (name.size() > kLongestName)
    return Error(ENAMETOOLONG, fmt::format("'{}': the name is too long by {} bytes", name, name.size() - kLongestName));
  Address address;
  address.name.sun_family = AF_UNIX;
  name.copy(address.name.sun_path + 1, name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Result<Fd> make_socket() {
  Fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return Error::from_errno("make a UNIX socket");
  return made;
}

}  // namespace

std::string fit_name(std::string name) {
  constexpr std::size_t kHash = 17;  // "#" and 16 digits
  if (name.size() <= kLongestName) return name;
  return fmt::format("{}#{:016x}", name.substr(0, kLongestName - kHash), layout_hash(name));
}

Result<Fd> listen_at(std::string_view name, int backlog) {
  VIADUCT_TRY(const Address address, address_of(name));
  VIADUCT_TRY(Fd listener, make_socket());
  if (::bind(listener.get(), address.get(), address.length) != 0 || ::listen(listener.get(), backlog) != 0)
    return Error::from_errno(fmt::format("listen at {}", name));
  return listener;
}

Result<Fd> accept_at(int listener) {
  Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // A peer may have left again.
  if (!socket && (errno == EINTR || errno == ECONNABORTED)) errno = EAGAIN;
  if (!socket) return Error::from_errno("accept a connection");
  return socket;
}

Result<Fd> connect_at(std::string_view name) {
  VIADUCT_TRY(const Address address, address_of(name));
  VIADUCT_TRY(Fd socket, make_socket());
  if (::connect(socket.get(), address.get(), address.length) == 0) return socket;
  if (errno == EINTR) errno = EAGAIN;
  return Error::from_errno(fmt::format("connect to {}", name));
}

bool any_user_may(Peers peers) {
  return peers == Peers::by_setting && Config::process().text("VIADUCT_PEERS") == "any";
}

Status check_user(uid_t peer, Peers peers) {
  if (peer == ::geteuid() || any_user_may(peers)) return {};
  return Error(EACCES, fmt::format("refused: the peer is user {}, this process is user {}; {}", static_cast<int>(peer),
                                   ::geteuid(),
                                   peers == Peers::by_setting ? "VIADUCT_PEERS=any allows it"
                                                              : "only processes of one user are joined here"));
}

Result<pid_t> check_peer(int socket, Peers peers) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Error::from_errno("ask who the peer is");
  VIADUCT_CHECK(check_user(peer.uid, peers));
  return peer.pid;
}

Status wait_for(int fd, short events, Deadline deadline) {
  const Clock& clock = Clock::steady();
  for (;;) {
    timespec left{};
    if (!deadline.is_never()) left = to_timespec(deadline.left_ns(clock.now_ns()));
    pollfd entry{fd, events, 0};
    const int count = ::ppoll(&entry, 1, deadline.is_never() ? nullptr : &left, nullptr);
    if (count > 0) return {};
    if (count == 0) return Error(ETIMEDOUT, "the peer does not answer");
    if (errno != EINTR) return Error::from_errno("wait for the peer");
  }
}

}  // namespace viaduct::meeting
