// This side's port, as its connections know it: the table of registered memory that peers may read, the token that
// proves who it is, what is known of peers' ports, and its end of the network. How connections are made is in port.hpp.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/meeting.hpp"
#include "via/port/registrations.hpp"
#include "via/port/remote_port.hpp"

namespace viaduct::via {

class Network;

class LocalPort : public std::enable_shared_from_this<LocalPort> {
 public:
  LocalPort(const LocalPort&) = delete;
  LocalPort& operator=(const LocalPort&) = delete;

  Registrations& registrations() { return *registrations_; }
  const Registrations& registrations() const { return *registrations_; }
  copy::Token token() const { return token_ ? token_->token() : copy::Token{}; }
  meeting::Peers peers() const { return peers_; }

  // The same port at the other end is met by many connections.
  Result<std::shared_ptr<RemotePort>> remote(Fd table, pid_t pid, copy::Token token);

  // This side's end of the network, opened when it is first needed; EPERM: VIADUCT_NETWORK=off.
  Result<std::shared_ptr<Network>> network();
  // After something was deregistered: nobody on another host is in it any more.
  void settle();

 protected:
  explicit LocalPort(meeting::Peers peers) : peers_(peers) {}
  ~LocalPort() = default;
  Status start(bool attach);

 private:
  const meeting::Peers peers_;
  std::unique_ptr<Registrations> registrations_;
  std::unique_ptr<copy::OwnToken> token_;  // none: peers do not attach
  std::mutex mutex_;
  std::vector<std::weak_ptr<RemotePort>> remotes_;
  std::mutex network_mutex_;
  std::shared_ptr<Network> network_;
};

}  // namespace viaduct::via
