// A connection between equals under way: VipConnectPeerRequest until VipConnectPeerDone or Wait has told its end.
//
// Both sides know both discriminators. The one with the smaller listens, the other connects; where they are the same,
// whoever comes first listens. Nothing here waits: it goes on whenever somebody asks.
#pragma once

#include "via/port/listener.hpp"
#include "via/vipl/connect.hpp"

namespace viaduct::vipl {

class PeerRequest {
 public:
  PeerRequest(std::shared_ptr<via::Port> port, const Description& mine, const via::Terms& terms, Deadline deadline);

  // VIP_NOT_DONE, VIP_SUCCESS (take the handshake), or why not.
  VIP_RETURN advance();
  std::unique_ptr<via::Handshake> take_handshake() { return std::move(handshake_); }
  const Description& theirs() const { return theirs_; }

 private:
  VIP_RETURN go_on();
  void seek();
  void try_to_listen();
  VIP_RETURN heard();
  VIP_RETURN answered();

  const std::shared_ptr<via::Port> port_;
  const Description mine_;
  const via::Terms terms_;
  const Deadline deadline_;
  const via::Place place_;
  const int order_;  // of our discriminator and theirs
  VIP_RETURN result_ = VIP_NOT_DONE;
  via::Handshake* joining_ = nullptr;  // the handshake, where this side asks
  std::shared_ptr<via::Listener> listener_;
  std::unique_ptr<via::Handshake> handshake_;
  Description theirs_{};
};

}  // namespace viaduct::vipl
