#include "via/port/listener.hpp"

#include <poll.h>

#include <algorithm>

#include "base/log.hpp"
#include "via/port/children.hpp"
#include "via/port/port.hpp"

namespace viaduct::via {

namespace {

constexpr std::uint64_t kSilenceNs = 5'000'000'000;  // a client that says nothing for so long is let go

}  // namespace

Result<std::shared_ptr<Listener>> Listener::make(std::weak_ptr<Port> port, const std::string& name) {
  VIADUCT_TRY(Fd fd, meeting::listen_at(name, kBacklog));
  close_in_children(fd.get());
  return std::shared_ptr<Listener>(new Listener(std::move(port), std::move(fd)));
}

Listener::~Listener() {
  keep_in_children(fd_.get());
}

void Listener::accept_all() {
  for (const auto port = port_.lock(); port != nullptr;) {
    auto socket = meeting::accept_at(fd_.get());
    if (!socket) return;
    auto handshake = ShmHandshake::open(port, std::move(*socket));
    if (handshake)
      silent_.push_back(std::move(*handshake));
    else
      log::fault(handshake.error().because("a connection request").message());
  }
}

std::unique_ptr<ShmHandshake> Listener::take_one_that_spoke() {
  const std::lock_guard lock(mutex_);
  accept_all();
  std::erase_if(silent_, [](const auto& one) { return one->other_has_left(); });
  const std::uint64_t now = Clock::steady().now_ns();
  for (auto one = silent_.begin(); one != silent_.end();) {
    const Handshake::Step step = (*one)->advance();
    if (step == Handshake::Step::heard) {
      std::unique_ptr<ShmHandshake> spoke = std::move(*one);
      silent_.erase(one);
      return spoke;
    }
    const bool keep = step == Handshake::Step::pending && now - (*one)->began_ns() < kSilenceNs;
    one = keep ? one + 1 : silent_.erase(one);
  }
  return nullptr;
}

std::vector<int> Listener::descriptors() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> descriptors{fd_.get()};
  for (const auto& one : silent_) descriptors.push_back(one->descriptor());
  return descriptors;
}

void Listener::wait_for_somebody(Deadline deadline) {
  constexpr std::uint64_t kSliceNs = 100'000'000;  // another thread may have taken over somebody silent
  std::vector<pollfd> entries;
  for (const int descriptor : descriptors()) entries.push_back({descriptor, POLLIN, 0});
  const timespec left = to_timespec(std::min(deadline.left_ns(Clock::steady().now_ns()), kSliceNs));
  (void)::ppoll(entries.data(), entries.size(), &left, nullptr);
}

std::unique_ptr<ShmHandshake> Listener::next(Deadline deadline) {
  for (;;) {
    if (auto handshake = take_one_that_spoke()) return handshake;
    if (deadline.expired(Clock::steady().now_ns())) return nullptr;
    wait_for_somebody(deadline);
  }
}

}  // namespace viaduct::via
