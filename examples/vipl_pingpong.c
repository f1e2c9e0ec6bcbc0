/*
 * A message there and back, many times, by polling: how long one way takes.
 *
 *   vipl_pingpong server NAME
 *   vipl_pingpong client NAME[@HOST] [BYTES [ROUNDS]]
 */
#include <time.h>

#include "vipl_common.h"

#define RECEIVES 2
#define MOST_BYTES 65536

static VIP_VI_HANDLE vi;
static VIP_MEM_HANDLE handle;
static VIP_DESCRIPTOR* descriptors; /* the receives, then the one that sends */
static char* data;

static void prepare(void) {
  char* memory;
  int i;
  open_adapter();
  memory = registered_memory(4096 + (RECEIVES + 1) * MOST_BYTES, VIP_FALSE, &handle);
  descriptors = (VIP_DESCRIPTOR*)memory;
  data = memory + 4096;
  vi = make_vi(MOST_BYTES, VIP_FALSE);
  /* Before connecting: whoever connects may send at once, and a message finds a posted receive or breaks the
   * connection. */
  for (i = 0; i < RECEIVES; ++i) {
    describe(&descriptors[i], data + i * MOST_BYTES, handle, MOST_BYTES);
    CHECK(VipPostRecv(vi, &descriptors[i], handle));
  }
}

static void send_message(VIP_UINT32 length) {
  VIP_DESCRIPTOR* done = NULL;
  describe(&descriptors[RECEIVES], data + RECEIVES * MOST_BYTES, handle, length);
  CHECK(VipPostSend(vi, &descriptors[RECEIVES], handle));
  while (VipSendDone(vi, &done) == VIP_NOT_DONE) continue;
}

/* The length of the next message; -1: the other side has disconnected. */
static long receive_message(void) {
  VIP_DESCRIPTOR* done = NULL;
  VIP_RETURN result;
  long length;
  while ((result = VipRecvDone(vi, &done)) == VIP_NOT_DONE) continue;
  if (result != VIP_SUCCESS) return -1;
  length = (long)done->CS.Length;
  done->CS.Length = MOST_BYTES;
  CHECK(VipPostRecv(vi, done, handle));
  return length;
}

static void serve(const char* name) {
  VIP_NET_ADDRESS* local = address_of(name);
  VIP_NET_ADDRESS* remote = address_of(name);
  VIP_VI_ATTRIBUTES theirs;
  VIP_CONN_HANDLE request;
  long length;
  CHECK(VipConnectWait(nic, local, VIP_INFINITE, remote, &theirs, &request));
  CHECK(VipConnectAccept(request, vi));
  while ((length = receive_message()) >= 0) send_message((VIP_UINT32)length);
  free(local);
  free(remote);
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void measure(const char* name, long bytes, long rounds) {
  double start;
  long i;
  connect_to_server(vi, name);
  start = now_us();
  for (i = 0; i < rounds; ++i) {
    send_message((VIP_UINT32)bytes);
    if (receive_message() != bytes) {
      fprintf(stderr, "the server has gone, after %ld rounds of %ld\n", i, rounds);
      exit(1);
    }
  }
  printf("%ld bytes: %.2f us one way\n", bytes, (now_us() - start) / (2.0 * (double)rounds));
}

int main(int argc, char** argv) {
  const int server = argc == 3 && strcmp(argv[1], "server") == 0;
  const int client = argc >= 3 && argc <= 5 && strcmp(argv[1], "client") == 0;
  const long bytes = argc > 3 ? atol(argv[3]) : 4;
  const long rounds = argc > 4 ? atol(argv[4]) : 100000;
  if ((!server && !client) || bytes < 0 || bytes > MOST_BYTES || rounds < 1) {
    fprintf(stderr, "usage: %s server NAME\n       %s client NAME[@HOST] [BYTES [ROUNDS]]\n", argv[0], argv[0]);
    return 2;
  }
  prepare();
  if (server)
    serve(argv[2]);
  else
    measure(argv[2], bytes, rounds);
  CHECK(VipDisconnect(vi));
  CHECK(VipDestroyVi(vi));
  CHECK(VipDeregisterMem(nic, descriptors, handle));
  CHECK(VipDestroyPtag(nic, tag));
  CHECK(VipCloseNic(nic));
  return 0;
}
