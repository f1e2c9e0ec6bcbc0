// Where a server waits for connections, of this host and of others. Clients that come while nobody asks wait for the
// next that does.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "via/port/local_port.hpp"
#include "via/port/shm_handshake.hpp"

namespace viaduct::via {

class Network;

// Where a program is met.
struct Place {
  std::string host;   // to be asked; empty, or one of this host's addresses: this one
  std::string here;   // its name on one host (base/meeting.hpp)
  std::string there;  // its name over the network; empty: not over the network
};

constexpr int kBacklog = 4096;  // connections that nobody has accepted yet

class Listener {
 public:
  // Other hosts are a matter of luck: where the network cannot be had, or the name is another's there, the log says so.
  static Result<std::shared_ptr<Listener>> make(std::weak_ptr<LocalPort> port, const Place& place);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  // The next client that has said who it is; none by the deadline.
  std::unique_ptr<Handshake> next(Deadline deadline);
  // One that is there already.
  std::unique_ptr<Handshake> take_one_that_spoke();
  // Where to wait for more of this host: the listener's own descriptor, and those of clients that have not spoken yet.
  // For other hosts there is the network's.
  std::vector<int> descriptors() const;

 private:
  Listener(std::weak_ptr<LocalPort> port, Fd fd) : port_(std::move(port)), fd_(std::move(fd)) {}
  void accept_all();
  std::unique_ptr<Handshake> take_one_of_this_host();
  std::uint64_t news() const;
  void wait_for_somebody(Deadline deadline, std::uint64_t seen);

  const std::weak_ptr<LocalPort> port_;  // which owns this
  Fd fd_;
  std::shared_ptr<Network> network_;  // none: other hosts do not find this
  std::string there_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ShmHandshake>> silent_;  // accepted, and not handed out yet
};

}  // namespace viaduct::via
