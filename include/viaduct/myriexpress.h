/* myriexpress.h: the MX interface (API 0x301), message passing between endpoints, over Viaduct. docs/mx.md explains it,
 * mx(3) is the manual page.
 *
 *   mx_init();
 *   mx_open_endpoint(MX_ANY_NIC, 3, KEY, NULL, 0, &endpoint);
 *   mx_hostname_to_nic_id("other", &nic);
 *   mx_connect(endpoint, nic, 3, KEY, MX_INFINITE, &there);
 *   mx_isend(endpoint, &segment, 1, there, 0x42, NULL, &request);
 *   mx_wait(endpoint, &request, MX_INFINITE, &status, &result);
 *
 * A receive takes a message where (its match_info & match_mask) == match_info of the receive. Any thread may call any
 * function. Times are in milliseconds. */
#ifndef VIADUCT_MYRIEXPRESS_H
#define VIADUCT_MYRIEXPRESS_H

#include <stdint.h>
#include <viaduct/api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MX_API 0x301

#define MX_MAX_STR_LEN 128
#define MX_SIZEOF_ADDR 16
#define MX_MAX_HOSTNAME_LEN 80
#define MX_MAX_SEGMENTS 256
#define MX_CONTEXT_ID_BITS_MAX 16

#define MX_ANY_NIC 0xffffffffU      /* the first board */
#define MX_ANY_ENDPOINT 0xffffffffU /* the lowest number that is free */
#define MX_INFINITE 0
#define MX_MATCH_MASK_NONE (~(uint64_t)0) /* all bits count */
#define MX_MATCH_MASK_ANY ((uint64_t)0)

typedef enum {
  MX_SUCCESS = 0,
  MX_BAD_BAD_BAD = 1,
  MX_FAILURE = 2,
  MX_ALREADY_INITIALIZED = 3,
  MX_NOT_INITIALIZED = 4,
  MX_NO_DEV = 5,
  MX_NO_DRIVER = 6,
  MX_NO_PERM = 7,
  MX_BOARD_UNKNOWN = 8,
  MX_BAD_ENDPOINT = 9,
  MX_BAD_SEG_LIST = 10,
  MX_BAD_SEG_MEM = 11,
  MX_BAD_SEG_CNT = 12,
  MX_BAD_REQUEST = 13,
  MX_BAD_MATCH_MASK = 14,
  MX_NO_RESOURCES = 15,
  MX_BAD_ADDR_LIST = 16,
  MX_BAD_ADDR_COUNT = 17,
  MX_BAD_ROOT = 18,
  MX_NOT_COMPLETED = 19,
  MX_BUSY = 20,
  MX_BAD_INFO_KEY = 21,
  MX_BAD_INFO_VAL = 22,
  MX_BAD_NIC = 23,
  MX_BAD_PARAM_LIST = 24,
  MX_BAD_PARAM_NAME = 25,
  MX_BAD_PARAM_VAL = 26,
  MX_BAD_HOSTNAME_ARGS = 27,
  MX_HOST_NOT_FOUND = 28,
  MX_REQUEST_PENDING = 29,
  MX_TIMEOUT = 30,
  MX_NO_MATCH = 31,
  MX_BAD_ENDPOINT_ID = 32,
  MX_CONNECTION_FAILED = 33,
  MX_BAD_CONNECTION_KEY = 34,
  MX_BAD_INFO_LENGTH = 35,
  MX_NIC_NOT_FOUND = 36,
  MX_BAD_KERNEL_VERSION = 37,
  MX_BAD_LIB_VERSION = 38,
  MX_NIC_DEAD = 39,
  MX_CANCEL_NOT_SUPPORTED = 40,
  MX_CLOSE_IN_HANDLER = 41,
  MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK = 42,
  MX_NOT_SUPPORTED_WITH_CONTEXT_ID = 43
} mx_return_t;

typedef enum {
  MX_STATUS_SUCCESS = 0,
  MX_STATUS_PENDING = 1,
  MX_STATUS_BUFFERED = 2,
  MX_STATUS_REJECTED = 3,
  MX_STATUS_TIMEOUT = 4,
  MX_STATUS_TRUNCATED = 5, /* the message was longer than the receive */
  MX_STATUS_CANCELLED = 6,
  MX_STATUS_ENDPOINT_UNKNOWN = 7,
  MX_STATUS_ENDPOINT_CLOSED = 8,      /* it closed, or nobody has opened it */
  MX_STATUS_ENDPOINT_UNREACHABLE = 9, /* its process has died, or there is no way to its host */
  MX_STATUS_BAD_SESSION = 10,         /* it was opened again meanwhile */
  MX_STATUS_BAD_KEY = 11,
  MX_STATUS_BAD_ENDPOINT = 12,
  MX_STATUS_BAD_RDMAWIN = 13,
  MX_STATUS_ABORTED = 14, /* the sender gave it up */
  MX_STATUS_EVENTQ_FULL = 15,
  MX_STATUS_NO_RESOURCES = 16
} mx_status_code_t;

