// Errors that no descriptor can tell: how a connection breaks, and whom that is reported to.
#include "base/counters.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

void Vi::report(VIP_ERROR_CODE code, Effects& effects, VIP_DESCRIPTOR* descriptor, std::uint32_t operation) const {
  VIP_ERROR_DESCRIPTOR error{};
  error.NicHandle = adapter_->handle;
  error.ViHandle = handle;
  error.DescriptorPtr = descriptor;
  error.OpCode = operation;
  error.ResourceCode = descriptor != nullptr ? VIP_RESOURCE_DESCRIPTOR : VIP_RESOURCE_VI;
  error.ErrorCode = code;
  effects.errors.push_back(error);
}

// The connection is over: the peer is told why as well as possible, and everything posted comes back.
void Vi::fail(VIP_ERROR_CODE code, Effects& effects, Tell tell, VIP_DESCRIPTOR* descriptor, std::uint32_t operation) {
  if (state_ != VIP_STATE_CONNECTED) return;
  static Counter broken = counter("via.broken");
  broken.add();
  (void)some_offers_are_there();  // before what the peer has said since
  if (tell != Tell::nothing && !out_.begun) {
    // What was placed before is acknowledged first: the peer blames the oldest message that is not.
    const PlacedHeader placed{messages_placed_};
    const BrokenHeader header{static_cast<std::uint32_t>(code), tell == Tell::our_descriptor ? 1u : 0u};
    if (messages_placed_ != placed_told_) (void)push_control(kPlaced, bytes_of(placed));
    (void)push_answers();
    (void)push_control(kBroken, bytes_of(header));
  }
  channel_->finish_sending();  // a peer that could not be told sees the end
  end_copies();
  (void)some_offers_are_there();
  state_ = VIP_STATE_ERROR;
  set_blocked(false);
  report(code, effects, descriptor, operation);
  flush(false, effects);
  flush(true, effects);
}

// What had left and is not acknowledged may have arrived or not; what waits behind it has not left.
void Vi::lost(VIP_ERROR_CODE code, Effects& effects) {
  if (state_ != VIP_STATE_CONNECTED) return;
  end_copies();
  (void)some_offers_are_there();
  send_.for_each_started([&](WorkItem& item) {
    if (!item.finished && (!item.by_reference || acknowledged()))
      finish(item, VIP_STATUS_TRANSPORT_ERROR | item.send_operation());
    return true;
  });
  fail(code, effects, Tell::nothing);
}

}  // namespace viaduct::vipl
