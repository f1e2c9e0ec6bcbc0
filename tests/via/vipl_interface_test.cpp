// The header: sizes, offsets and values that programs were compiled with.
#include <gtest/gtest.h>
#include <vipl.h>

#include <cstddef>

namespace {

static_assert(sizeof(VIP_CONTROL_SEGMENT) == 32);
static_assert(sizeof(VIP_ADDRESS_SEGMENT) == 16);
static_assert(sizeof(VIP_DATA_SEGMENT) == 16);
static_assert(sizeof(VIP_DESCRIPTOR_SEGMENT) == 16);
static_assert(sizeof(VIP_DESCRIPTOR) == 64);
static_assert(sizeof(VIP_PVOID64) == 8);
static_assert(sizeof(VIP_MEM_HANDLE) == 4);
static_assert(sizeof(VIP_ULONG) == 8);
static_assert(offsetof(VIP_CONTROL_SEGMENT, NextHandle) == 8);
static_assert(offsetof(VIP_CONTROL_SEGMENT, SegCount) == 12);
static_assert(offsetof(VIP_CONTROL_SEGMENT, Control) == 14);
static_assert(offsetof(VIP_CONTROL_SEGMENT, ImmediateData) == 20);
static_assert(offsetof(VIP_CONTROL_SEGMENT, Length) == 24);
static_assert(offsetof(VIP_CONTROL_SEGMENT, Status) == 28);
static_assert(offsetof(VIP_DATA_SEGMENT, Handle) == 8);
static_assert(offsetof(VIP_DATA_SEGMENT, Length) == 12);
static_assert(offsetof(VIP_NET_ADDRESS, HostAddress) == 4);

static_assert(VIP_STATUS_ERROR_MASK ==
              (VIP_STATUS_FORMAT_ERROR | VIP_STATUS_PROTECTION_ERROR | VIP_STATUS_LENGTH_ERROR |
               VIP_STATUS_PARTIAL_ERROR | VIP_STATUS_DESC_FLUSHED_ERROR | VIP_STATUS_TRANSPORT_ERROR |
               VIP_STATUS_RDMA_PROT_ERROR | VIP_STATUS_REMOTE_DESC_ERROR));
static_assert(VIP_SUCCESS == 0 && VIP_NOT_DONE == 1 && VIP_TIMEOUT == 4 && VIP_DESCRIPTOR_ERROR == 11 &&
              VIP_NO_MATCH == 14);
static_assert(VIP_STATE_IDLE == 0 && VIP_STATE_CONNECTED == 1 && VIP_STATE_CONNECT_PENDING == 2 &&
              VIP_STATE_ERROR == 3);
static_assert(VIP_ERROR_POST_DESC == 0 && VIP_ERROR_RECVQ_EMPTY == 2 && VIP_ERROR_CATASTROPHIC == 10);

TEST(ViplHeader, BothNamingsNameTheSameBytes) {
  VIP_DESCRIPTOR descriptor{};
  descriptor.Control.Length = 7;
  descriptor.Control.SegCount = 2;
  descriptor.Data[1].Length = 5;
  descriptor.DS[0].Remote.Handle = 9;
  EXPECT_EQ(descriptor.CS.Length, 7u);
  EXPECT_EQ(descriptor.CS.SegCount, 2);
  EXPECT_EQ(descriptor.DS[1].Local.Length, 5u);
  EXPECT_EQ(descriptor.Data[0].Handle, 9u);
  EXPECT_EQ(static_cast<void*>(&descriptor.Data[0]), static_cast<void*>(&descriptor.DS[0]));
}

// Every function, with handles that were never given out: refused, and nothing is followed.
TEST(ViplHeader, HandlesNobodyGaveOutAreRefused) {
  int dummy = 0;
  for (void* const wild : {static_cast<void*>(nullptr), static_cast<void*>(&dummy), reinterpret_cast<void*>(1),
                           reinterpret_cast<void*>(~std::uintptr_t{0})}) {
    VIP_NIC_ATTRIBUTES nic;
    VIP_VI_ATTRIBUTES vi{};
    VIP_MEM_ATTRIBUTES memory{};
    VIP_MEM_HANDLE handle;
    VIP_DESCRIPTOR* descriptor;
    VIP_NET_ADDRESS address{};
    VIP_BOOLEAN flag;
    VIP_VI_STATE state;
    VIP_ULONG length = 0;
    char name[8] = "x";
    void* made;
    alignas(64) VIP_DESCRIPTOR one{};
    const auto queue = [](VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR*) {};
    const auto cq = [](VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_BOOLEAN) {};
    EXPECT_EQ(VipCloseNic(wild), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipQueryNic(wild, &nic), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipCreateVi(wild, &vi, nullptr, nullptr, &made), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipDestroyVi(wild), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipQueryVi(wild, &state, &vi, &flag, &flag), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipSetViAttributes(wild, &vi), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipConnectWait(wild, &address, 1, &address, &vi, &made), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipConnectAccept(wild, wild), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipConnectReject(wild), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipConnectRequest(wild, &address, &address, 1, &vi), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipDisconnect(wild), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipConnectPeerRequest(wild, &address, &address, 1), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipConnectPeerDone(wild, &vi), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipConnectPeerWait(wild, &vi), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipCreatePtag(wild, &made), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipDestroyPtag(wild, wild), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipRegisterMem(wild, &dummy, 4, &memory, &handle), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipDeregisterMem(wild, &dummy, 1), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipQueryMem(wild, &dummy, 1, &memory), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipSetMemAttributes(wild, &dummy, 1, &memory), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipPostSend(wild, &one, 1), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipPostRecv(wild, &one, 1), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipSendDone(wild, &descriptor), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipRecvDone(wild, &descriptor), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipSendWait(wild, 1, &descriptor), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipRecvWait(wild, 1, &descriptor), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipSendNotify(wild, nullptr, queue), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipRecvNotify(wild, nullptr, queue), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipCreateCQ(wild, 1, &made), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipDestroyCQ(wild), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipResizeCQ(wild, 1), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipCQDone(wild, &made, &flag), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipCQWait(wild, 1, &made, &flag), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipCQNotify(wild, nullptr, cq), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipErrorCallback(wild, nullptr, nullptr), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipQuerySystemManagementInfo(wild, VIP_SMI_AUTODISCOVERY, &dummy), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipNSInit(wild, nullptr), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipNSGetHostByName(wild, name, &address, 0), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipNSGetHostByAddr(wild, &address, name, &length), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipNSShutdown(wild), VIP_INVALID_PARAMETER);
  }
}

}  // namespace
