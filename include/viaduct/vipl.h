/*
 * vipl.h: VIPL 1.0, the Virtual Interface Provider Library: types, values and functions under their standard names.
 *
 * A virtual interface (VI) is one end of a connection between two programs: a queue of what to send and a queue of
 * where to receive. A program describes each message in a descriptor, posts it, and gets it back when it is done.
 * Everything lies in memory that the program has registered, and the other end may be given leave to read and write
 * parts of it (RDMA). Here both ends are on one host, and messages travel through shared memory.
 *
 *   VipOpenNic, VipCreatePtag             an adapter, and a protection tag: what belongs together
 *   VipRegisterMem                        memory for descriptors and data, under the tag
 *   VipCreateVi                           a VI of the same tag
 *   VipPostRecv ...                       before connecting: a message must find a receive that is posted
 *   VipConnectWait + VipConnectAccept     the server; the client: VipConnectRequest; equals: VipConnectPeerRequest
 *   VipPostSend, VipSendDone, VipRecvDone and so on
 *   VipDisconnect, VipDestroyVi, VipDeregisterMem, VipDestroyPtag, VipCloseNic
 *
 * Link with -lvipl (pkg-config vipl). Examples: examples/vipl_pingpong.c, examples/rdma_kv.c. The whole story, and
 * where the standard leaves a choice: docs/via.md; vipl(3).
 *
 * All functions may be called from any thread, and from handlers. A handle that was never given out, or is stale, gives
 * VIP_INVALID_PARAMETER; so does a null pointer where something must be returned. Timeouts are in milliseconds;
 * VIP_INFINITE: none. A child made by fork has none of its parent's handles and opens an adapter of its own.
 */
#ifndef VIADUCT_VIPL_H
#define VIADUCT_VIPL_H

#include <stdint.h>
#include <viaduct/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types */

typedef void* VIP_PVOID;
typedef int VIP_BOOLEAN;
typedef char VIP_CHAR;
typedef unsigned char VIP_UCHAR;
typedef unsigned short VIP_USHORT;
typedef unsigned long VIP_ULONG;
typedef uint8_t VIP_UINT8;
typedef uint16_t VIP_UINT16;
typedef uint32_t VIP_UINT32;
typedef uint64_t VIP_UINT64;

typedef VIP_PVOID VIP_NIC_HANDLE;
typedef VIP_PVOID VIP_VI_HANDLE;
typedef VIP_PVOID VIP_CQ_HANDLE;
typedef VIP_PVOID VIP_PROTECTION_HANDLE;
typedef VIP_PVOID VIP_CONN_HANDLE;
typedef VIP_PVOID VIP_QOS;
typedef VIP_PVOID VIP_EVENT_HANDLE;
typedef VIP_UINT32 VIP_MEM_HANDLE;

#define VIP_TRUE 1
#define VIP_FALSE 0
#define VIP_INFINITE (~(VIP_ULONG)0)

/* ---- descriptors */

struct _VIP_DESCRIPTOR;

typedef union {
  VIP_UINT64 AddressBits;
  VIP_PVOID Address;
  struct _VIP_DESCRIPTOR* Descriptor;
} VIP_PVOID64;

typedef struct {
  VIP_PVOID64 Next;          /* the provider's while the descriptor is posted */
  VIP_MEM_HANDLE NextHandle; /* likewise */
  VIP_UINT16 SegCount;       /* segments that follow, an address segment included */
  VIP_UINT16 Control;        /* VIP_CONTROL_* */
  VIP_UINT32 Reserved;
  VIP_UINT32 ImmediateData;
  VIP_UINT32 Length; /* of the data; after a receive: what came */
  VIP_UINT32 Status; /* VIP_STATUS_* */
} VIP_CONTROL_SEGMENT;

typedef struct {
  VIP_PVOID64 Data;
  VIP_MEM_HANDLE Handle;
  VIP_UINT32 Reserved;
} VIP_ADDRESS_SEGMENT;

