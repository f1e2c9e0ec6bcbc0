#include "via/vipl/adapter.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/config.hpp"
#include "base/log.hpp"

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

Status Adapter::start() {
  VIADUCT_TRY(port_, via::Port::open(meeting::Peers::by_setting, Config::process().flag("VIADUCT_COPY_CMA")));
  asymmetric_ = fence::asymmetric();
  if (const std::error_code fault = leadership_.start()) return Error(fault.value(), "ready queue: " + fault.message());
  return {};
}

// ---- VIs that wait for room

void Adapter::add_blocked(Vi& vi) {
  const std::lock_guard lock(blocked_lock_);
  blocked_.push_back(&vi);
  blocked_count_.fetch_add(1, std::memory_order_relaxed);
}

void Adapter::remove_blocked(Vi& vi) {
  const std::lock_guard lock(blocked_lock_);
  blocked_count_.fetch_sub(static_cast<int>(std::erase(blocked_, &vi)), std::memory_order_relaxed);
}

std::vector<Vi*> Adapter::blocked() {
  const std::lock_guard lock(blocked_lock_);
  return blocked_;
}

// ---- handing errors to the program

void Adapter::set_error_handler(VIP_PVOID context, ErrorHandler handler) {
  const std::lock_guard lock(error_mutex_);
  error_context_ = context;
  error_handler_ = handler;
}

void Adapter::report(Effects& effects) {
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
