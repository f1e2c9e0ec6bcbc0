#include "via/vipl_peer_request.hpp"

#include "base/log.hpp"
#include "via/vipl_connect.hpp"
#include "via/vipl_fork.hpp"

namespace viaduct::vipl {

PeerRequest::PeerRequest(const Hello& mine, int table_fd, const via::ChannelOptions& options, Deadline deadline)
    : mine_(mine),
      table_fd_(table_fd),
      options_(options),
      deadline_(deadline),
      name_(peer_name(mine.local, mine.remote)),
      order_(compare(mine.local, mine.remote)) {}

PeerRequest::~PeerRequest() {
  if (listener_) keep_in_children(listener_.get());
}

// The end is remembered: whoever asks first need not be the one that the program listens to.
VIP_RETURN PeerRequest::advance() {
  if (result_ == VIP_NOT_DONE) result_ = go_on();
  return result_;
}

VIP_RETURN PeerRequest::go_on() {
  if (!handshake_) seek();
  if (handshake_) {
    switch (handshake_->advance()) {
      case Handshake::Step::pending:
        break;
      case Handshake::Step::heard:
        if (const VIP_RETURN answer = heard(); answer != VIP_NOT_DONE) return answer;
        break;
      case Handshake::Step::done:
        return VIP_SUCCESS;
      case Handshake::Step::refused:
        if (handshake_->verdict() != VIP_NO_MATCH) return handshake_->verdict();
        handshake_.reset();  // somebody else's turn: try again
        break;
      case Handshake::Step::gone:
        handshake_.reset();
        break;
    }
  }
  return deadline_.expired(Clock::steady().now_ns()) ? VIP_TIMEOUT : VIP_NOT_DONE;
}

void PeerRequest::seek() {
  if (order_ <= 0) try_to_listen();
  if (!handshake_ && !listener_ && order_ >= 0) try_to_connect();
}

void PeerRequest::try_to_listen() {
  if (!listener_) {
    auto listener =
        meeting::listen_at(name_, kBacklog);  // taken: by another request for the same two, which goes first
    if (!listener) return;
    listener_ = std::move(*listener);
    close_in_children(listener_.get());
  }
  auto socket = meeting::accept_at(listener_.get());
  if (!socket) return;
  auto handshake = Handshake::open(std::move(*socket));
  if (handshake)
    handshake_ = std::move(*handshake);
  else
    log::fault(handshake.error().because("connect to a peer").message());
}

void PeerRequest::try_to_connect() {
  auto socket = meeting::connect_at(name_);
  if (!socket) return;
  auto handshake = Handshake::join(std::move(*socket), mine_, table_fd_);
  if (handshake) handshake_ = std::move(*handshake);
}

// The other's addresses must be ours the other way round, and what the VIs are must agree.
VIP_RETURN PeerRequest::heard() {
  const Hello& theirs = handshake_->theirs();
  if (compare(theirs.local, mine_.remote) != 0 || compare(theirs.remote, mine_.local) != 0) {
    handshake_->refuse(VIP_NO_MATCH);
    handshake_.reset();
    return VIP_NOT_DONE;
  }
  if (const VIP_RETURN agreed = agree(mine_, theirs); agreed != VIP_SUCCESS) {
    handshake_->refuse(agreed);
    return agreed;
  }
  if (!handshake_->accept(mine_, table_fd_, options_)) handshake_.reset();
  return VIP_NOT_DONE;
}

}  // namespace viaduct::vipl
