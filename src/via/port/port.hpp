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

class Network;

// Where a program is met.
struct Place {
  std::string host;   // to be asked; empty, or one of this host's addresses: this one
  std::string here;   // its name on one host (base/meeting.hpp)
  std::string there;  // its name over the network; empty: not over the network
};

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

  // Begins to make a connection. The deadline is the handshake's own.
  Result<std::unique_ptr<Handshake>> join(const Place& place, const Terms& mine, std::span<const std::byte> words,
                                          Deadline deadline);
  // Where others meet this side. The same for a name until forget_listeners().
  Result<std::shared_ptr<Listener>> listener(const Place& place);
  void forget_listeners();

  // This side's end of the network, opened when it is first needed; EPERM: VIADUCT_NETWORK=off.
  Result<std::shared_ptr<Network>> network();
  // After something was deregistered: nobody on another host is in it any more.
  void settle();

 private:
  explicit Port(meeting::Peers peers) : peers_(peers) {}

  const meeting::Peers peers_;
  std::unique_ptr<Registrations> registrations_;
  std::unique_ptr<copy::OwnToken> token_;  // none: peers do not attach
  std::mutex mutex_;
  std::vector<std::weak_ptr<RemotePort>> remotes_;
  std::map<std::string, std::shared_ptr<Listener>> listeners_;
  std::mutex network_mutex_;
  std::shared_ptr<Network> network_;
};

}  // namespace viaduct::via
