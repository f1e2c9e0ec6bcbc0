// Errors that no descriptor can tell: how a connection breaks, and whom that is reported to.
#include <fmt/format.h>

#include "base/counters.hpp"
#include "base/log.hpp"
#include "via/vipl/nic.hpp"

namespace viaduct::vipl {

namespace {

const char* name_of(VIP_ERROR_CODE code) {
  switch (code) {
    case VIP_ERROR_POST_DESC:
      return "a descriptor was posted that is misaligned, not in registered memory, or of another protection tag";
    case VIP_ERROR_CONN_LOST:
      return "the connection was lost";
    case VIP_ERROR_RECVQ_EMPTY:
      return "a message came while no receive descriptor was posted";
    case VIP_ERROR_VI_OVERRUN:
      return "too many descriptors were posted";
    case VIP_ERROR_RDMAW_PROT:
      return "an RDMA write was not permitted";
    case VIP_ERROR_RDMAW_DATA:
      return "an RDMA write could not be carried out";
    case VIP_ERROR_RDMAW_ABORT:
      return "an RDMA write came in part";
    case VIP_ERROR_RDMAR_PROT:
      return "an RDMA read was not permitted";
    case VIP_ERROR_COMP_PROT:
      return "a completion could not be written";
    case VIP_ERROR_RDMA_TRANSPORT:
      return "an RDMA operation could not be carried out";
    case VIP_ERROR_CATASTROPHIC:
      return "the adapter cannot go on";
  }
  return "unknown error";
}

}  // namespace

void Vi::report(VIP_ERROR_CODE code, Effects& effects, VIP_DESCRIPTOR* descriptor, std::uint32_t operation) const {
  VIP_ERROR_DESCRIPTOR error{};
  error.NicHandle = nic_->handle;
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

// ---- handing errors to the program

void Nic::set_error_handler(VIP_PVOID context, ErrorHandler handler) {
  const std::lock_guard lock(error_mutex_);
  error_context_ = context;
  error_handler_ = handler;
}

void Nic::report(Effects& effects) {
  VIP_PVOID context;
  ErrorHandler handler;
  {
    const std::lock_guard lock(error_mutex_);
    context = error_context_;
    handler = error_handler_;
  }
  const auto errors = std::exchange(effects.errors, {});
  for (VIP_ERROR_DESCRIPTOR error : errors) {
    if (handler != nullptr)
      handler(context, &error);
    else
      log::fault(fmt::format("{}: VI {}: {}; VipErrorCallback makes this the program's business", name_, error.ViHandle,
                             name_of(error.ErrorCode)));
  }
}

}  // namespace viaduct::vipl

using namespace viaduct::vipl;

VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, VIP_PVOID Context,
                            void (*Handler)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR* ErrorDesc)) {
  Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr) return VIP_INVALID_PARAMETER;
  nic->set_error_handler(Context, Handler);
  return VIP_SUCCESS;
}
