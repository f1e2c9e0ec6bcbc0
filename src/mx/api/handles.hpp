// What stands behind the handles of the MX interface, and how its functions fail.
#pragma once

#include <viaduct/mx_extensions.h>
#include <viaduct/myriexpress.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "mx/core.hpp"

// The memory of a closed endpoint is used again, and never given back: a handle can be looked at whatever has become of
// it.
struct mx_endpoint final : public viaduct::mx::Events {
  std::atomic<bool> is_open{false};
  std::unique_ptr<viaduct::mx::Core> core;
  mx_error_handler_t error_handler = nullptr;  // none: the process's
  std::uint64_t context_mask = 0;              // bits of match_info that tell queues apart
  mx_unexp_handler_t unexpected_handler = nullptr;
  void* unexpected_context = nullptr;
  std::atomic<const void*> handler_runs_in{nullptr};  // thread
  std::uint64_t taken_by_handler = 0;

  bool unexpected(const viaduct::mx::Waiting& message, const std::byte* bytes) override;
};

namespace viaduct::mx {

const void* this_thread();

bool is_initialized();
bool is_good(mx_endpoint_t endpoint);

// Through the endpoint's error handler, or the process's.
mx_return_t fails(mx_endpoint_t endpoint, mx_return_t why, const char* function);

mx_endpoint_addr_t address_of(const Partner& partner);
Partner* partner_of(const mx_endpoint_addr_t& address);  // null: of no open endpoint

inline Request* request_of(mx_request_t request) {
  return reinterpret_cast<Request*>(request);
}
inline mx_request_t handle_of(Request* request) {
  return reinterpret_cast<mx_request_t>(request);
}

inline std::uint64_t nanoseconds(std::uint32_t milliseconds) {
  return milliseconds == MX_INFINITE ? kForever : std::uint64_t{milliseconds} * 1'000'000;
}

}  // namespace viaduct::mx
