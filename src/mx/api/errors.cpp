// What return codes and statuses are called, and error handlers.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "mx/api/handles.hpp"

namespace viaduct::mx {

namespace {

mx_return_t end_the_program(char* text, mx_return_t why) {
  std::fprintf(stderr, "mx: %s: %s\n", text, mx_strerror(why));
  std::exit(1);
}

mx_return_t just_return(char*, mx_return_t why) {
  return why;
}

std::atomic<mx_error_handler_t> process_handler{end_the_program};

}  // namespace

mx_return_t fails(mx_endpoint_t endpoint, mx_return_t why, const char* function) {
  mx_error_handler_t handler = endpoint != nullptr && endpoint->is_open.load() ? endpoint->error_handler : nullptr;
  if (handler == nullptr) handler = process_handler.load();
  std::string text = function;
  return handler(text.data(), why);
}

}  // namespace viaduct::mx

using namespace viaduct::mx;

const mx_error_handler_t MX_ERRORS_ARE_FATAL = end_the_program;
const mx_error_handler_t MX_ERRORS_RETURN = just_return;

mx_error_handler_t mx_set_error_handler(mx_error_handler_t handler) {
  return process_handler.exchange(handler == nullptr ? end_the_program : handler);
}

const char* mx_strerror(mx_return_t code) {
  switch (code) {
    case MX_SUCCESS:
      return "success";
    case MX_BAD_BAD_BAD:
      return "not implemented";
    case MX_FAILURE:
      return "failure";
    case MX_ALREADY_INITIALIZED:
      return "the library is initialized already";
    case MX_NOT_INITIALIZED:
      return "the library is not initialized: mx_init() comes first";
    case MX_NO_DEV:
      return "there is no such device";
    case MX_NO_DRIVER:
      return "there is no driver";
    case MX_NO_PERM:
      return "not permitted";
    case MX_BOARD_UNKNOWN:
      return "there is no such board";
    case MX_BAD_ENDPOINT:
      return "not an open endpoint";
    case MX_BAD_SEG_LIST:
      return "bad list of segments";
    case MX_BAD_SEG_MEM:
      return "a segment has a length and no memory";
    case MX_BAD_SEG_CNT:
      return "too many segments";
    case MX_BAD_REQUEST:
      return "not a request of this endpoint";
    case MX_BAD_MATCH_MASK:
      return "match_info has bits that the mask leaves out";
    case MX_NO_RESOURCES:
      return "out of resources";
    case MX_BAD_ADDR_LIST:
      return "bad list of addresses";
    case MX_BAD_ADDR_COUNT:
      return "bad number of addresses";
    case MX_BAD_ROOT:
      return "bad root";
    case MX_NOT_COMPLETED:
      return "not complete";
    case MX_BUSY:
      return "the endpoint's number is taken";
    case MX_BAD_INFO_KEY:
      return "there is no such information";
    case MX_BAD_INFO_VAL:
      return "bad value for this information";
    case MX_BAD_NIC:
      return "not a nic id";
    case MX_BAD_PARAM_LIST:
      return "bad list of parameters";
    case MX_BAD_PARAM_NAME:
      return "there is no such parameter";
    case MX_BAD_PARAM_VAL:
      return "bad value for this parameter";
    case MX_BAD_HOSTNAME_ARGS:
      return "bad host name";
    case MX_HOST_NOT_FOUND:
      return "the host is not known";
    case MX_REQUEST_PENDING:
      return "the request is not complete";
    case MX_TIMEOUT:
      return "timed out";
    case MX_NO_MATCH:
      return "nothing matches";
    case MX_BAD_ENDPOINT_ID:
      return "endpoints have the numbers 0 to 65535";
    case MX_CONNECTION_FAILED:
      return "nobody there to connect to";
    case MX_BAD_CONNECTION_KEY:
      return "the endpoint has another key";
    case MX_BAD_INFO_LENGTH:
      return "the length does not fit this information";
    case MX_NIC_NOT_FOUND:
      return "no board of this host has that nic id";
    case MX_BAD_KERNEL_VERSION:
      return "the kernel is of another version";
    case MX_BAD_LIB_VERSION:
      return "the program was built for another version of the interface";
    case MX_NIC_DEAD:
      return "the board is dead";
    case MX_CANCEL_NOT_SUPPORTED:
      return "only receives can be cancelled";
    case MX_CLOSE_IN_HANDLER:
      return "an endpoint cannot be closed by its own handler";
    case MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK:
      return "the mask leaves out bits of the context id";
    case MX_NOT_SUPPORTED_WITH_CONTEXT_ID:
      return "not possible with context ids";
  }
  return "no code of MX";
}

const char* mx_strstatus(mx_status_code_t status) {
  switch (status) {
    case MX_STATUS_SUCCESS:
      return "success";
    case MX_STATUS_PENDING:
      return "pending";
    case MX_STATUS_BUFFERED:
      return "buffered";
    case MX_STATUS_REJECTED:
      return "rejected by the peer";
    case MX_STATUS_TIMEOUT:
      return "timed out";
    case MX_STATUS_TRUNCATED:
      return "longer than the receive";
    case MX_STATUS_CANCELLED:
      return "cancelled";
    case MX_STATUS_ENDPOINT_UNKNOWN:
      return "the endpoint is not known";
    case MX_STATUS_ENDPOINT_CLOSED:
      return "the endpoint is closed";
    case MX_STATUS_ENDPOINT_UNREACHABLE:
      return "the endpoint cannot be reached";
    case MX_STATUS_BAD_SESSION:
      return "the endpoint was opened again meanwhile";
    case MX_STATUS_BAD_KEY:
      return "the endpoint has another key";
    case MX_STATUS_BAD_ENDPOINT:
      return "bad endpoint";
    case MX_STATUS_BAD_RDMAWIN:
      return "memory that may not be reached";
    case MX_STATUS_ABORTED:
      return "given up by the sender";
    case MX_STATUS_EVENTQ_FULL:
      return "the event queue is full";
    case MX_STATUS_NO_RESOURCES:
      return "out of resources";
  }
  return "no status of MX";
}
