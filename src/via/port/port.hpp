// A port: a program's place to make connections from and to be found at. It owns what all of them share: the table of
// registered memory that peers may read, the token that proves who it is, what is known of peers' ports, and its end of
// the network.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/meeting.hpp"
#include "via/port/listener.hpp"
#include "via/port/registrations.hpp"
#include "via/port/remote_port.hpp"
#include "via/port/shm_handshake.hpp"

namespace viaduct::via {

class Port : public std::enable_shared_from_this<Port> {
 public:
  // `attach`: peers may reach memory that they cannot map by cross-memory attach, if the kernel lets them.
  static Result<std::shared_ptr<Port>> open(meeting::Peers peers, bool attach);
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  Registrations& registrations() { return *registrations_; }
  const Registrations& registrations() const { return *registrations_; }
  copy::Token token() const { return token_ ? token_->token() : copy::Token{}; }
  meeting::Peers peers() const { return peers_; }

  // The same port at the other end is met by many connections.
  Result<std::shared_ptr<RemotePort>> remote(Fd table, pid_t pid, copy::Token token);

  // A listener of this host by its name at which others meet it. The same until forget_listeners().
  Result<std::shared_ptr<Listener>> listener(const std::string& name);
  void forget_listeners();

 private:
  explicit Port(meeting::Peers peers) : peers_(peers) {}

  const meeting::Peers peers_;
  std::unique_ptr<Registrations> registrations_;
  std::unique_ptr<copy::OwnToken> token_;  // none: peers do not attach
  std::mutex mutex_;
  std::vector<std::weak_ptr<RemotePort>> remotes_;
  std::map<std::string, std::shared_ptr<Listener>> listeners_;
};

}  // namespace viaduct::via