typedef struct {
  VIP_PVOID64 Data;
  VIP_MEM_HANDLE Handle;
  VIP_UINT32 Length;
} VIP_DATA_SEGMENT;

typedef union {
  VIP_ADDRESS_SEGMENT Remote;
  VIP_DATA_SEGMENT Local;
} VIP_DESCRIPTOR_SEGMENT;

#define VIP_DESCRIPTOR_ALIGNMENT 64

/*
 * 64 bytes; more segments may follow in memory. Two namings were in use, CS and DS of the specification and Control and
 * Data of Giganet's header: both work, in one program too. VIPL_ONE_NAMING leaves the specification's only, for
 * compilers without unnamed unions.
 */
typedef struct _VIP_DESCRIPTOR {
#ifdef VIPL_ONE_NAMING
  VIP_CONTROL_SEGMENT CS;
  VIP_DESCRIPTOR_SEGMENT DS[2];
#else
  __extension__ union {
    VIP_CONTROL_SEGMENT CS;
    VIP_CONTROL_SEGMENT Control;
  };
  __extension__ union {
    VIP_DESCRIPTOR_SEGMENT DS[2];
    VIP_DATA_SEGMENT Data[2];
  };
#endif
} VIP_DESCRIPTOR;

/*
 * Control, by the program. A descriptor in a receive queue has OP_SENDRECV. With IMMEDIATE the 32 bits of ImmediateData
 * go along and arrive in the receiver's descriptor; with an RDMA write they take a receive descriptor there. QFENCE:
 * not before the RDMA reads posted earlier are complete.
 */
#define VIP_CONTROL_OP_SENDRECV 0
#define VIP_CONTROL_OP_RDMAWRITE 1
#define VIP_CONTROL_OP_RDMAREAD 2
#define VIP_CONTROL_OP_RESERVED 3
#define VIP_CONTROL_OP_MASK 3
#define VIP_CONTROL_IMMEDIATE 4
#define VIP_CONTROL_QFENCE 8
#define VIP_CONTROL_RESERVED 0xFFF0

/*
 * Status, by the provider: 0 when posted, then DONE with the kind of operation and any errors, in one store. A program
 * may look at it in memory, but it only changes inside calls of this process: who waits for it asks between the looks.
 *   FORMAT           operation, reserved bits or segment count cannot be
 *   PROTECTION       a segment is not in memory registered under the VI's tag (any more)
 *   LENGTH           Length is not the sum of the segments, longer than MaxTransferSize, or the receive was too short
 *   PARTIAL          the connection ended in the middle of this message
 *   DESC_FLUSHED     the connection ended, or there was none, before its turn came
 *   TRANSPORT        it had left when the connection was lost: it may have arrived or not
 *   RDMA_PROT        the other end does not permit it: nothing was touched
 *   REMOTE_DESC      (reliable reception) the receive descriptor at the other end was missing or bad
 *
 * Of a receive, PROTECTION is about what the message needs of it.
 */
#define VIP_STATUS_DONE 1
#define VIP_STATUS_FORMAT_ERROR 2
#define VIP_STATUS_PROTECTION_ERROR 4
#define VIP_STATUS_LENGTH_ERROR 8
#define VIP_STATUS_PARTIAL_ERROR 0x10
#define VIP_STATUS_DESC_FLUSHED_ERROR 0x20
#define VIP_STATUS_TRANSPORT_ERROR 0x40
#define VIP_STATUS_RDMA_PROT_ERROR 0x80
#define VIP_STATUS_REMOTE_DESC_ERROR 0x100
#define VIP_STATUS_ERROR_MASK 0x1FE
#define VIP_STATUS_OP_SEND 0
#define VIP_STATUS_OP_RECEIVE 0x10000
#define VIP_STATUS_OP_RDMA_WRITE 0x20000
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 0x30000
#define VIP_STATUS_OP_RDMA_READ 0x40000
#define VIP_STATUS_OP_MASK 0x70000
#define VIP_STATUS_IMMEDIATE 0x80000
#define VIP_STATUS_RESERVED 0xFFF0FE00

/* ---- results, states, errors */

