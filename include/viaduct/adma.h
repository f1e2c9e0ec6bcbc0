/*
 * adma.h: asynchronous memory operations, in one process and between two.
 *
 * A copy is handed to the engine and goes on while the caller computes; a cookie asks for it later. Calls return 0 or a
 * non-negative value, or -1 with errno. Source comes before destination. All functions may be called from any thread.
 *
 *   adma_cookie_t copy = adma_icopy(source, destination, length);
 *   compute();
 *   adma_wait_copy(copy);
 *
 * Memory given to an operation must stay as it is until the operation completes. An address that is not mapped is the
 * caller's fault, as with memcpy: null is refused (EFAULT); other wild addresses raise SIGSEGV on a CPU channel.
 * Overlapping source and destination are copied as memmove would.
 *
 * Up to 4096 operations may be under way or ended without having been asked about; one more is refused (EAGAIN).
 *
 * After fork the child has an engine of its own: cookies and links of the parent are unknown there (EINVAL).
 */
#ifndef VIADUCT_ADMA_H
#define VIADUCT_ADMA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <viaduct/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * {channel, generation, sequence}: names one operation of one engine. Valid from the call that made it until a check or
 * a wait has reported its end, once; afterwards, or in another process, it is an error (EINVAL).
 */
typedef int64_t adma_cookie_t;

enum adma_intent {
  ADMA_AUTO = 0,   /* by size, as measured on this machine */
  ADMA_KEEP = 1,   /* the destination is used soon: leave it in the cache */
  ADMA_STREAM = 2, /* it is not: go past the cache, which is faster for cold data and spares what is cached */
};

enum adma_order {
  ADMA_UNORDERED = 0,
  ADMA_AFTER = 1, /* not before the operation named in `after` has completed */
  ADMA_FENCE = 2, /* not before every operation issued earlier by this process has completed */
};

enum adma_channel {
  ADMA_ANY = 0,    /* by measured cost */
  ADMA_CALLER = 1, /* the calling thread, at once */
  ADMA_CPU = 2,    /* worker threads, helped by whoever waits */
  ADMA_CUDA = 3,   /* a GPU's copy engines, also for addresses in device memory; ENODEV where there are none */
};

struct adma_options {
  enum adma_intent intent;
  enum adma_order order;
  adma_cookie_t after;
  enum adma_channel channel;
};

/* The interface of the paper. */
VIADUCT_API int adma_copy(const void* source, void* destination, size_t length);
VIADUCT_API adma_cookie_t adma_icopy(const void* source, void* destination, size_t length);
/* Each end is reported once, to one thread: to others that ask for the same cookie it is unknown then (EINVAL). */
VIADUCT_API int adma_check_copy(adma_cookie_t cookie); /* 1 complete, 0 in progress, -1 failed or unknown */
VIADUCT_API int adma_wait_copy(adma_cookie_t cookie);  /* 0 complete, -1 failed or unknown */

/* With options (NULL: the defaults); the forms that return a cookie do not wait. */
VIADUCT_API int adma_copy_with(const void* source, void* destination, size_t length,
                               const struct adma_options* options);
VIADUCT_API adma_cookie_t adma_icopy_with(const void* source, void* destination, size_t length,
                                          const struct adma_options* options);
VIADUCT_API int adma_fill(void* destination, int byte, size_t length);
VIADUCT_API adma_cookie_t adma_ifill(void* destination, int byte, size_t length, const struct adma_options* options);

/* Gather and scatter: the bytes of `sources`, in order, into `destinations`; both lists have the same total (EINVAL).
 */
VIADUCT_API int adma_copyv(const struct iovec* sources, int source_count, const struct iovec* destinations,
                           int destination_count);
VIADUCT_API adma_cookie_t adma_icopyv(const struct iovec* sources, int source_count, const struct iovec* destinations,
                                      int destination_count, const struct adma_options* options);

/* A batch: many copies, one submission, one cookie that completes with the last of them. */
struct adma_piece {
  const void* source;
  void* destination;
  size_t length;
};
VIADUCT_API adma_cookie_t adma_icopy_batch(const struct adma_piece* pieces, size_t count,
                                           const struct adma_options* options);

/* How many bytes from the start of the destination are already there, to consume while copying. -1: unknown cookie. */
VIADUCT_API int64_t adma_ready_bytes(adma_cookie_t cookie);

/*
 * Memory owned by the engine: zeroed, shared, in huge pages where there are any. A peer of a link maps it, so that its
 * part of a transfer from or to it is a plain copy without a system call; with such memory on both sides, all of it is.
 * NULL with errno where there is no memory.
 */
VIADUCT_API void* adma_alloc(size_t length);
VIADUCT_API void adma_free(void* memory);

/*
 * Between two processes of one user. A name is any string, found through an abstract UNIX socket: nothing is left
 * behind. A connected pair of UNIX stream sockets that was inherited does as well (adma_attach, on both sides; takes
 * the descriptor).
 */
typedef struct adma_link adma_link;

VIADUCT_API int adma_listen(const char* name);                         /* a descriptor, to be closed */
VIADUCT_API adma_link* adma_accept(int listener, int timeout_ms);      /* -1: no limit */
VIADUCT_API adma_link* adma_connect(const char* name, int timeout_ms); /* waits for a listener to appear */
VIADUCT_API adma_link* adma_attach(int socket, int timeout_ms);
VIADUCT_API void adma_close(adma_link* link);

/*
 * Writes of one side meet reads of the other in the order they were posted, each with the whole of its match. Lengths
 * that differ give the shorter: both sides are told how many bytes moved. A peer that has gone completes everything
 * still posted with ECONNRESET.
 *
 * adma_read and adma_write return the bytes moved. adma_icheck: 1 complete, 0 not yet, -1 failed or unknown; adma_wait:
 * 0 or -1. Both put the number of bytes into *moved (may be NULL).
 */
VIADUCT_API int64_t adma_read(adma_link* link, void* buffer, size_t length);
VIADUCT_API int64_t adma_write(adma_link* link, const void* buffer, size_t length);
VIADUCT_API adma_cookie_t adma_iread(adma_link* link, void* buffer, size_t length);
VIADUCT_API adma_cookie_t adma_iwrite(adma_link* link, const void* buffer, size_t length);
VIADUCT_API int adma_icheck(adma_link* link, adma_cookie_t cookie, size_t* moved);
VIADUCT_API int adma_wait(adma_link* link, adma_cookie_t cookie, size_t* moved);

/*
 * How the bytes of a link travel: "mapped" (engine-owned memory), "cma", or "bounce"; what the last transfer used. With
 * engine-owned memory on one side only it is "mapped" or "cma", by which side copied (the last part of) it.
 */
VIADUCT_API const char* adma_link_path(const adma_link* link);

#ifdef __cplusplus
}
#endif

#endif
