#include "copy/link_rendezvous.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "copy/link_handshake.hpp"

namespace viaduct::copy {

namespace {

constexpr int kBacklog = 64;
constexpr std::uint64_t kFirstRetryNs = 200'000;
constexpr std::uint64_t kLastRetryNs = 10'000'000;

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Result<Address> address_of(std::string_view name) {
  if (name.empty()) return Error(EINVAL, "a link needs a name");
  const std::string path = fmt::format("viaduct/adma/{}/{}", ::geteuid(), name);
  Address address;
  if (path.size() + 1 > sizeof address.name.sun_path)
    return Error(ENAMETOOLONG, fmt::format("link '{}': the name is too long by {} bytes", name,
                                           path.size() + 1 - sizeof address.name.sun_path));
  address.name.sun_family = AF_UNIX;
  path.copy(address.name.sun_path + 1, path.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return address;
}

Result<Fd> make_socket() {
  Fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return Error::from_errno("make a UNIX socket");
  return made;
}

Status check_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Error::from_errno("ask who the peer is");
  return check_user(peer.uid);
}

}  // namespace

Result<Fd> listen_on(std::string_view name) {
  VIADUCT_TRY(const Address address, address_of(name));
  VIADUCT_TRY(Fd listener, make_socket());
  if (::bind(listener.get(), address.get(), address.length) != 0 || ::listen(listener.get(), kBacklog) != 0)
    return Error::from_errno(fmt::format("listen for links to '{}'", name));
  return listener;
}

Result<Fd> accept_from(int listener, Deadline deadline) {
  const Clock& clock = Clock::steady();
  for (;;) {
    timespec left{};
    if (!deadline.is_never()) left = to_timespec(deadline.left_ns(clock.now_ns()));
    pollfd entry{listener, POLLIN, 0};
    const int count = ::ppoll(&entry, 1, deadline.is_never() ? nullptr : &left, nullptr);
    if (count == 0) return Error(ETIMEDOUT, "accept a link: nobody came");
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::from_errno("accept a link");
    Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // Another thread may have been faster, and a peer may have left again.
    if (!socket && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket) return Error::from_errno("accept a link");
    VIADUCT_CHECK(check_peer(socket.get()).because("accept a link"));
    return socket;
  }
}

Result<Fd> connect_to(std::string_view name, Deadline deadline) {
  VIADUCT_TRY(const Address address, address_of(name));
  const Clock& clock = Clock::steady();
  for (std::uint64_t pause = kFirstRetryNs;; pause = std::min(2 * pause, kLastRetryNs)) {
    VIADUCT_TRY(Fd socket, make_socket());
    if (::connect(socket.get(), address.get(), address.length) == 0) {
      VIADUCT_CHECK(check_peer(socket.get()).because(fmt::format("connect to '{}'", name)));
      return socket;
    }
    // Nobody listens yet, or its queue is full.
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
      return Error::from_errno(fmt::format("connect to '{}'", name));
    const std::uint64_t left = deadline.left_ns(clock.now_ns());
    if (left == 0) return Error(ETIMEDOUT, fmt::format("connect to '{}': nobody listens", name));
    const timespec nap = to_timespec(std::min(pause, left));
    (void)::nanosleep(&nap, nullptr);
  }
}

}  // namespace viaduct::copy
