#include "via/port/port.hpp"

#include "base/config.hpp"
#include "via/port/net_handshake.hpp"
#include "via/port/network.hpp"

namespace viaduct::via {

Result<std::shared_ptr<Port>> Port::open(meeting::Peers peers, bool attach) {
  std::shared_ptr<Port> port(new Port(peers));
  VIADUCT_TRY(port->registrations_, Registrations::make());
  if (attach) {
    VIADUCT_TRY(port->token_, copy::OwnToken::choose());
  }
  return port;
}

Result<std::shared_ptr<RemotePort>> Port::remote(Fd table, pid_t pid, copy::Token token) {
  VIADUCT_TRY(const RemotePort::Identity identity, RemotePort::identity_of(table.get()));
  const std::lock_guard lock(mutex_);
  std::erase_if(remotes_, [](const auto& one) { return one.expired(); });
  for (const auto& one : remotes_)
    // Whoever shows somebody else's table is not taken for that one.
    if (auto known = one.lock(); known && known->identity() == identity && known->pid() == pid) return known;
  VIADUCT_TRY(auto made, RemotePort::make(std::move(table), pid, token));
  remotes_.push_back(made);
  return made;
}

Result<std::unique_ptr<Handshake>> Port::join(const Place& place, const Terms& mine, std::span<const std::byte> words,
                                              Deadline deadline) {
  if (words.size() > kLongestWords) return Error(EMSGSIZE, "connect: the request is too long");
  if (place.host.empty() || net::Engine::is_this_host(place.host))
    return std::unique_ptr<Handshake>(ShmHandshake::join(shared_from_this(), place.here, mine, words, deadline));
  VIADUCT_TRY(auto through, network());
  return std::unique_ptr<Handshake>(
      std::make_unique<NetHandshake>(std::move(through), place.host, place.there, mine, words, deadline));
}

Result<std::shared_ptr<Network>> Port::network() {
  if (!Config::process().flag("VIADUCT_NETWORK"))
    return Error(EPERM, "other hosts are not reached, nor do they reach this one: VIADUCT_NETWORK is off");
  const std::lock_guard lock(network_mutex_);
  if (network_ == nullptr) {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    const std::uint64_t silence = Config::process().number("VIADUCT_NETWORK_SILENCE") * kSecond;
    auto opened = Network::open(*registrations_,
                                {.port = static_cast<std::uint16_t>(Config::process().number("VIADUCT_NETWORK_PORT")),
                                 .silence_ns = silence,
                                 .keepalive_ns = silence / 3});
    if (!opened) return opened.error().because("the network");
    network_ = std::move(*opened);
  }
  return network_;
}

void Port::settle() {
  const std::lock_guard lock(network_mutex_);
  if (network_ != nullptr) network_->settle();
}

Result<std::shared_ptr<Listener>> Port::listener(const Place& place) {
  const std::lock_guard lock(mutex_);
  auto& listener = listeners_[place.here];
  if (!listener) {
    auto made = Listener::make(weak_from_this(), place);
    if (!made) return made.error();
    listener = std::move(*made);
  }
  return listener;
}

void Port::forget_listeners() {
  const std::lock_guard lock(mutex_);
  listeners_.clear();
}

}  // namespace viaduct::via