typedef struct mx_endpoint* mx_endpoint_t;
typedef union mx_request* mx_request_t;

typedef struct {
  uint64_t stuff[2];
} mx_endpoint_addr_t;

typedef struct {
  void* segment_ptr;
  uint32_t segment_length;
} mx_segment_t;

typedef struct mx_status {
  mx_status_code_t code;
  mx_endpoint_addr_t source;
  uint64_t match_info;
  uint32_t msg_length;
  uint32_t xfer_length;
  void* context;
} mx_status_t;

/* Called with what went wrong; what it returns is what the function returns. */
typedef mx_return_t (*mx_error_handler_t)(char* str, mx_return_t ret);
VIADUCT_API extern const mx_error_handler_t MX_ERRORS_ARE_FATAL; /* the default: says so and ends the program */
VIADUCT_API extern const mx_error_handler_t MX_ERRORS_RETURN;

typedef enum { MX_PARAM_ERROR_HANDLER = 0, MX_PARAM_UNEXP_QUEUE_MAX = 1, MX_PARAM_CONTEXT_ID = 2 } mx_param_key_t;

typedef struct {
  mx_param_key_t key;
  union {
    mx_error_handler_t error_handler;
    uint32_t unexp_queue_max; /* bytes; then senders wait */
    struct {
      uint8_t bits;
      uint8_t shift;
    } context_id; /* these bits of match_info split it into queues of their own */
  } val;
} mx_param_t;

typedef enum {
  MX_NIC_COUNT = 1,            /* out: uint32_t */
  MX_NIC_IDS = 2,              /* out: uint64_t each, 0 behind the last */
  MX_MAX_NATIVE_ENDPOINTS = 3, /* out: uint32_t */
  MX_NATIVE_REQUESTS = 4,      /* out: uint32_t */
  MX_COUNTERS_COUNT = 5,       /* in: board uint32_t; out: uint32_t */
  MX_COUNTERS_LABELS = 6,      /* in: board; out: MX_MAX_STR_LEN bytes each */
  MX_COUNTERS_VALUES = 7,      /* in: board; out: uint32_t each */
  MX_PRODUCT_CODE = 8,         /* in: board; out: text */
  MX_PART_NUMBER = 9,          /* in: board; out: text */
  MX_SERIAL_NUMBER = 10,       /* in: board; out: uint32_t */
  MX_PORT_COUNT = 11,          /* in: board; out: uint32_t */
  MX_PIO_SEND_MAX = 12,        /* out: uint32_t: what goes inside a cache line */
  MX_COPY_SEND_MAX = 13,       /* out: uint32_t: what is copied and then sent */
  MX_NUMA_NODE = 14,           /* in: board; out: uint32_t */
  MX_NET_TYPE = 15,            /* in: board; out: uint32_t */
  MX_LINE_SPEED = 16           /* in: board; out: uint32_t, an mx_line_speed_t */
} mx_get_info_key_t;

typedef enum { MX_NET_UNKNOWN = 0, MX_NET_MYRI = 1, MX_NET_ETHER = 2 } mx_net_type_t;
typedef enum { MX_SPEED_UNKNOWN = 0, MX_SPEED_2G = 1, MX_SPEED_10G = 2 } mx_line_speed_t;

#define mx_init() mx__init_api(MX_API)
VIADUCT_API mx_return_t mx__init_api(int api);
VIADUCT_API mx_return_t mx_finalize(void);
VIADUCT_API mx_error_handler_t mx_set_error_handler(mx_error_handler_t handler);

/* MX_BUSY: that number is taken. */
VIADUCT_API mx_return_t mx_open_endpoint(uint32_t board_number, uint32_t endpoint_id, uint32_t endpoint_key,
                                         mx_param_t* params_array, uint32_t params_count, mx_endpoint_t* endpoint);
/* Requests that are not complete are given up. */
VIADUCT_API mx_return_t mx_close_endpoint(mx_endpoint_t endpoint);
/* Functions that wait return, with result 0. */
VIADUCT_API mx_return_t mx_wakeup(mx_endpoint_t endpoint);
/* There is no progression thread: both do nothing. */
VIADUCT_API mx_return_t mx_disable_progression(mx_endpoint_t endpoint);
VIADUCT_API mx_return_t mx_reenable_progression(mx_endpoint_t endpoint);