/*
 *   NOT_DONE                    ask again
 *   ERROR_RESOURCE              something is used up, or still in use
 *   TIMEOUT, REJECT, NO_MATCH   nobody answered in time; the server said no; nobody listens there
 *   INVALID_...                 what it names cannot be, here or (connecting) together with the other end
 *   DESCRIPTOR_ERROR            the descriptor that comes back has failed: see its status; or nothing is posted
 *   INVALID_STATE               not in this state of the VI
 *   ERROR_NAMESERVICE           nobody knows that name or address
 * INVALID_QOS, NOT_REACHABLE and ERROR_NOT_SUPPORTED are not returned here: QoS is ignored.
 */
typedef enum {
  VIP_SUCCESS = 0,
  VIP_NOT_DONE = 1,
  VIP_INVALID_PARAMETER = 2,
  VIP_ERROR_RESOURCE = 3,
  VIP_TIMEOUT = 4,
  VIP_REJECT = 5,
  VIP_INVALID_RELIABILITY_LEVEL = 6,
  VIP_INVALID_MTU = 7,
  VIP_INVALID_QOS = 8,
  VIP_INVALID_PTAG = 9,
  VIP_INVALID_RDMAREAD = 10,
  VIP_DESCRIPTOR_ERROR = 11,
  VIP_INVALID_STATE = 12,
  VIP_ERROR_NAMESERVICE = 13,
  VIP_NO_MATCH = 14,
  VIP_NOT_REACHABLE = 15,
  VIP_ERROR_NOT_SUPPORTED = 16
} VIP_RETURN;

/*
 * Idle -> ConnectPending -> Connected -> Error; VipDisconnect leads back to Idle from the other three. A VI is Error
 * when its connection has ended by anything but its own VipDisconnect. In Error all that is posted comes back flushed.
 */
typedef enum {
  VIP_STATE_IDLE = 0,
  VIP_STATE_CONNECTED = 1,
  VIP_STATE_CONNECT_PENDING = 2,
  VIP_STATE_ERROR = 3
} VIP_VI_STATE;

/*
 * UNRELIABLE          a message that finds no receive posted is dropped and counted (via.dropped); a bad descriptor
 *                     concerns nobody but itself. No RDMA read.
 * RELIABLE_DELIVERY   everything arrives, once and in order; a message that finds no receive breaks the connection, and
 *                     so does a bad send. A send is complete when the provider has taken it over.
 * RELIABLE_RECEPTION  the same, and a send is complete when it lies in the receiver's memory.
 * A receive that is bad by itself comes back with its error and takes no message: the connection stays, on every level.
 */
typedef VIP_USHORT VIP_RELIABILITY_LEVEL;
#define VIP_SERVICE_UNRELIABLE 1
#define VIP_SERVICE_RELIABLE_DELIVERY 2
#define VIP_SERVICE_RELIABLE_RECEPTION 4

/*
 * What the error callback is told.
 *   POST_DESC        the descriptor posted is misaligned, or not in memory registered under the VI's tag
 *   CONN_LOST        the other end has disconnected, died, or made no sense; or a bad send, or a receive that
 *                    could not take its message, broke the connection
 *   RECVQ_EMPTY      a message found no receive here
 *   VI_OVERRUN       more than MaxDescriptorsPerQueue were posted
 *   RDMAW_PROT, RDMAR_PROT     an RDMA write or read was not permitted; told to both ends
 *   RDMAW_DATA, RDMAW_ABORT    an RDMA write that came by message was garbled, or ended in the middle
 *   COMP_PROT        a completion could not be written: the descriptor's memory was deregistered while it was posted
 *   RDMA_TRANSPORT   an RDMA operation was permitted, but what is registered there is not memory; told to both ends
 *   CATASTROPHIC     not reported here: there is no hardware to fail
 */
