#include "copy/link_rendezvous.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/meeting.hpp"

namespace viaduct::copy {

namespace {

using meeting::Peers;

constexpr int kBacklog = 64;
constexpr std::uint64_t kFirstRetryNs = 200'000;
constexpr std::uint64_t kLastRetryNs = 10'000'000;

Result<std::string> full_name(std::string_view name) {
  if (name.empty()) return Error(EINVAL, "a link needs a name");
  return fmt::format("viaduct/adma/{}/{}", ::geteuid(), name);
}

Result<Fd> checked(Fd socket) {
  VIADUCT_CHECK(meeting::check_peer(socket.get(), Peers::own_user));
  return socket;
}

}  // namespace

Result<Fd> listen_on(std::string_view name) {
  VIADUCT_TRY(const std::string full, full_name(name));
  return meeting::listen_at(full, kBacklog).because(fmt::format("wait for links to '{}'", name));
}

Result<Fd> accept_from(int listener, Deadline deadline) {
  for (;;) {
    const Status somebody = meeting::wait_for(listener, POLLIN, deadline);
    if (!somebody && somebody.error().code() == ETIMEDOUT) return Error(ETIMEDOUT, "accept a link: nobody came");
    if (!somebody) return somebody.error().because("accept a link");
    auto socket = meeting::accept_at(listener);
    if (socket) return checked(std::move(*socket)).because("accept a link");
    // Another thread may have been faster.
    if (socket.error().code() != EAGAIN) return socket.error().because("accept a link");
  }
}

Result<Fd> connect_to(std::string_view name, Deadline deadline) {
  VIADUCT_TRY(const std::string full, full_name(name));
  const Clock& clock = Clock::steady();
  for (std::uint64_t pause = kFirstRetryNs;; pause = std::min(2 * pause, kLastRetryNs)) {
    auto socket = meeting::connect_at(full);
    if (socket) return checked(std::move(*socket)).because(fmt::format("connect to '{}'", name));
    // Nobody listens yet, or its queue is full.
    if (socket.error().code() != ECONNREFUSED && socket.error().code() != EAGAIN) return socket;
    const std::uint64_t left = deadline.left_ns(clock.now_ns());
    if (left == 0) return Error(ETIMEDOUT, fmt::format("connect to '{}': nobody listens", name));
    const timespec nap = to_timespec(std::min(pause, left));
    (void)::nanosleep(&nap, nullptr);
  }
}

}  // namespace viaduct::copy
