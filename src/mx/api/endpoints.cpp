// Opening, closing and connecting endpoints.
#include <cerrno>
#include <deque>
#include <vector>

#include "base/log.hpp"
#include "mx/api/handles.hpp"
#include "mx/boards.hpp"

namespace viaduct::mx {

namespace {

std::atomic<bool> initialized{false};

constexpr std::uint64_t kAddressMark = 0x4d584144ull << 32;  // "MXAD"

struct Handles {
  std::mutex mutex;
  std::deque<mx_endpoint> all;
  std::vector<mx_endpoint*> free;
};
Handles& handles() {
  static auto* const table = new Handles;  // lives as long as any thread
  return *table;
}

mx_endpoint* take_handle() {
  Handles& table = handles();
  const std::lock_guard lock(table.mutex);
  if (table.free.empty()) return &table.all.emplace_back();
  mx_endpoint* const one = table.free.back();
  table.free.pop_back();
  return one;
}

void give_handle(mx_endpoint* one) {
  Handles& table = handles();
  const std::lock_guard lock(table.mutex);
  table.free.push_back(one);
}

struct Parameters {
  Options options;
  mx_error_handler_t error_handler = nullptr;
  std::uint64_t context_mask = 0;
};

mx_return_t read_parameters(const mx_param_t* list, std::uint32_t count, Parameters& to) {
  if (count != 0 && list == nullptr) return MX_BAD_PARAM_LIST;
  for (const mx_param_t& one : std::span(list, count)) {
    switch (one.key) {
      case MX_PARAM_ERROR_HANDLER:
        to.error_handler = one.val.error_handler;
        break;
      case MX_PARAM_UNEXP_QUEUE_MAX:
        to.options.most_unexpected = one.val.unexp_queue_max;
        break;
      case MX_PARAM_CONTEXT_ID: {
        const unsigned bits = one.val.context_id.bits, shift = one.val.context_id.shift;
        if (bits > MX_CONTEXT_ID_BITS_MAX || shift + bits > 64) return MX_BAD_PARAM_VAL;
        to.context_mask = bits == 0 ? 0 : ((std::uint64_t{1} << bits) - 1) << shift;
        break;
      }
      default:
        return MX_BAD_PARAM_NAME;
    }
  }
  return MX_SUCCESS;
}

mx_return_t code_of(const Failure& why) {
  switch (why.code.value()) {
    case EADDRINUSE:
      return MX_BUSY;
    case EACCES:
    case EPERM:
      return MX_NO_PERM;
    case ENODEV:
      return MX_NO_DEV;
    default:
      return MX_NO_RESOURCES;
  }
}

mx_return_t code_of(Status status) {
  switch (status) {
    case Status::success:
      return MX_SUCCESS;
    case Status::timed_out:
      return MX_TIMEOUT;
    case Status::bad_key:
      return MX_BAD_CONNECTION_KEY;
    case Status::no_resources:
      return MX_NO_RESOURCES;
    default:
      return MX_CONNECTION_FAILED;
  }
}

}  // namespace

const void* this_thread() {
  static thread_local char place;
  return &place;
}

bool is_initialized() {
  return initialized.load(std::memory_order_relaxed);
}

bool is_good(mx_endpoint_t endpoint) {
  return endpoint != nullptr && endpoint->is_open.load(std::memory_order_acquire) && !endpoint->core->is_abandoned();
}

mx_endpoint_addr_t address_of(const Partner& partner) {
  return {{partner.name.nic << 16 | partner.name.endpoint, kAddressMark | partner.handle}};
}

Partner* partner_of(const mx_endpoint_addr_t& address) {
  if ((address.stuff[1] & ~std::uint64_t{UINT32_MAX}) != kAddressMark) return nullptr;
  return registered_partner(static_cast<std::uint32_t>(address.stuff[1]));
}

}  // namespace viaduct::mx

using namespace viaduct;
using namespace viaduct::mx;

bool mx_endpoint::unexpected(const Waiting& message, const std::byte* bytes) {
  if (unexpected_handler == nullptr) return false;
  handler_runs_in.store(this_thread(), std::memory_order_relaxed);
  const mx_unexp_handler_action_t action =
      unexpected_handler(unexpected_context, address_of(*message.from), message.match,
                         static_cast<std::uint32_t>(message.length), const_cast<std::byte*>(bytes));
  handler_runs_in.store(nullptr, std::memory_order_relaxed);
  return action == MX_RECV_FINISHED;
}

mx_return_t mx__init_api(int api) {
  if (api >> 8 != MX_API >> 8) return fails(nullptr, MX_BAD_LIB_VERSION, "mx_init");
  if (initialized.exchange(true)) return fails(nullptr, MX_ALREADY_INITIALIZED, "mx_init");
  return MX_SUCCESS;
}

