/*
 * A program as they were written for the adapters of their day: it knows nothing of Viaduct. One process serves, the
 * other is a client; they exchange messages by polling, by waiting and over a completion queue, and the client writes
 * into the server's memory.
 *
 *   vipl_sample server|client DEVICE NAME
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vipl.h>

#define BUFFERS 8
#define BUFFER_SIZE 4096
#define ROUNDS 100
#define TIMEOUT 20000

#define CHECK(call)                                                                     \
  do {                                                                                  \
    VIP_RETURN said = (call);                                                           \
    if (said != VIP_SUCCESS) {                                                          \
      fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, (int)said); \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

struct buffer {
  VIP_DESCRIPTOR desc;
  char data[BUFFER_SIZE];
};

static VIP_NIC_HANDLE nic;
static VIP_NIC_ATTRIBUTES nic_attrs;
static VIP_PROTECTION_HANDLE ptag;
static VIP_CQ_HANDLE cq;
static VIP_VI_HANDLE vi;
static VIP_MEM_HANDLE mem_handle;
static struct buffer* buffers;

static void error_handler(VIP_PVOID context, VIP_ERROR_DESCRIPTOR* error) {
  (void)context;
  if (error->ErrorCode == VIP_ERROR_CONN_LOST) return; /* the other side has finished */
  fprintf(stderr, "asynchronous error %d\n", (int)error->ErrorCode);
  exit(1);
}

static void open_adapter(const char* device) {
  VIP_VI_ATTRIBUTES attrs;
  VIP_MEM_ATTRIBUTES mem_attrs;
  void* memory;
  CHECK(VipOpenNic(device, &nic));
  CHECK(VipQueryNic(nic, &nic_attrs));
  CHECK(VipErrorCallback(nic, NULL, error_handler));
  CHECK(VipNSInit(nic, NULL));
  CHECK(VipCreatePtag(nic, &ptag));
  CHECK(VipCreateCQ(nic, 2 * BUFFERS, &cq));
  memset(&attrs, 0, sizeof(attrs));
  attrs.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
  attrs.MaxTransferSize = BUFFER_SIZE;
  attrs.Ptag = ptag;
  attrs.EnableRdmaWrite = VIP_TRUE;
  CHECK(VipCreateVi(nic, &attrs, NULL, cq, &vi));
  if (posix_memalign(&memory, 4096, BUFFERS * sizeof(struct buffer)) != 0) exit(1);
  buffers = memory;
  memset(buffers, 0, BUFFERS * sizeof(struct buffer));
  mem_attrs.Ptag = ptag;
  mem_attrs.EnableRdmaWrite = VIP_TRUE;
  mem_attrs.EnableRdmaRead = VIP_FALSE;
  CHECK(VipRegisterMem(nic, buffers, BUFFERS * sizeof(struct buffer), &mem_attrs, &mem_handle));
}

static VIP_NET_ADDRESS* address_of(const char* host, const char* discriminator) {
  VIP_NET_ADDRESS* address = calloc(1, sizeof(VIP_NET_ADDRESS) + nic_attrs.NicAddressLen + strlen(discriminator));
  address->DiscriminatorLen = (VIP_UINT16)strlen(discriminator);
  CHECK(VipNSGetHostByName(nic, (VIP_CHAR*)host, address, 0));
  memcpy(address->HostAddress + address->HostAddressLen, discriminator, strlen(discriminator));
  return address;
}

static void post_receive(int i) {
  VIP_DESCRIPTOR* desc = &buffers[i].desc;
  memset(desc, 0, sizeof(*desc));
  desc->CS.SegCount = 1;
  desc->CS.Control = VIP_CONTROL_OP_SENDRECV;
  desc->CS.Length = BUFFER_SIZE;
  desc->DS[0].Local.Data.Address = buffers[i].data;
  desc->DS[0].Local.Handle = mem_handle;
  desc->DS[0].Local.Length = BUFFER_SIZE;
  CHECK(VipPostRecv(vi, desc, mem_handle));
}

/* The other naming, as programs for cLAN have it. */
static void send_buffer(int i, unsigned length) {
  VIP_DESCRIPTOR* desc = &buffers[i].desc;
  VIP_DESCRIPTOR* done;
  VIP_RETURN rc;
  memset(desc, 0, sizeof(*desc));
  desc->Control.SegCount = 1;
  desc->Control.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE;
  desc->Control.ImmediateData = length;
  desc->Control.Length = length;
  desc->Data[0].Data.Address = buffers[i].data;
  desc->Data[0].Handle = mem_handle;
  desc->Data[0].Length = length;
  CHECK(VipPostSend(vi, desc, mem_handle));
  while ((rc = VipSendDone(vi, &done)) == VIP_NOT_DONE) continue;
  CHECK(rc);
  if (done != desc || !(done->Control.Status & VIP_STATUS_DONE)) exit(1);
}

