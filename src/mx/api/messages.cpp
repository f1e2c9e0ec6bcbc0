// Sending, receiving, and what becomes of it.
#include <algorithm>

#include "mx/api/handles.hpp"

namespace viaduct::mx {

namespace {

// The program's list as ours. MX_SUCCESS: it makes sense.
mx_return_t read_segments(const mx_segment_t* list, std::uint32_t count, iovec* pieces) {
  if (count > MX_MAX_SEGMENTS) return MX_BAD_SEG_CNT;
  if (count != 0 && list == nullptr) return MX_BAD_SEG_LIST;
  std::uint64_t whole = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (list[i].segment_ptr == nullptr && list[i].segment_length != 0) return MX_BAD_SEG_MEM;
    pieces[i] = {list[i].segment_ptr, list[i].segment_length};
    whole += list[i].segment_length;
  }
  return whole > UINT32_MAX ? MX_BAD_SEG_LIST : MX_SUCCESS;
}

void tell(const Completion& done, mx_status_t* status) {
  if (status == nullptr) return;
  *status = {};
  status->code = static_cast<mx_status_code_t>(done.status);
  if (done.partner != nullptr) status->source = address_of(*done.partner);
  status->match_info = done.match;
  status->msg_length = static_cast<std::uint32_t>(std::min<std::uint64_t>(done.length, UINT32_MAX));
  status->xfer_length = static_cast<std::uint32_t>(std::min<std::uint64_t>(done.transferred, UINT32_MAX));
  status->context = done.context;
}

void tell(const Waiting& waiting, mx_status_t* status) {
  if (status == nullptr) return;
  *status = {};
  status->code = MX_STATUS_SUCCESS;
  status->source = address_of(*waiting.from);
  status->match_info = waiting.match;
  status->msg_length = static_cast<std::uint32_t>(std::min<std::uint64_t>(waiting.length, UINT32_MAX));
}

mx_return_t send(const char* call, mx_endpoint_t endpoint, const mx_segment_t* segments, std::uint32_t count,
                 const mx_endpoint_addr_t& to, std::uint64_t match, void* context, mx_request_t* request,
                 bool until_matched) {
  if (!is_good(endpoint)) [[unlikely]]
    return fails(endpoint, MX_BAD_ENDPOINT, call);
  if (request == nullptr) [[unlikely]]
    return fails(endpoint, MX_BAD_REQUEST, call);
  iovec pieces[MX_MAX_SEGMENTS];
  if (const mx_return_t read = read_segments(segments, count, pieces); read != MX_SUCCESS) [[unlikely]]
    return fails(endpoint, read, call);
  Partner* const partner = partner_of(to);
  if (partner == nullptr || partner->core != endpoint->core.get()) [[unlikely]]
    return fails(endpoint, MX_BAD_ENDPOINT, call);
  Request* const made = endpoint->core->send(
      {.to = partner, .bytes = {pieces, count}, .match = match, .until_matched = until_matched, .context = context});
  if (made == nullptr) [[unlikely]]
    return fails(endpoint, MX_NO_RESOURCES, call);
  *request = handle_of(made);
  return MX_SUCCESS;
}

bool splits_context(const mx_endpoint& endpoint, std::uint64_t mask) {
  return (mask & endpoint.context_mask) != endpoint.context_mask;
}

mx_return_t check_match(const mx_endpoint& endpoint, std::uint64_t match, std::uint64_t mask) {
  if ((match & ~mask) != 0) return MX_BAD_MATCH_MASK;
  return splits_context(endpoint, mask) ? MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK : MX_SUCCESS;
}

// A request that is done is over: true.
bool take_if_done(Core& core, mx_request_t* request, mx_status_t* status) {
  Completion done;
  if (!core.take(request_of(*request), done)) return false;
  *request = nullptr;
  tell(done, status);
  return true;
}

template <class Look>
bool wait_until(Core& core, std::uint32_t milliseconds, Look look) {
  return core.wait(nanoseconds(milliseconds),
                   {[](void* argument) { return (*static_cast<Look*>(argument))(); }, &look});
}

bool take_any(Core& core, std::uint64_t match, std::uint64_t mask, mx_status_t* status) {
  const Core::Guard guard(core);
  Request* const found = core.first_done(match, mask);
  if (found == nullptr) return false;
  Completion done;
  (void)core.take(found, done);
  tell(done, status);
  return true;
}

bool probe_once(Core& core, std::uint64_t match, std::uint64_t mask, mx_status_t* status) {
  Waiting waiting;
  if (!core.probe({.match = match, .mask = mask}, waiting)) return false;
  tell(waiting, status);
  return true;
}

bool is_request(mx_endpoint_t endpoint, const mx_request_t* request) {
  return request != nullptr && *request != nullptr && endpoint->core->owns(request_of(*request));
}

// What every function checks that asks about a request.
#define CHECK_REQUEST(call)                                                                                \
  do {                                                                                                     \
    if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, call);                                 \
    if (!is_request(endpoint, request) || result == nullptr) return fails(endpoint, MX_BAD_REQUEST, call); \
  } while (false)

