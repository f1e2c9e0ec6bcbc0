/* mx_extensions.h: what later versions of MX added to myriexpress.h. */
#ifndef VIADUCT_MX_EXTENSIONS_H
#define VIADUCT_MX_EXTENSIONS_H

#include <viaduct/myriexpress.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MX_HAS_ICONNECT_V2 1
#define MX_HAS_UNEXP_HANDLER 1
#define MX_HAS_FORGET 1

/* mx_connect() as a request. */
VIADUCT_API mx_return_t mx_iconnect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key,
                                    uint64_t match_info, void* context, mx_request_t* request);
/* What is under way with that endpoint ends with MX_STATUS_ENDPOINT_CLOSED. */
VIADUCT_API mx_return_t mx_disconnect(mx_endpoint_t endpoint, mx_endpoint_addr_t addr);

typedef enum { MX_RECV_CONTINUE = 0, MX_RECV_FINISHED = 1 } mx_unexp_handler_action_t;

/* Called for each message that no receive waits for, by whichever thread finds it. It may post sends and receives; it
 * must not wait, test or close. `data_if_available`: all of the message, or NULL. MX_RECV_FINISHED: the message was
 * taken; only where its data is there. */
typedef mx_unexp_handler_action_t (*mx_unexp_handler_t)(void* context, mx_endpoint_addr_t source, uint64_t match_value,
                                                        uint32_t length, void* data_if_available);
VIADUCT_API mx_return_t mx_register_unexp_handler(mx_endpoint_t endpoint, mx_unexp_handler_t handler, void* context);

/* Nobody will test or wait for this request. */
VIADUCT_API mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t* request);
VIADUCT_API mx_return_t mx_progress(mx_endpoint_t endpoint);

VIADUCT_API mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t endpoint_addr, void* context);
VIADUCT_API mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t endpoint_addr, void** context);

/* After so many milliseconds a request ends with MX_STATUS_TIMEOUT; 0: never. Without a request: those that begin from
 * now on. */
VIADUCT_API mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request, uint32_t milliseconds);
/* session_id: of the time that endpoint was opened; 0: not connected. */
VIADUCT_API mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t endpoint_addr, uint64_t* nic_id,
                                                    uint32_t* endpoint_id, uint32_t* session_id);

/* Declared by MX and implemented by none: all return MX_BAD_BAD_BAD. mx_register_unexp_handler() is the one to use. */
typedef void (*mx_matching_callback_t)(void* context, uint64_t match_info, int length);
VIADUCT_API mx_return_t mx_register_unexp_callback(mx_endpoint_t endpoint, mx_matching_callback_t callback,
                                                   void* context);
VIADUCT_API mx_return_t mx_iput(mx_endpoint_t endpoint, mx_segment_t* segments_list, uint32_t segments_count,
                                mx_endpoint_addr_t dest_endpoint, uint64_t remote_address, void* context,
                                mx_request_t* request);
VIADUCT_API mx_return_t mx_iget(mx_endpoint_t endpoint, mx_segment_t* segments_list, uint32_t segments_count,
                                mx_endpoint_addr_t dest_endpoint, uint64_t remote_address, void* context,
                                mx_request_t* request);

#ifdef __cplusplus
}
#endif

#endif