static struct buffer* receive(int round) {
  VIP_DESCRIPTOR* desc = NULL;
  VIP_VI_HANDLE which;
  VIP_BOOLEAN of_receive_queue;
  VIP_RETURN rc;
  if (round % 2 == 0) {
    while ((rc = VipCQDone(cq, &which, &of_receive_queue)) == VIP_NOT_DONE) continue;
    CHECK(rc);
  } else {
    CHECK(VipCQWait(cq, TIMEOUT, &which, &of_receive_queue));
  }
  if (which != vi || !of_receive_queue) exit(1);
  CHECK(VipRecvDone(vi, &desc));
  if (desc->CS.ImmediateData != desc->CS.Length || !(desc->CS.Status & VIP_STATUS_IMMEDIATE)) exit(1);
  return (struct buffer*)desc;
}

struct offer {
  VIP_UINT64 address;
  VIP_MEM_HANDLE handle;
};

static int serve(const char* name) {
  VIP_NET_ADDRESS* local = address_of("localhost", name);
  VIP_NET_ADDRESS* remote = calloc(1, sizeof(*remote) + nic_attrs.NicAddressLen + nic_attrs.MaxDiscriminatorLen);
  VIP_VI_ATTRIBUTES remote_attrs;
  VIP_CONN_HANDLE connection;
  struct offer offer;
  int i;
  CHECK(VipConnectWait(nic, local, TIMEOUT, remote, &remote_attrs, &connection));
  CHECK(VipConnectAccept(connection, vi));
  for (i = 0; i < ROUNDS; i++) {
    struct buffer* in = receive(i);
    unsigned length = in->desc.CS.Length, j;
    for (j = 0; j < length; j++) buffers[BUFFERS - 1].data[j] = (char)(in->data[j] + 1);
    post_receive((int)(in - buffers));
    send_buffer(BUFFERS - 1, length);
  }
  offer.address = (VIP_UINT64)(unsigned long)buffers[BUFFERS - 2].data;
  offer.handle = mem_handle;
  memcpy(buffers[BUFFERS - 1].data, &offer, sizeof(offer));
  send_buffer(BUFFERS - 1, sizeof(offer));
  receive(0); /* the client has written */
  if (strcmp(buffers[BUFFERS - 2].data, "written from afar") != 0) return 1;
  free(local);
  free(remote);
  return 0;
}

static int be_client(const char* name) {
  VIP_NET_ADDRESS* local = address_of("localhost", "sample client");
  VIP_NET_ADDRESS* remote = address_of("localhost", name);
  VIP_VI_ATTRIBUTES remote_attrs;
  VIP_RETURN rc;
  VIP_DESCRIPTOR *desc, *done;
  struct offer offer;
  int i;
  while ((rc = VipConnectRequest(vi, local, remote, TIMEOUT, &remote_attrs)) == VIP_NO_MATCH) continue;
  CHECK(rc);
  if (!remote_attrs.EnableRdmaWrite) return 1;
  for (i = 0; i < ROUNDS; i++) {
    unsigned length = 1u + (unsigned)(i * 41) % BUFFER_SIZE, j;
    struct buffer* in;
    memset(buffers[BUFFERS - 1].data, i, length);
    send_buffer(BUFFERS - 1, length);
    in = receive(i);
    if (in->desc.CS.Length != length) return 1;
    for (j = 0; j < length; j++)
      if (in->data[j] != (char)(i + 1)) return 1;
    post_receive((int)(in - buffers));
  }
  memcpy(&offer, receive(1)->data, sizeof(offer));
  desc = &buffers[BUFFERS - 1].desc;
  memset(desc, 0, sizeof(*desc));
  strcpy(buffers[BUFFERS - 1].data, "written from afar");
  desc->CS.SegCount = 2;
  desc->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
  desc->CS.Length = 18;
  desc->DS[0].Remote.Data.AddressBits = offer.address;
  desc->DS[0].Remote.Handle = offer.handle;
  desc->DS[1].Local.Data.Address = buffers[BUFFERS - 1].data;
  desc->DS[1].Local.Handle = mem_handle;
  desc->DS[1].Local.Length = 18;
  CHECK(VipPostSend(vi, desc, mem_handle));
  CHECK(VipSendWait(vi, TIMEOUT, &done));
  send_buffer(BUFFERS - 1, 1);
  free(local);
  free(remote);
  return 0;
}

int main(int argc, char** argv) {
  int i, failed;
  if (argc != 4) return 2;
  open_adapter(argv[2]);
  for (i = 0; i < BUFFERS - 2; i++) post_receive(i);
  failed = strcmp(argv[1], "server") == 0 ? serve(argv[3]) : be_client(argv[3]);
  (void)VipDisconnect(vi);
  CHECK(VipDestroyVi(vi));
  CHECK(VipDestroyCQ(cq));
  CHECK(VipDeregisterMem(nic, buffers, mem_handle));
  CHECK(VipDestroyPtag(nic, ptag));
  CHECK(VipNSShutdown(nic));
  CHECK(VipCloseNic(nic));
  free(buffers);
  return failed;
}