#define CHECK_MATCH(call)                                                                              \
  do {                                                                                                 \
    if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, call);                             \
    if (result == nullptr) return fails(endpoint, MX_BAD_REQUEST, call);                               \
    if (const mx_return_t fault = check_match(*endpoint, match_info, match_mask); fault != MX_SUCCESS) \
      return fails(endpoint, fault, call);                                                             \
  } while (false)

}  // namespace

}  // namespace viaduct::mx

using namespace viaduct::mx;

mx_return_t mx_isend(mx_endpoint_t endpoint, mx_segment_t* segments_list, uint32_t segments_count,
                     mx_endpoint_addr_t dest_endpoint, uint64_t match_info, void* context, mx_request_t* request) {
  return send("mx_isend", endpoint, segments_list, segments_count, dest_endpoint, match_info, context, request, false);
}

mx_return_t mx_issend(mx_endpoint_t endpoint, mx_segment_t* segments_list, uint32_t segments_count,
                      mx_endpoint_addr_t dest_endpoint, uint64_t match_info, void* context, mx_request_t* request) {
  return send("mx_issend", endpoint, segments_list, segments_count, dest_endpoint, match_info, context, request, true);
}

mx_return_t mx_irecv(mx_endpoint_t endpoint, mx_segment_t* segments_list, uint32_t segments_count, uint64_t match_info,
                     uint64_t match_mask, void* context, mx_request_t* request) {
  constexpr const char* kCall = "mx_irecv";
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, kCall);
  if (request == nullptr) return fails(endpoint, MX_BAD_REQUEST, kCall);
  if (const mx_return_t fault = check_match(*endpoint, match_info, match_mask); fault != MX_SUCCESS)
    return fails(endpoint, fault, kCall);
  iovec pieces[MX_MAX_SEGMENTS];
  if (const mx_return_t read = read_segments(segments_list, segments_count, pieces); read != MX_SUCCESS)
    return fails(endpoint, read, kCall);
  Request* const made = endpoint->core->receive(
      {.into = {pieces, segments_count}, .match = match_info, .mask = match_mask, .context = context});
  if (made == nullptr) return fails(endpoint, MX_NO_RESOURCES, kCall);
  *request = handle_of(made);
  return MX_SUCCESS;
}

mx_return_t mx_cancel(mx_endpoint_t endpoint, mx_request_t* request, uint32_t* result) {
  CHECK_REQUEST("mx_cancel");
  Core& core = *endpoint->core;
  const Core::Guard guard(core);
  *result = 0;
  if (request_of(*request)->kind != Completion::Kind::receive)
    return fails(endpoint, MX_CANCEL_NOT_SUPPORTED, "mx_cancel");
  if (!core.cancel(request_of(*request))) return MX_SUCCESS;
  core.forget(request_of(*request));
  *request = nullptr;
  *result = 1;
  return MX_SUCCESS;
}

// ---- waiting for requests

mx_return_t mx_test(mx_endpoint_t endpoint, mx_request_t* request, mx_status_t* status, uint32_t* result) {
  CHECK_REQUEST("mx_test");
  Core& core = *endpoint->core;
  *result = 1;
  if (take_if_done(core, request, status)) return MX_SUCCESS;
  (void)core.progress();
  if (!take_if_done(core, request, status)) *result = 0;
  return MX_SUCCESS;
}

mx_return_t mx_wait(mx_endpoint_t endpoint, mx_request_t* request, uint32_t timeout, mx_status_t* status,
                    uint32_t* result) {
  CHECK_REQUEST("mx_wait");
  Core& core = *endpoint->core;
  *result = wait_until(core, timeout, [&] { return take_if_done(core, request, status); }) ? 1 : 0;
  return MX_SUCCESS;
}

mx_return_t mx_test_any(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask, mx_status_t* status,
                        uint32_t* result) {
  CHECK_MATCH("mx_test_any");
  Core& core = *endpoint->core;
  *result = 1;
  if (take_any(core, match_info, match_mask, status)) return MX_SUCCESS;
  (void)core.progress();
  if (!take_any(core, match_info, match_mask, status)) *result = 0;
  return MX_SUCCESS;
}

mx_return_t mx_wait_any(mx_endpoint_t endpoint, uint32_t timeout, uint64_t match_info, uint64_t match_mask,
                        mx_status_t* status, uint32_t* result) {
  CHECK_MATCH("mx_wait_any");
  Core& core = *endpoint->core;
  *result = wait_until(core, timeout, [&] { return take_any(core, match_info, match_mask, status); }) ? 1 : 0;
  return MX_SUCCESS;
}

