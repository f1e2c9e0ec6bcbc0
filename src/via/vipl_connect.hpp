// What the ways to connect share.
#pragma once

#include <memory>
#include <mutex>

#include "via/connection.hpp"

namespace viaduct::vipl {

class Nic;
class Vi;

// A request that VipConnectWait has handed out.
class Connection {
 public:
  Connection(std::shared_ptr<Nic> adapter, std::unique_ptr<Handshake> heard)
      : nic(std::move(adapter)), handshake(std::move(heard)) {}
  const std::shared_ptr<Nic> nic;
  const std::unique_ptr<Handshake> handshake;
};

// Where a server waits. It stays until the adapter is closed: clients that come in between wait for the next
// VipConnectWait.
class Listener {
 public:
  static Result<std::shared_ptr<Listener>> make(const std::string& name);
  ~Listener();
  // The next client that has said who it is; none by the deadline.
  std::unique_ptr<Handshake> next(Deadline deadline);

 private:
  explicit Listener(Fd fd) : fd_(std::move(fd)) {}
  void accept_all();
  std::unique_ptr<Handshake> take_one_that_spoke();
  void wait_for_somebody(Deadline deadline);

  Fd fd_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Handshake>> silent_;  // accepted, and not handed out yet
};

// VIP_SUCCESS: two VIs may be connected.
VIP_RETURN agree(const Hello& mine, const Hello& theirs);
// How large a channel is: small VIs take little memory, so that thousands fit.
via::ChannelOptions channel_for(std::size_t max_transfer);

}  // namespace viaduct::vipl
