#include "via/port/listener.hpp"

#include <poll.h>

#include <algorithm>

#include "base/log.hpp"
#include "via/port/children.hpp"
#include "via/port/net_handshake.hpp"

namespace viaduct::via {

namespace {

constexpr std::uint64_t kSilenceNs = 5'000'000'000;  // a client that says nothing for so long is let go

}  // namespace

Result<std::shared_ptr<Listener>> Listener::make(std::weak_ptr<LocalPort> port, const Place& place) {
  VIADUCT_TRY(Fd fd, meeting::listen_at(place.here, kBacklog));
  close_in_children(fd.get());
  std::shared_ptr<Listener> listener(new Listener(port, std::move(fd)));
  const auto owner = port.lock();
  if (place.there.empty() || owner == nullptr) return listener;
  net::Failure why;
  auto network = owner->network();
  if (network && (*network)->offer(place.there, why)) {
    listener->network_ = std::move(*network);
    listener->there_ = place.there;
  } else if (network || network.error().code() != EPERM) {
    log::notice("other hosts do not find this: " + (network ? why.message : network.error().message()));
  }
  return listener;
}

Listener::~Listener() {
  keep_in_children(fd_.get());
  if (network_ != nullptr) network_->withdraw(there_);
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

std::unique_ptr<Handshake> Listener::take_one_that_spoke() {
  if (auto of_this_host = take_one_of_this_host()) return of_this_host;
  if (network_ == nullptr) return nullptr;
  network_->engine().progress();
  net::Incoming incoming;
  if (!network_->take_incoming(there_, incoming)) return nullptr;
  return std::make_unique<NetHandshake>(network_, std::move(incoming));
}

std::unique_ptr<Handshake> Listener::take_one_of_this_host() {
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

std::uint64_t Listener::news() const {
  return network_ == nullptr ? 0 : network_->engine().news();
}

// `seen`: the news before the look that found nobody.
void Listener::wait_for_somebody(Deadline deadline, std::uint64_t seen) {
  constexpr std::uint64_t kSliceNs = 100'000'000;  // another thread may have taken over somebody silent
  std::vector<pollfd> entries;
  for (const int descriptor : descriptors()) entries.push_back({descriptor, POLLIN, 0});
  const timespec left = to_timespec(std::min(deadline.left_ns(Clock::steady().now_ns()), kSliceNs));
  if (network_ == nullptr) return (void)::ppoll(entries.data(), entries.size(), &left, nullptr);
  net::Engine& engine = network_->engine();
  if (engine.progress() || !engine.prepare_to_sleep(seen)) return;
  entries.push_back({engine.descriptor(), POLLIN, 0});
  (void)::ppoll(entries.data(), entries.size(), &left, nullptr);
  engine.woke();
}

std::unique_ptr<Handshake> Listener::next(Deadline deadline) {
  for (;;) {
    const std::uint64_t seen = news();
    if (auto handshake = take_one_that_spoke()) return handshake;
    if (deadline.expired(Clock::steady().now_ns())) return nullptr;
    wait_for_somebody(deadline, seen);
  }
}

}  // namespace viaduct::via
