#include "via/vipl/peer_request.hpp"

#include "base/log.hpp"
#include "via/port/port.hpp"

namespace viaduct::vipl {

using via::Handshake;

PeerRequest::PeerRequest(std::shared_ptr<via::Port> port, const Description& mine, const via::Terms& terms,
                         Deadline deadline)
    : port_(std::move(port)),
      mine_(mine),
      terms_(terms),
      deadline_(deadline),
      place_(peer_place(mine.local, mine.remote)),
      order_(order_of(mine.local, mine.remote)) {}

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
        // Whoever listened has gone, perhaps: the next to ask may be this side.
        if (order_ == 0 && joining_ != nullptr && joining_->found_nobody_yet()) handshake_.reset();
        break;
      case Handshake::Step::heard:
        if (const VIP_RETURN answer = heard(); answer != VIP_NOT_DONE) return answer;
        break;
      case Handshake::Step::done:
        return answered();
      case Handshake::Step::refused:
        if (const VIP_RETURN why = read_refusal(handshake_->words()); why != VIP_NO_MATCH) return why;
        handshake_.reset();  // somebody else's turn: try again
        break;
      case Handshake::Step::nobody:
      case Handshake::Step::timed_out:
        return VIP_TIMEOUT;
      case Handshake::Step::failed:
        handshake_.reset();
        break;
    }
  }
  return deadline_.expired(Clock::steady().now_ns()) ? VIP_TIMEOUT : VIP_NOT_DONE;
}

void PeerRequest::seek() {
  if (order_ <= 0) try_to_listen();
  joining_ = nullptr;
  if (handshake_ || listener_ || order_ < 0) return;
  auto joining = port_->join(place_, terms_, std::as_bytes(std::span(&mine_, 1)), deadline_);
  if (!joining) return;
  handshake_ = std::move(*joining);
  joining_ = handshake_.get();
}

// Taken: by another request for the same two, which goes first.
void PeerRequest::try_to_listen() {
  if (!listener_) {
    auto listener = via::Listener::make(port_, place_);
    if (!listener) return;
    listener_ = std::move(*listener);
  }
  handshake_ = listener_->take_one_that_spoke();
}

// The other's addresses must be ours the other way round, and what the VIs are must agree.
VIP_RETURN PeerRequest::heard() {
  const auto theirs = read_description(handshake_->words());
  if (!theirs || compare(theirs->local, mine_.remote) != 0 || compare(theirs->remote, mine_.local) != 0) {
    handshake_->refuse(refusal(VIP_NO_MATCH));
    handshake_.reset();
    return VIP_NOT_DONE;
  }
  if (const VIP_RETURN agreed = agree(mine_, *theirs); agreed != VIP_SUCCESS) {
    handshake_->refuse(refusal(agreed));
    return agreed;
  }
  theirs_ = *theirs;
  if (!handshake_->accept(terms_, std::as_bytes(std::span(&mine_, 1)))) handshake_.reset();
  return VIP_NOT_DONE;
}

VIP_RETURN PeerRequest::answered() {
  if (joining_ == nullptr) return VIP_SUCCESS;
  const auto theirs = read_description(handshake_->words());
  if (!theirs) return VIP_ERROR_RESOURCE;
  theirs_ = *theirs;
  return VIP_SUCCESS;
}

}  // namespace viaduct::vipl
