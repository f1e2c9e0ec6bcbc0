/* Two programs that send a message back and forth, with nothing but the MX interface.
 *
 *   mx_pingpong -e 3                       waits for the other
 *   mx_pingpong -d HOST -r 3 -S 8 -N 1000  sends 8 bytes to endpoint 3 of HOST and back, 1000 times
 */
#include <myriexpress.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KEY 0x50494e47u
#define MATCH_CONNECT UINT64_C(0xdeadbeef)
#define MATCH_DATA UINT64_C(0x1000)

struct parameters {
  uint32_t length;
  uint32_t rounds;
};

static void check(mx_return_t code, const char* what) {
  if (code == MX_SUCCESS) return;
  fprintf(stderr, "%s: %s\n", what, mx_strerror(code));
  exit(1);
}

static mx_status_t wait_for(mx_endpoint_t endpoint, mx_request_t* request) {
  mx_status_t status;
  uint32_t result;
  check(mx_wait(endpoint, request, MX_INFINITE, &status, &result), "mx_wait");
  if (status.code != MX_STATUS_SUCCESS) {
    fprintf(stderr, "a message: %s\n", mx_strstatus(status.code));
    exit(1);
  }
  return status;
}

static void receive(mx_endpoint_t endpoint, void* bytes, uint32_t length, uint64_t match) {
  mx_segment_t segment;
  mx_request_t request;
  segment.segment_ptr = bytes;
  segment.segment_length = length;
  check(mx_irecv(endpoint, &segment, 1, match, MX_MATCH_MASK_NONE, NULL, &request), "mx_irecv");
  wait_for(endpoint, &request);
}

static void send(mx_endpoint_t endpoint, void* bytes, uint32_t length, mx_endpoint_addr_t to, uint64_t match) {
  mx_segment_t segment;
  mx_request_t request;
  segment.segment_ptr = bytes;
  segment.segment_length = length;
  check(mx_isend(endpoint, &segment, 1, to, match, NULL, &request), "mx_isend");
  wait_for(endpoint, &request);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Each byte says where it is and in which round. */
static void fill(unsigned char* bytes, uint32_t length, uint32_t round) {
  uint32_t i;
  for (i = 0; i < length; ++i) bytes[i] = (unsigned char)(i * 7 + round);
}

static int holds(const unsigned char* bytes, uint32_t length, uint32_t round) {
  uint32_t i;
  for (i = 0; i < length; ++i)
    if (bytes[i] != (unsigned char)(i * 7 + round)) return 0;
  return 1;
}

static int serve(mx_endpoint_t endpoint) {
  struct parameters wanted;
  mx_segment_t segment;
  mx_request_t request;
  mx_status_t status;
  unsigned char* bytes;
  uint32_t round;
  segment.segment_ptr = &wanted;
  segment.segment_length = sizeof wanted;
  check(mx_irecv(endpoint, &segment, 1, MATCH_CONNECT, MX_MATCH_MASK_NONE, NULL, &request), "mx_irecv");
  status = wait_for(endpoint, &request);
  bytes = malloc(wanted.length + 1);
  if (bytes == NULL) return 1;
  for (round = 0; round < wanted.rounds; ++round) {
    receive(endpoint, bytes, wanted.length, MATCH_DATA | round);
    if (!holds(bytes, wanted.length, round)) return fprintf(stderr, "round %u: other bytes\n", round), 1;
    send(endpoint, bytes, wanted.length, status.source, MATCH_DATA | round);
  }
  free(bytes);
  return 0;
}

static int ask(mx_endpoint_t endpoint, char* host, uint32_t number, struct parameters wanted) {
  mx_endpoint_addr_t there;
  uint64_t nic;
  unsigned char* bytes = malloc(wanted.length + 1);
  double start;
  uint32_t round;
  if (bytes == NULL) return 1;
  check(mx_hostname_to_nic_id(host, &nic), host);
  check(mx_connect(endpoint, nic, number, KEY, MX_INFINITE, &there), "mx_connect");
  send(endpoint, &wanted, sizeof wanted, there, MATCH_CONNECT);
  start = seconds();
  for (round = 0; round < wanted.rounds; ++round) {
    fill(bytes, wanted.length, round);
    send(endpoint, bytes, wanted.length, there, MATCH_DATA | round);
    memset(bytes, 0, wanted.length);
    receive(endpoint, bytes, wanted.length, MATCH_DATA | round);
    if (!holds(bytes, wanted.length, round)) return fprintf(stderr, "round %u: other bytes\n", round), 1;
  }
  printf("%u bytes: %.2f us one way\n", wanted.length, (seconds() - start) / wanted.rounds / 2 * 1e6);
  free(bytes);
  return 0;
}

int main(int count, char** words) {
  mx_endpoint_t endpoint;
  struct parameters wanted = {8, 1000};
  uint32_t own = MX_ANY_ENDPOINT, other = 3, board = MX_ANY_NIC;
  char* host = NULL;
  int option, failed;
  while ((option = getopt(count, words, "b:d:e:r:S:N:")) != -1) {
    if (option == 'b') board = (uint32_t)atoi(optarg);
    if (option == 'd') host = optarg;
    if (option == 'e') own = (uint32_t)atoi(optarg);
    if (option == 'r') other = (uint32_t)atoi(optarg);
    if (option == 'S') wanted.length = (uint32_t)atoi(optarg);
    if (option == 'N') wanted.rounds = (uint32_t)atoi(optarg);
    if (option == '?') return 2;
  }
  check(mx_init(), "mx_init");
  mx_set_error_handler(MX_ERRORS_RETURN);
  check(mx_open_endpoint(board, own, KEY, NULL, 0, &endpoint), "mx_open_endpoint");
  failed = host == NULL ? serve(endpoint) : ask(endpoint, host, other, wanted);
  check(mx_close_endpoint(endpoint), "mx_close_endpoint");
  check(mx_finalize(), "mx_finalize");
  return failed;
}
