#include "via/port/port.hpp"

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

Result<std::shared_ptr<Listener>> Port::listener(const std::string& name) {
  const std::lock_guard lock(mutex_);
  auto& listener = listeners_[name];
  if (!listener) {
    auto made = Listener::make(weak_from_this(), name);
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