mx_return_t mx_ipeek(mx_endpoint_t endpoint, mx_request_t* request, uint32_t* result) {
  constexpr const char* kCall = "mx_ipeek";
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, kCall);
  if (request == nullptr || result == nullptr) return fails(endpoint, MX_BAD_REQUEST, kCall);
  if (endpoint->context_mask != 0) return fails(endpoint, MX_NOT_SUPPORTED_WITH_CONTEXT_ID, kCall);
  Core& core = *endpoint->core;
  Request* found = core.first_done(0, 0);
  if (found == nullptr) {
    (void)core.progress();
    found = core.first_done(0, 0);
  }
  *result = found != nullptr ? 1 : 0;
  if (found != nullptr) *request = handle_of(found);
  return MX_SUCCESS;
}

mx_return_t mx_peek(mx_endpoint_t endpoint, uint32_t timeout, mx_request_t* request, uint32_t* result) {
  constexpr const char* kCall = "mx_peek";
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, kCall);
  if (request == nullptr || result == nullptr) return fails(endpoint, MX_BAD_REQUEST, kCall);
  if (endpoint->context_mask != 0) return fails(endpoint, MX_NOT_SUPPORTED_WITH_CONTEXT_ID, kCall);
  Core& core = *endpoint->core;
  Request* found = nullptr;
  *result = wait_until(core, timeout, [&] { return (found = core.first_done(0, 0)) != nullptr; }) ? 1 : 0;
  if (found != nullptr) *request = handle_of(found);
  return MX_SUCCESS;
}

mx_return_t mx_iprobe(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask, mx_status_t* status,
                      uint32_t* result) {
  CHECK_MATCH("mx_iprobe");
  Core& core = *endpoint->core;
  *result = 1;
  if (probe_once(core, match_info, match_mask, status)) return MX_SUCCESS;
  (void)core.progress();
  if (!probe_once(core, match_info, match_mask, status)) *result = 0;
  return MX_SUCCESS;
}

mx_return_t mx_probe(mx_endpoint_t endpoint, uint32_t timeout, uint64_t match_info, uint64_t match_mask,
                     mx_status_t* status, uint32_t* result) {
  CHECK_MATCH("mx_probe");
  Core& core = *endpoint->core;
  *result = wait_until(core, timeout, [&] { return probe_once(core, match_info, match_mask, status); }) ? 1 : 0;
  return MX_SUCCESS;
}

// ---- sends

mx_return_t mx_ibuffered(mx_endpoint_t endpoint, mx_request_t* request, uint32_t* result) {
  CHECK_REQUEST("mx_ibuffered");
  if (request_of(*request)->kind != Completion::Kind::send) return fails(endpoint, MX_BAD_REQUEST, "mx_ibuffered");
  *result = endpoint->core->is_buffered(request_of(*request)) ? 1 : 0;
  return MX_SUCCESS;
}

mx_return_t mx_buffered(mx_endpoint_t endpoint, mx_request_t* request, uint32_t timeout, uint32_t* result) {
  CHECK_REQUEST("mx_buffered");
  if (request_of(*request)->kind != Completion::Kind::send) return fails(endpoint, MX_BAD_REQUEST, "mx_buffered");
  Core& core = *endpoint->core;
  *result = wait_until(core, timeout, [&] { return core.is_buffered(request_of(*request)); }) ? 1 : 0;
  return MX_SUCCESS;
}

mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t* request) {
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, "mx_forget");
  if (!is_request(endpoint, request)) return fails(endpoint, MX_BAD_REQUEST, "mx_forget");
  endpoint->core->forget(request_of(*request));
  *request = nullptr;
  return MX_SUCCESS;
}

mx_return_t mx_context(mx_request_t* request, void** context) {
  if (request == nullptr || *request == nullptr || context == nullptr)
    return fails(nullptr, MX_BAD_REQUEST, "mx_context");
  *context = request_of(*request)->context;
  return MX_SUCCESS;
}

mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request, uint32_t milliseconds) {
  if (!is_good(endpoint)) return fails(endpoint, MX_BAD_ENDPOINT, "mx_set_request_timeout");
  if (request != nullptr && !is_request(endpoint, &request))
    return fails(endpoint, MX_BAD_REQUEST, "mx_set_request_timeout");
  endpoint->core->set_timeout(request_of(request), nanoseconds(milliseconds));
  return MX_SUCCESS;
}

// ---- what no MX has

mx_return_t mx_register_unexp_callback(mx_endpoint_t endpoint, mx_matching_callback_t, void*) {
  return fails(endpoint, MX_BAD_BAD_BAD, "mx_register_unexp_callback");
}

mx_return_t mx_iput(mx_endpoint_t endpoint, mx_segment_t*, uint32_t, mx_endpoint_addr_t, uint64_t, void*,
                    mx_request_t*) {
  return fails(endpoint, MX_BAD_BAD_BAD, "mx_iput");
}

mx_return_t mx_iget(mx_endpoint_t endpoint, mx_segment_t*, uint32_t, mx_endpoint_addr_t, uint64_t, void*,
                    mx_request_t*) {
  return fails(endpoint, MX_BAD_BAD_BAD, "mx_iget");
}