mx_return_t mx_finalize() {
  if (!is_initialized()) return fails(nullptr, MX_NOT_INITIALIZED, "mx_finalize");
  std::vector<mx_endpoint*> open;
  {
    const std::lock_guard lock(handles().mutex);
    for (mx_endpoint& one : handles().all)
      if (one.is_open.load()) open.push_back(&one);
  }
  for (mx_endpoint* const one : open) (void)mx_close_endpoint(one);
  initialized.store(false);
  return MX_SUCCESS;
}

mx_return_t mx_open_endpoint(uint32_t board_number, uint32_t endpoint_id, uint32_t endpoint_key,
                             mx_param_t* params_array, uint32_t params_count, mx_endpoint_t* endpoint) {
  constexpr const char* kCall = "mx_open_endpoint";
  if (!is_initialized()) return fails(nullptr, MX_NOT_INITIALIZED, kCall);
  if (endpoint == nullptr) return fails(nullptr, MX_BAD_ENDPOINT, kCall);
  Parameters parameters;
  if (const mx_return_t read = read_parameters(params_array, params_count, parameters); read != MX_SUCCESS)
    return fails(nullptr, read, kCall);
  Options& options = parameters.options;
  const auto all = boards();
  const std::size_t board = board_number == MX_ANY_NIC ? 0 : board_number;
  if (board >= all.size()) return fails(nullptr, MX_BOARD_UNKNOWN, kCall);
  if (endpoint_id != MX_ANY_ENDPOINT && endpoint_id >= kMostEndpoints) return fails(nullptr, MX_BAD_ENDPOINT_ID, kCall);
  options.nic = all[board].nic;
  options.number = endpoint_id == MX_ANY_ENDPOINT ? kAnyEndpoint : endpoint_id;
  options.key = endpoint_key;
  Failure why;
  auto core = std::make_unique<Core>();
  if (!core->start(options, why)) {
    if (why.code.value() != EADDRINUSE) log::fault("mx_open_endpoint: " + why.message);
    return fails(nullptr, code_of(why), kCall);
  }
  mx_endpoint* const made = take_handle();
  made->core = std::move(core);
  made->error_handler = parameters.error_handler;
  made->context_mask = parameters.context_mask;
  made->unexpected_handler = nullptr;
  made->is_open.store(true, std::memory_order_release);
  *endpoint = made;
  return MX_SUCCESS;
}

mx_return_t mx_close_endpoint(mx_endpoint_t endpoint) {
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, "mx_close_endpoint");
  if (endpoint->handler_runs_in.load(std::memory_order_relaxed) == this_thread())
    return fails(endpoint, MX_CLOSE_IN_HANDLER, "mx_close_endpoint");
  if (!endpoint->is_open.exchange(false)) return fails(nullptr, MX_BAD_ENDPOINT, "mx_close_endpoint");
  endpoint->core.reset();
  give_handle(endpoint);
  return MX_SUCCESS;
}

mx_return_t mx_wakeup(mx_endpoint_t endpoint) {
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, "mx_wakeup");
  endpoint->core->wake();
  return MX_SUCCESS;
}

mx_return_t mx_disable_progression(mx_endpoint_t endpoint) {
  return is_good(endpoint) ? MX_SUCCESS : fails(endpoint, MX_BAD_ENDPOINT, "mx_disable_progression");
}

mx_return_t mx_reenable_progression(mx_endpoint_t endpoint) {
  return is_good(endpoint) ? MX_SUCCESS : fails(endpoint, MX_BAD_ENDPOINT, "mx_reenable_progression");
}

mx_return_t mx_progress(mx_endpoint_t endpoint) {
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, "mx_progress");
  (void)endpoint->core->progress();
  return MX_SUCCESS;
}

mx_return_t mx_register_unexp_handler(mx_endpoint_t endpoint, mx_unexp_handler_t handler, void* context) {
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, "mx_register_unexp_handler");
  const Core::Guard guard(*endpoint->core);
  endpoint->unexpected_handler = handler;
  endpoint->unexpected_context = context;
  endpoint->core->set_events(handler == nullptr ? nullptr : endpoint);
  return MX_SUCCESS;
}

// ---- connecting

