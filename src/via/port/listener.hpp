// Where a server waits for connections of this host. Clients that come while nobody asks wait for the next that does.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "via/port/shm_handshake.hpp"

namespace viaduct::via {

constexpr int kBacklog = 4096;  // connections that nobody has accepted yet

class Listener {
 public:
  static Result<std::shared_ptr<Listener>> make(std::weak_ptr<Port> port, const std::string& name);
  ~Listener();
  // The next client that has said who it is; none by the deadline.
  std::unique_ptr<ShmHandshake> next(Deadline deadline);
  // One that is there already.
  std::unique_ptr<ShmHandshake> take_one_that_spoke();
  // Where to wait for more: the listener's own descriptor, and those of clients that have not spoken yet.
  std::vector<int> descriptors() const;

 private:
  Listener(std::weak_ptr<Port> port, Fd fd) : port_(std::move(port)), fd_(std::move(fd)) {}
  void accept_all();
  void wait_for_somebody(Deadline deadline);

  const std::weak_ptr<Port> port_;  // which owns this
  Fd fd_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ShmHandshake>> silent_;  // accepted, and not handed out yet
};

}  // namespace viaduct::via