typedef enum {
  VIP_ERROR_POST_DESC = 0,
  VIP_ERROR_CONN_LOST = 1,
  VIP_ERROR_RECVQ_EMPTY = 2,
  VIP_ERROR_VI_OVERRUN = 3,
  VIP_ERROR_RDMAW_PROT = 4,
  VIP_ERROR_RDMAW_DATA = 5,
  VIP_ERROR_RDMAW_ABORT = 6,
  VIP_ERROR_RDMAR_PROT = 7,
  VIP_ERROR_COMP_PROT = 8,
  VIP_ERROR_RDMA_TRANSPORT = 9,
  VIP_ERROR_CATASTROPHIC = 10
} VIP_ERROR_CODE;

typedef enum {
  VIP_RESOURCE_NIC = 0,
  VIP_RESOURCE_VI = 1,
  VIP_RESOURCE_CQ = 2,
  VIP_RESOURCE_DESCRIPTOR = 3
} VIP_RESOURCE_CODE;

/* ---- attributes */

/*
 * The host's bytes, then the discriminator's: as many as the lengths say. The host is four bytes of IPv4, any address
 * of this host, or none at all; the discriminator is up to MaxDiscriminatorLen bytes of the program's choice.
 */
typedef struct {
  VIP_UINT16 HostAddressLen;
  VIP_UINT16 DiscriminatorLen;
  VIP_UINT8 HostAddress[1];
} VIP_NET_ADDRESS;

typedef struct {
  VIP_CHAR Name[64];
  VIP_ULONG HardwareVersion;
  VIP_ULONG ProviderVersion;
  VIP_UINT16 NicAddressLen;
  const VIP_UINT8* LocalNicAddress;
  VIP_BOOLEAN ThreadSafe;
  VIP_UINT16 MaxDiscriminatorLen;
  VIP_ULONG MaxRegisterBytes;
  VIP_ULONG MaxRegisterRegions;
  VIP_ULONG MaxRegisterBlockBytes;
  VIP_ULONG MaxVI;
  VIP_ULONG MaxDescriptorsPerQueue;
  VIP_ULONG MaxSegmentsPerDesc;
  VIP_ULONG MaxCQ;
  VIP_ULONG MaxCQEntries;
  VIP_ULONG MaxTransferSize;
  VIP_ULONG NativeMTU;
  VIP_ULONG MaxPtags;
  VIP_RELIABILITY_LEVEL ReliabilityLevelSupport;
  VIP_RELIABILITY_LEVEL RDMAReadSupport;
} VIP_NIC_ATTRIBUTES;

typedef struct {
  VIP_RELIABILITY_LEVEL ReliabilityLevel;
  VIP_ULONG MaxTransferSize;
  VIP_QOS QoS;
  VIP_PROTECTION_HANDLE Ptag;
  VIP_BOOLEAN EnableRdmaWrite;
  VIP_BOOLEAN EnableRdmaRead;
} VIP_VI_ATTRIBUTES;

typedef struct {
  VIP_PROTECTION_HANDLE Ptag;
  VIP_BOOLEAN EnableRdmaWrite;
  VIP_BOOLEAN EnableRdmaRead;
} VIP_MEM_ATTRIBUTES;

typedef struct {
  VIP_NIC_HANDLE NicHandle;
  VIP_VI_HANDLE ViHandle;
  VIP_CQ_HANDLE CQHandle;
  VIP_DESCRIPTOR* DescriptorPtr;
  VIP_ULONG OpCode; /* the VIP_STATUS_OP_* of the operation */
  VIP_RESOURCE_CODE ResourceCode;
  VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

#define VIP_SMI_AUTODISCOVERY 1
typedef struct {
  VIP_ULONG NumberOfHops;
  VIP_NET_ADDRESS** ADAddrArray;
  VIP_ULONG NumAdAddrs;
} VIP_AUTODISCOVERY_LIST;

/* ---- the adapter */

/* "viaduct"; or a historic name: /dev/via_lo, /dev/via_ethN, /dev/clanviN, nicN, VINIC. All mean this one. */
VIADUCT_API VIP_RETURN VipOpenNic(const VIP_CHAR* DeviceName, VIP_NIC_HANDLE* NicHandle);
/* ERROR_RESOURCE: VIs or completion queues of it exist. Tags and registrations go with it. */
VIADUCT_API VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle);
VIADUCT_API VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle, VIP_NIC_ATTRIBUTES* NicAttributes);
/* VIP_SMI_AUTODISCOVERY with a VIP_AUTODISCOVERY_LIST: fills ADAddrArray[0]. */
VIADUCT_API VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle, VIP_ULONG InfoType, VIP_PVOID SysManInfo);
/*
 * What no descriptor can tell. The handler is called by whichever thread comes across the error, without any lock.
 * Null: the default again, a line in the log.
 */
