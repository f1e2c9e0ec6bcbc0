// A port: a program's place to make connections from and to be found at. What its connections share is in
// local_port.hpp.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "via/port/listener.hpp"
#include "via/port/local_port.hpp"
#include "via/port/shm_handshake.hpp"

namespace viaduct::via {

class Port final : public LocalPort {
 public:
  // `attach`: peers may reach memory that they cannot map by cross-memory attach, if the kernel lets them.
  static Result<std::shared_ptr<Port>> open(meeting::Peers peers, bool attach);

  // Begins to make a connection. The deadline is the handshake's own.
  Result<std::unique_ptr<Handshake>> join(const Place& place, const Terms& mine, std::span<const std::byte> words,
                                          Deadline deadline);
  // Where others meet this side. The same for a name until forget_listeners().
  Result<std::shared_ptr<Listener>> listener(const Place& place);
  void forget_listeners();

 private:
  explicit Port(meeting::Peers peers) : LocalPort(peers) {}

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Listener>> listeners_;
};

}  // namespace viaduct::via
