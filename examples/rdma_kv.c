/*
 * A key-value table that clients read by RDMA. The server puts it into registered memory, tells each client once where
 * it is, and has no part in any look-up: it may sleep, or be stopped. To clients on another host it has to be awake:
 * its library answers them, while it waits for others to connect.
 *
 *   rdma_kv server NAME KEY=VALUE ...
 *   rdma_kv client NAME[@HOST]        reads keys from standard input, a line each; prints the values
 *
 * The table is an array of buckets; a key lies in the bucket of its hash or in one of those behind it. A bucket that is
 * being written has an odd version, and a reader that sees one, or a version that changed, reads again.
 */
#include <stdint.h>

#include "vipl_common.h"

#define BUCKETS 1024
#define MOST_CLIENTS 64

struct bucket {
  uint64_t version; /* 0: never used; odd: being written */
  char key[24];
  char value[32];
};

/* What a client has to know. */
struct offer {
  uint64_t address;
  uint32_t handle;
  uint32_t buckets;
};

static uint32_t hash(const char* key) {
  uint32_t value = 2166136261u;
  for (; *key != 0; ++key) value = (value ^ (unsigned char)*key) * 16777619u;
  return value;
}

/* ---- the server */

static struct bucket* table;

static void put(const char* key, const char* value) {
  uint32_t i;
  for (i = 0; i < BUCKETS; ++i) {
    struct bucket* bucket = &table[(hash(key) + i) % BUCKETS];
    const uint64_t version = bucket->version;
    if (version != 0 && strncmp(bucket->key, key, sizeof bucket->key - 1) != 0) continue;
    __atomic_store_n(&bucket->version, version + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    strncpy(bucket->key, key, sizeof bucket->key - 1);
    strncpy(bucket->value, value, sizeof bucket->value - 1);
    __atomic_store_n(&bucket->version, version + 2, __ATOMIC_RELEASE);
    return;
  }
  fprintf(stderr, "the table is full\n");
  exit(1);
}

/* Those whose client has gone make room for others. */
static int forget_gone(VIP_VI_HANDLE* vis, int count) {
  int i, kept = 0;
  for (i = 0; i < count; ++i) {
    VIP_VI_STATE state;
    CHECK(VipQueryVi(vis[i], &state, NULL, NULL, NULL));
    if (state == VIP_STATE_CONNECTED) {
      vis[kept++] = vis[i];
    } else {
      CHECK(VipDisconnect(vis[i]));
      CHECK(VipDestroyVi(vis[i]));
    }
  }
  return kept;
}

static void serve(const char* name) {
  VIP_NET_ADDRESS* local = address_of(name);
  VIP_NET_ADDRESS* remote = address_of(name);
  VIP_VI_HANDLE vis[MOST_CLIENTS];
  VIP_MEM_HANDLE table_handle, message_handle;
  char* message;
  int clients = 0;
  /* The offer travels from memory of its own: clients may read the table, and nothing else. */
  struct bucket* published = registered_memory(BUCKETS * sizeof *table, VIP_TRUE, &table_handle);
  memcpy(published, table, BUCKETS * sizeof *table);
  table = published;
  message = registered_memory(4096, VIP_FALSE, &message_handle);
  printf("serving\n");
  fflush(stdout);
  for (;;) {
    VIP_VI_ATTRIBUTES theirs;
    VIP_CONN_HANDLE request;
    VIP_DESCRIPTOR* done = NULL;
    struct offer* const offer = (struct offer*)(message + 64);
    CHECK(VipConnectWait(nic, local, VIP_INFINITE, remote, &theirs, &request));
    clients = forget_gone(vis, clients);
    if (clients == MOST_CLIENTS) {
      CHECK(VipConnectReject(request));
      continue;
    }
    vis[clients] = make_vi(theirs.MaxTransferSize, VIP_TRUE);
    if (VipConnectAccept(request, vis[clients]) != VIP_SUCCESS) { /* it has left */
      CHECK(VipDestroyVi(vis[clients]));
      continue;
    }
    offer->address = (uint64_t)(uintptr_t)table;
    offer->handle = table_handle;
    offer->buckets = BUCKETS;
    describe((VIP_DESCRIPTOR*)message, offer, message_handle, sizeof *offer);
    CHECK(VipPostSend(vis[clients], (VIP_DESCRIPTOR*)message, message_handle));
    (void)VipSendWait(vis[clients], VIP_INFINITE, &done);
    ++clients;
  }
}

/* ---- the client */

static VIP_VI_HANDLE vi;
static VIP_MEM_HANDLE handle;
static VIP_DESCRIPTOR* descriptor;
static struct bucket* copy; /* where buckets are read to */
static struct offer offer;

static void connect_to(const char* name) {
  VIP_DESCRIPTOR* done = NULL;
  char* memory = registered_memory(4096, VIP_FALSE, &handle);
  descriptor = (VIP_DESCRIPTOR*)memory;
  copy = (struct bucket*)(memory + 128);
  vi = make_vi(sizeof(struct bucket), VIP_FALSE);
  describe(descriptor, copy, handle, sizeof offer);
  CHECK(VipPostRecv(vi, descriptor, handle));
  connect_to_server(vi, name);
  CHECK(VipRecvWait(vi, 20000, &done));
  memcpy(&offer, copy, sizeof offer);
}

/* SegCount counts the address segment, which comes first and says what to read; the data segments say whereto. */
static void read_bucket(uint32_t i) {
  VIP_DESCRIPTOR* done = NULL;
  memset(descriptor, 0, sizeof *descriptor);
  descriptor->CS.SegCount = 2;
  descriptor->CS.Control = VIP_CONTROL_OP_RDMAREAD;
  descriptor->CS.Length = sizeof *copy;
  descriptor->DS[0].Remote.Data.AddressBits = offer.address + i % offer.buckets * sizeof *copy;
  descriptor->DS[0].Remote.Handle = offer.handle;
  descriptor->DS[1].Local.Data.Address = copy;
  descriptor->DS[1].Local.Handle = handle;
  descriptor->DS[1].Local.Length = sizeof *copy;
  CHECK(VipPostSend(vi, descriptor, handle));
  CHECK(VipSendWait(vi, VIP_INFINITE, &done));
}

/* NULL: there is no such key. A copy is good if the version is even and still the same after it was made. */
static const char* get(const char* key) {
  static struct bucket seen;
  uint32_t i = 0;
  while (i < offer.buckets) {
    read_bucket(hash(key) + i);
    seen = *copy;
    if (seen.version == 0) return NULL;
    read_bucket(hash(key) + i);
    if (seen.version % 2 != 0 || seen.version != copy->version) continue;
    if (strncmp(seen.key, key, sizeof seen.key - 1) == 0) return seen.value;
    ++i;
  }
  return NULL;
}

static void answer_questions(void) {
  char key[64];
  while (fgets(key, sizeof key, stdin) != NULL) {
    const char* value;
    key[strcspn(key, "\n")] = 0;
    value = get(key);
    if (value != NULL)
      printf("%s=%s\n", key, value);
    else
      printf("%s is not there\n", key);
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  int i;
  if (argc >= 3 && strcmp(argv[1], "server") == 0) {
    static struct bucket filled[BUCKETS];
    table = filled;
    for (i = 3; i < argc; ++i) {
      char* const equals = strchr(argv[i], '=');
      if (equals == NULL) break;
      *equals = 0;
      put(argv[i], equals + 1);
    }
    if (i == argc) {
      open_adapter();
      serve(argv[2]);
      return 0;
    }
  } else if (argc == 3 && strcmp(argv[1], "client") == 0) {
    open_adapter();
    connect_to(argv[2]);
    answer_questions();
    CHECK(VipDisconnect(vi));
    CHECK(VipDestroyVi(vi));
    CHECK(VipDeregisterMem(nic, descriptor, handle));
    CHECK(VipDestroyPtag(nic, tag));
    CHECK(VipCloseNic(nic));
    return 0;
  }
  fprintf(stderr, "usage: %s server NAME KEY=VALUE ...\n       %s client NAME[@HOST] < KEYS\n", argv[0], argv[0]);
  return 2;
}