/* The list of segments is copied, their bytes are not: they stay until the request is complete. */
VIADUCT_API mx_return_t mx_isend(mx_endpoint_t endpoint, mx_segment_t* segments_list, uint32_t segments_count,
                                 mx_endpoint_addr_t dest_endpoint, uint64_t match_info, void* context,
                                 mx_request_t* request);
/* Complete only when a receive has matched it. */
VIADUCT_API mx_return_t mx_issend(mx_endpoint_t endpoint, mx_segment_t* segments_list, uint32_t segments_count,
                                  mx_endpoint_addr_t dest_endpoint, uint64_t match_info, void* context,
                                  mx_request_t* request);
VIADUCT_API mx_return_t mx_irecv(mx_endpoint_t endpoint, mx_segment_t* segments_list, uint32_t segments_count,
                                 uint64_t match_info, uint64_t match_mask, void* context, mx_request_t* request);
/* A receive that nothing has matched: *result is 1, and the request is over. */
VIADUCT_API mx_return_t mx_cancel(mx_endpoint_t endpoint, mx_request_t* request, uint32_t* result);

/* *result is 1 when it is complete: then the request is over. */
VIADUCT_API mx_return_t mx_test(mx_endpoint_t endpoint, mx_request_t* request, mx_status_t* status, uint32_t* result);
VIADUCT_API mx_return_t mx_wait(mx_endpoint_t endpoint, mx_request_t* request, uint32_t timeout, mx_status_t* status,
                                uint32_t* result);
/* The same for any finished request whose match_info passes. */
VIADUCT_API mx_return_t mx_test_any(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask,
                                    mx_status_t* status, uint32_t* result);
VIADUCT_API mx_return_t mx_wait_any(mx_endpoint_t endpoint, uint32_t timeout, uint64_t match_info, uint64_t match_mask,
                                    mx_status_t* status, uint32_t* result);
/* A finished request, which stays so until it is tested or waited for. */
VIADUCT_API mx_return_t mx_ipeek(mx_endpoint_t endpoint, mx_request_t* request, uint32_t* result);
VIADUCT_API mx_return_t mx_peek(mx_endpoint_t endpoint, uint32_t timeout, mx_request_t* request, uint32_t* result);
/* A message that has come and was not received. */
VIADUCT_API mx_return_t mx_iprobe(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask, mx_status_t* status,
                                  uint32_t* result);
VIADUCT_API mx_return_t mx_probe(mx_endpoint_t endpoint, uint32_t timeout, uint64_t match_info, uint64_t match_mask,
                                 mx_status_t* status, uint32_t* result);
/* Whether the bytes of a send are in use no more. */
VIADUCT_API mx_return_t mx_ibuffered(mx_endpoint_t endpoint, mx_request_t* request, uint32_t* result);
VIADUCT_API mx_return_t mx_buffered(mx_endpoint_t endpoint, mx_request_t* request, uint32_t timeout, uint32_t* result);
VIADUCT_API mx_return_t mx_context(mx_request_t* request, void** context);

VIADUCT_API mx_return_t mx_get_info(mx_endpoint_t endpoint, mx_get_info_key_t key, void* in_val, uint32_t in_len,
                                    void* out_val, uint32_t out_len);
/* "HOST", or "HOST:BOARD" for this host's. */
VIADUCT_API mx_return_t mx_hostname_to_nic_id(char* hostname, uint64_t* nic_id);
/* MX_MAX_HOSTNAME_LEN bytes. */
VIADUCT_API mx_return_t mx_nic_id_to_hostname(uint64_t nic_id, char* hostname);
VIADUCT_API mx_return_t mx_board_number_to_nic_id(uint32_t board_number, uint64_t* nic_id);
VIADUCT_API mx_return_t mx_nic_id_to_board_number(uint64_t nic_id, uint32_t* board_number);

VIADUCT_API mx_return_t mx_connect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key,
                                   uint32_t timeout, mx_endpoint_addr_t* addr);
VIADUCT_API mx_return_t mx_decompose_endpoint_addr(mx_endpoint_addr_t endpoint_addr, uint64_t* nic_id,
                                                   uint32_t* endpoint_id);
VIADUCT_API mx_return_t mx_get_endpoint_addr(mx_endpoint_t endpoint, mx_endpoint_addr_t* endpoint_addr);

VIADUCT_API const char* mx_strerror(mx_return_t return_code);
VIADUCT_API const char* mx_strstatus(mx_status_code_t status);

#ifdef __cplusplus
}
#endif

#endif