VIADUCT_API VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, VIP_PVOID Context,
                                        void (*Handler)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR* ErrorDesc));

/* ---- protection and registered memory */

/*
 * A VI may use memory of its own tag only. A VI with the tag NULL asks for no protection: it and its peer may use
 * memory of every tag of the adapter, for programs of providers that ignored them. Memory with the tag NULL is for such
 * VIs.
 */
VIADUCT_API VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE* Ptag);
/* ERROR_RESOURCE: a VI or a registration has it. */
VIADUCT_API VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE Ptag);
/*
 * Any memory, any alignment; it is neither pinned nor touched. It must stay mapped until it is deregistered: messages
 * are copied from and to it as the program itself would, with SIGSEGV where nothing is. EnableRdmaWrite and Read let
 * peers of VIs of this tag write and read it while those VIs enable the same. Memory from adma_alloc is mapped by
 * peers: RDMA is a plain copy then.
 */
VIADUCT_API VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_ULONG Length,
                                      VIP_MEM_ATTRIBUTES* MemAttributes, VIP_MEM_HANDLE* MemoryHandle);
/*
 * The address is the one that was registered. When it returns nobody uses the memory any more, no thread here and no
 * peer; descriptors still posted on it come back with a protection error when their turn comes.
 */
VIADUCT_API VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress,
                                        VIP_MEM_HANDLE MemoryHandle);
VIADUCT_API VIP_RETURN VipQueryMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle,
                                   VIP_MEM_ATTRIBUTES* MemAttributes);
VIADUCT_API VIP_RETURN VipSetMemAttributes(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress,
                                           VIP_MEM_HANDLE MemoryHandle, VIP_MEM_ATTRIBUTES* MemAttributes);

/* ---- virtual interfaces */

/* A completion queue for each work queue, the same for both, or NULL. */
VIADUCT_API VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES* ViAttributes,
                                   VIP_CQ_HANDLE SendCQHandle, VIP_CQ_HANDLE RecvCQHandle, VIP_VI_HANDLE* ViHandle);
/* INVALID_STATE: it is not idle. Descriptors that nobody took back are forgotten. */
VIADUCT_API VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle);
/* Every pointer may be null. */
VIADUCT_API VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle, VIP_VI_STATE* State, VIP_VI_ATTRIBUTES* ViAttributes,
                                  VIP_BOOLEAN* SendQueueEmpty, VIP_BOOLEAN* RecvQueueEmpty);
/* Only while it is idle. */
VIADUCT_API VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES* ViAttributes);

/* ---- connections, between VIs of the same reliability level and MaxTransferSize; who may: VIADUCT_PEERS */

/*
 * The server: waits at an address for a request, looks at it, accepts it for an idle VI or rejects it. Clients that
 * come between two calls wait for the next. ERROR_RESOURCE: another process has that address. Timeout 0: whoever is
 * there.
 */
VIADUCT_API VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS* LocalAddr, VIP_ULONG Timeout,
                                      VIP_NET_ADDRESS* RemoteAddr, VIP_VI_ATTRIBUTES* RemoteViAttributes,
                                      VIP_CONN_HANDLE* ConnHandle);
/* INVALID_RELIABILITY_LEVEL, INVALID_MTU: the VIs do not agree, and the request stays. TIMEOUT: the client left. */
VIADUCT_API VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle);
VIADUCT_API VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle);
/* The client: waits for the server to appear and to answer. NO_MATCH: none appeared. */
VIADUCT_API VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS* LocalAddr,
                                         VIP_NET_ADDRESS* RemoteAddr, VIP_ULONG Timeout,
                                         VIP_VI_ATTRIBUTES* RemoteViAttributes);
