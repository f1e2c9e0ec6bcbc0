// A connection between equals under way: VipConnectPeerRequest until VipConnectPeerDone or Wait has told its end.
//
// Both sides know both discriminators. The one with the smaller listens, the other connects; where they are the same,
// whoever comes first listens. Nothing here waits: it goes on whenever somebody asks.
#pragma once

#include "via/connection.hpp"

namespace viaduct::vipl {

class PeerRequest {
 public:
  PeerRequest(const Hello& mine, int table_fd, const via::ChannelOptions& options, Deadline deadline);
  ~PeerRequest();

  // VIP_NOT_DONE, VIP_SUCCESS (take the handshake), or why not.
  VIP_RETURN advance();
  std::unique_ptr<Handshake> take_handshake() { return std::move(handshake_); }

 private:
  VIP_RETURN go_on();
  void seek();
  void try_to_listen();
  void try_to_connect();
  VIP_RETURN heard();

  const Hello mine_;
  const int table_fd_;
  const via::ChannelOptions options_;
  const Deadline deadline_;
  const std::string name_;
  const int order_;  // of our discriminator and theirs
  VIP_RETURN result_ = VIP_NOT_DONE;
  Fd listener_;
  std::unique_ptr<Handshake> handshake_;
};

}  // namespace viaduct::vipl
