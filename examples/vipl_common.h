/*
 * What both examples begin with: an adapter, a protection tag, registered memory, and the address of a name on this
 * host or another. A call that fails ends the program with a line that says which.
 */
#ifndef VIPL_COMMON_H
#define VIPL_COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vipl.h>

#define CHECK(call)                                                              \
  do {                                                                           \
    VIP_RETURN said_ = (call);                                                   \
    if (said_ != VIP_SUCCESS) {                                                  \
      fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)said_); \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)

static VIP_NIC_HANDLE nic;
static VIP_PROTECTION_HANDLE tag;

static void ignore_lost_connections(VIP_PVOID context, VIP_ERROR_DESCRIPTOR* error) {
  (void)context;
  if (error->ErrorCode != VIP_ERROR_CONN_LOST) fprintf(stderr, "VIPL reports error %d\n", (int)error->ErrorCode);
}

static void open_adapter(void) {
  CHECK(VipOpenNic("viaduct", &nic));
  CHECK(VipErrorCallback(nic, NULL, ignore_lost_connections));
  CHECK(VipCreatePtag(nic, &tag));
}

/* Memory for descriptors and data: aligned as descriptors must be, zeroed, and registered under the tag. */
static void* registered_memory(size_t length, VIP_BOOLEAN rdma_read, VIP_MEM_HANDLE* handle) {
  VIP_MEM_ATTRIBUTES attributes;
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, length) != 0) exit(1);
  memset(memory, 0, length);
  attributes.Ptag = tag;
  attributes.EnableRdmaWrite = VIP_FALSE;
  attributes.EnableRdmaRead = rdma_read;
  CHECK(VipRegisterMem(nic, memory, length, &attributes, handle));
  return memory;
}

static VIP_VI_HANDLE make_vi(VIP_ULONG max_transfer, VIP_BOOLEAN rdma_read) {
  VIP_VI_ATTRIBUTES attributes;
  VIP_VI_HANDLE vi = NULL;
  memset(&attributes, 0, sizeof attributes);
  attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
  attributes.MaxTransferSize = max_transfer;
  attributes.Ptag = tag;
  attributes.EnableRdmaRead = rdma_read;
  CHECK(VipCreateVi(nic, &attributes, NULL, NULL, &vi));
  return vi;
}

/* "NAME" on this host, or "NAME@HOST": the host's bytes, then the discriminator, here the name itself. To be freed. */
static VIP_NET_ADDRESS* address_of(const char* name) {
  VIP_NIC_ATTRIBUTES attributes;
  VIP_NET_ADDRESS* address;
  const char* at = strrchr(name, '@');
  size_t length = at != NULL ? (size_t)(at - name) : strlen(name);
  CHECK(VipQueryNic(nic, &attributes));
  if (length > attributes.MaxDiscriminatorLen) length = attributes.MaxDiscriminatorLen;
  address = calloc(1, sizeof *address + attributes.NicAddressLen + attributes.MaxDiscriminatorLen);
  if (address == NULL) exit(1);
  address->HostAddressLen = attributes.NicAddressLen;
  address->DiscriminatorLen = (VIP_UINT16)length;
  memcpy(address->HostAddress, attributes.LocalNicAddress, attributes.NicAddressLen);
  memcpy(address->HostAddress + attributes.NicAddressLen, name, length);
  if (at != NULL) {
    CHECK(VipNSInit(nic, NULL));
    if (VipNSGetHostByName(nic, (VIP_CHAR*)(at + 1), address, 0) != VIP_SUCCESS) {
      fprintf(stderr, "there is no host '%s'\n", at + 1);
      exit(1);
    }
    CHECK(VipNSShutdown(nic));
  }
  return address;
}

/* Also to a server that is not there yet. */
static void connect_to_server(VIP_VI_HANDLE vi, const char* name) {
  const char* const here = strchr(name, '@') == NULL ? " here" : "";
  VIP_NET_ADDRESS* local = address_of("");
  VIP_NET_ADDRESS* remote = address_of(name);
  VIP_VI_ATTRIBUTES theirs;
  VIP_RETURN said = VipConnectRequest(vi, local, remote, 300, &theirs);
  if (said == VIP_NO_MATCH) fprintf(stderr, "nobody serves '%s'%s: waiting for it, 20 seconds at most\n", name, here);
  if (said == VIP_NO_MATCH || said == VIP_TIMEOUT) said = VipConnectRequest(vi, local, remote, 20000, &theirs);
  if (said == VIP_NO_MATCH) {
    fprintf(stderr, "nobody came: start this program as 'server %.*s' on %s\n", (int)strcspn(name, "@"), name,
            *here != 0 ? "this host, as the same user" : "that host");
    exit(1);
  }
  CHECK(said);
  free(local);
  free(remote);
}

/* A descriptor of one data segment, for VipPostSend and VipPostRecv. */
static void describe(VIP_DESCRIPTOR* descriptor, void* data, VIP_MEM_HANDLE handle, VIP_UINT32 length) {
  memset(descriptor, 0, sizeof *descriptor);
  descriptor->CS.SegCount = 1;
  descriptor->CS.Control = VIP_CONTROL_OP_SENDRECV;
  descriptor->CS.Length = length;
  descriptor->DS[0].Local.Data.Address = data;
  descriptor->DS[0].Local.Handle = handle;
  descriptor->DS[0].Local.Length = length;
}

#endif