/*
 * Flushes what is posted. The other end finds its VI in Error, after having received what was sent before.
 * INVALID_STATE: it is idle, and stays so.
 */
VIADUCT_API VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle);
/* Between equals: each names itself and the other, does not wait, and asks (Done) or waits (Wait) for the end of it. */
VIADUCT_API VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS* LocalAddr,
                                             VIP_NET_ADDRESS* RemoteAddr, VIP_ULONG Timeout);
VIADUCT_API VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES* RemoteViAttributes);
VIADUCT_API VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES* RemoteViAttributes);

/* ---- work queues: descriptors come back in the order of posting */

/*
 * MemoryHandle is that of the descriptor itself, which is the provider's until it comes back. DESCRIPTOR_ERROR: it is
 * not where it may be, and was not posted; INVALID_PARAMETER: it is null; any other fault is in its status when it
 * comes back. RDMA is a send with VIP_CONTROL_OP_RDMAWRITE or RDMAREAD, DS[0].Remote saying where over there, and data
 * segments from DS[1] on.
 */
VIADUCT_API VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR* DescriptorPtr, VIP_MEM_HANDLE MemoryHandle);
VIADUCT_API VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR* DescriptorPtr, VIP_MEM_HANDLE MemoryHandle);
/*
 * The first that is complete. NOT_DONE: it is not yet. DESCRIPTOR_ERROR: it failed, or (null comes back) nothing is
 * posted. These calls are also what moves messages: a program that never calls receives nothing.
 */
VIADUCT_API VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR** DescriptorPtr);
VIADUCT_API VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR** DescriptorPtr);
/* The same, waiting: spinning for a short while (VIADUCT_SPIN_US), then asleep. */
VIADUCT_API VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR** DescriptorPtr);
VIADUCT_API VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR** DescriptorPtr);
/* The handler is called once, for one descriptor, by a thread of the adapter that the first such request starts. */
VIADUCT_API VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context,
                                     void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle,
                                                     VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR* DescriptorPtr));
VIADUCT_API VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context,
                                     void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle,
                                                     VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR* DescriptorPtr));

/* ---- completion queues: which work queue, of as many as there are, has completed a descriptor */

/* A queue that gets more entries than it was made for grows, and counts that (via.cq_overflows): none is lost. */
VIADUCT_API VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle, VIP_ULONG EntryCount, VIP_CQ_HANDLE* CQHandle);
/* ERROR_RESOURCE: a VI uses it. */
VIADUCT_API VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle);
/* ERROR_RESOURCE: it holds more than that. */
VIADUCT_API VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount);
/* An entry names the VI and the queue; the descriptor is then taken with VipSendDone or VipRecvDone. */
VIADUCT_API VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle, VIP_VI_HANDLE* ViHandle, VIP_BOOLEAN* RecvQueue);
VIADUCT_API VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle, VIP_ULONG Timeout, VIP_VI_HANDLE* ViHandle,
                                 VIP_BOOLEAN* RecvQueue);
VIADUCT_API VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle, VIP_PVOID Context,
                                   void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                                   VIP_BOOLEAN RecvQueue));

/* ---- names of hosts, by the host's own resolver */

VIADUCT_API VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle, VIP_PVOID NSInitInfo);
/* NameIndex 0, 1, ...: a name may have several addresses. The discriminator is left alone. */
VIADUCT_API VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle, VIP_CHAR* Name, VIP_NET_ADDRESS* Address,
                                          VIP_ULONG NameIndex);
/* NameLen: the room for the name, then its length with the zero behind it. ERROR_RESOURCE: that does not fit. */
VIADUCT_API VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS* Address, VIP_CHAR* Name,
                                          VIP_ULONG* NameLen);
VIADUCT_API VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle);

#ifdef __cplusplus
}
#endif

#endif
