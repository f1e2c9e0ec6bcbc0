#include "via/port/port.hpp"

#include "via/port/net_handshake.hpp"
#include "via/port/network.hpp"

namespace viaduct::via {

Result<std::shared_ptr<Port>> Port::open(meeting::Peers peers, bool attach) {
  std::shared_ptr<Port> port(new Port(peers));
  VIADUCT_CHECK(port->start(attach));
  return port;
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