mx_return_t mx_connect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key, uint32_t timeout,
                       mx_endpoint_addr_t* addr) {
  constexpr const char* kCall = "mx_connect";
  if (!is_good(endpoint) || addr == nullptr) return fails(endpoint, MX_BAD_ENDPOINT, kCall);
  if (!is_nic(nic_id)) return fails(endpoint, MX_NIC_NOT_FOUND, kCall);
  if (endpoint_id >= kMostEndpoints) return fails(endpoint, MX_BAD_ENDPOINT_ID, kCall);
  Core& core = *endpoint->core;
  Partner* const partner = core.partner({nic_id, endpoint_id}, key);
  if (partner == nullptr) return fails(endpoint, MX_NO_RESOURCES, kCall);
  Request* const request = core.connect(partner, key, 0, nullptr, nanoseconds(timeout));
  if (request == nullptr) return fails(endpoint, MX_NO_RESOURCES, kCall);
  struct Both {
    Core& core;
    Request* request;
    Completion done;
  } both{core, request, {}};
  const auto look = [](void* argument) {
    auto& of = *static_cast<Both*>(argument);
    return of.core.take(of.request, of.done);
  };
  while (!core.wait(kForever, {look, &both})) continue;  // woken
  const mx_return_t result = code_of(both.done.status);
  if (result == MX_TIMEOUT) return result;
  if (result != MX_SUCCESS) return fails(endpoint, result, kCall);
  *addr = address_of(*partner);
  return MX_SUCCESS;
}

mx_return_t mx_iconnect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key,
                        uint64_t match_info, void* context, mx_request_t* request) {
  constexpr const char* kCall = "mx_iconnect";
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, kCall);
  if (request == nullptr) return fails(endpoint, MX_BAD_REQUEST, kCall);
  if (!is_nic(nic_id)) return fails(endpoint, MX_NIC_NOT_FOUND, kCall);
  if (endpoint_id >= kMostEndpoints) return fails(endpoint, MX_BAD_ENDPOINT_ID, kCall);
  Core& core = *endpoint->core;
  Partner* const partner = core.partner({nic_id, endpoint_id}, key);
  Request* const made = partner == nullptr ? nullptr : core.connect(partner, key, match_info, context, kConnectNs);
  if (made == nullptr) return fails(endpoint, MX_NO_RESOURCES, kCall);
  *request = handle_of(made);
  return MX_SUCCESS;
}

mx_return_t mx_disconnect(mx_endpoint_t endpoint, mx_endpoint_addr_t addr) {
  constexpr const char* kCall = "mx_disconnect";
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, kCall);
  if (endpoint->handler_runs_in.load(std::memory_order_relaxed) == this_thread())
    return fails(endpoint, MX_CLOSE_IN_HANDLER, kCall);
  Partner* const partner = partner_of(addr);
  if (partner == nullptr || partner->core != endpoint->core.get()) return fails(endpoint, MX_BAD_ENDPOINT, kCall);
  endpoint->core->disconnect(partner);
  return MX_SUCCESS;
}

// ---- addresses

mx_return_t mx_get_endpoint_addr(mx_endpoint_t endpoint, mx_endpoint_addr_t* endpoint_addr) {
  if (!is_good(endpoint) || endpoint_addr == nullptr) return fails(endpoint, MX_BAD_ENDPOINT, "mx_get_endpoint_addr");
  *endpoint_addr = address_of(*endpoint->core->self());
  return MX_SUCCESS;
}

mx_return_t mx_decompose_endpoint_addr(mx_endpoint_addr_t endpoint_addr, uint64_t* nic_id, uint32_t* endpoint_id) {
  if (nic_id != nullptr) *nic_id = endpoint_addr.stuff[0] >> 16;
  if (endpoint_id != nullptr) *endpoint_id = static_cast<uint32_t>(endpoint_addr.stuff[0] & 0xffff);
  return MX_SUCCESS;
}

mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t endpoint_addr, uint64_t* nic_id, uint32_t* endpoint_id,
                                        uint32_t* session_id) {
  const Partner* const partner = partner_of(endpoint_addr);
  if (partner == nullptr) return fails(nullptr, MX_BAD_ENDPOINT, "mx_decompose_endpoint_addr2");
  if (session_id != nullptr) *session_id = partner->session;
  return mx_decompose_endpoint_addr(endpoint_addr, nic_id, endpoint_id);
}

mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t endpoint_addr, void* context) {
  Partner* const partner = partner_of(endpoint_addr);
  if (partner == nullptr) return fails(nullptr, MX_BAD_ENDPOINT, "mx_set_endpoint_addr_context");
  partner->context = context;
  return MX_SUCCESS;
}

mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t endpoint_addr, void** context) {
  const Partner* const partner = partner_of(endpoint_addr);
  if (partner == nullptr || context == nullptr) return fails(nullptr, MX_BAD_ENDPOINT, "mx_get_endpoint_addr_context");
  *context = partner->context;
  return MX_SUCCESS;
}
