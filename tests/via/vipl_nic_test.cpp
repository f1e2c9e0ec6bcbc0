// Adapters: which names open one, what it says of itself, protection tags, names of hosts.
#include <gmock/gmock.h>
#include <netdb.h>

#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

TEST(ViplNic, OpensUnderOldAndNewNames) {
  for (const char* const name : {"viaduct", "/dev/viaduct", "shm", "/dev/via_lo", "/etc/via_lo", "/dev/via_eth0",
                                 "/dev/via_eth12", "/dev/clanvi0", "/dev/clanvi1", "nic0", "nic07", "VINIC"}) {
    VIP_NIC_HANDLE nic = nullptr;
    EXPECT_EQ(VipOpenNic(name, &nic), VIP_SUCCESS) << name;
    VIP_NIC_ATTRIBUTES attributes;
    EXPECT_EQ(VipQueryNic(nic, &attributes), VIP_SUCCESS);
    EXPECT_STREQ(attributes.Name, name);
    EXPECT_EQ(VipCloseNic(nic), VIP_SUCCESS);
    EXPECT_EQ(VipCloseNic(nic), VIP_INVALID_PARAMETER) << "closed already";
  }
}

TEST(ViplNic, RefusesOtherNamesWithOneLine) {
  for (const char* const name : {"", "/dev/null", "nic", "nicx", "/dev/clanvi", "viaduct0", "/dev/via_eth"}) {
    VIP_NIC_HANDLE nic = nullptr;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(VipOpenNic(name, &nic), VIP_INVALID_PARAMETER) << name;
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, ::testing::HasSubstr(std::string("'") + name + "'"));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  }
  VIP_NIC_HANDLE nic = nullptr;
  EXPECT_EQ(VipOpenNic(nullptr, &nic), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipOpenNic("viaduct", nullptr), VIP_INVALID_PARAMETER);
}

TEST(ViplNic, TellsTheTruth) {
  Program program;
  VIP_NIC_ATTRIBUTES attributes;
  ASSERT_EQ(VipQueryNic(program.nic, &attributes), VIP_SUCCESS);
  EXPECT_TRUE(attributes.ThreadSafe);
  EXPECT_GE(attributes.MaxTransferSize, 4u << 20);
  EXPECT_GE(attributes.MaxVI, 2000u);
  EXPECT_GE(attributes.NicAddressLen, 4);
  EXPECT_GE(attributes.MaxDiscriminatorLen, 16);
  EXPECT_GE(attributes.MaxSegmentsPerDesc, 252u);
  EXPECT_EQ(attributes.ReliabilityLevelSupport, 7);
  EXPECT_EQ(attributes.RDMAReadSupport, VIP_SERVICE_RELIABLE_DELIVERY | VIP_SERVICE_RELIABLE_RECEPTION);
  // What it offers it takes, and no more.
  VIP_VI_ATTRIBUTES wanted = program.attributes({.max_transfer = attributes.MaxTransferSize});
  VIP_VI_HANDLE vi = nullptr;
  EXPECT_EQ(VipCreateVi(program.nic, &wanted, nullptr, nullptr, &vi), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyVi(vi), VIP_SUCCESS);
  ++wanted.MaxTransferSize;
  EXPECT_EQ(VipCreateVi(program.nic, &wanted, nullptr, nullptr, &vi), VIP_INVALID_MTU);
  EXPECT_EQ(VipQueryNic(program.nic, nullptr), VIP_INVALID_PARAMETER);
}

TEST(ViplNic, StaysOpenWhileItIsUsed) {
  VIP_NIC_HANDLE nic = nullptr;
  ASSERT_EQ(VipOpenNic("viaduct", &nic), VIP_SUCCESS);
  VIP_VI_ATTRIBUTES attributes{VIP_SERVICE_UNRELIABLE, 4096, nullptr, nullptr, 0, 0};
  VIP_VI_HANDLE vi = nullptr;
  VIP_CQ_HANDLE cq = nullptr;
  ASSERT_EQ(VipCreateVi(nic, &attributes, nullptr, nullptr, &vi), VIP_SUCCESS);
  EXPECT_EQ(VipCloseNic(nic), VIP_ERROR_RESOURCE);
  EXPECT_EQ(VipDestroyVi(vi), VIP_SUCCESS);
  ASSERT_EQ(VipCreateCQ(nic, 4, &cq), VIP_SUCCESS);
  EXPECT_EQ(VipCloseNic(nic), VIP_ERROR_RESOURCE);
  EXPECT_EQ(VipDestroyCQ(cq), VIP_SUCCESS);
  EXPECT_EQ(VipCloseNic(nic), VIP_SUCCESS);
}

TEST(ViplNic, GivesBackEveryDescriptor) {
  const auto connect_and_go = [] {
    Program program;
    const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
    connect_here(program, a, b);
  };
  connect_and_go();  // counters and the like stay
  const int before = viaduct::testing::open_descriptors();
  for (int i = 0; i < 3; ++i) connect_and_go();
  EXPECT_EQ(viaduct::testing::open_descriptors(), before);
}

TEST(ViplNic, TagsInUseCannotBeDestroyed) {
  Program program;
  VIP_PROTECTION_HANDLE tag = nullptr;
  ASSERT_EQ(VipCreatePtag(program.nic, &tag), VIP_SUCCESS);
  EXPECT_NE(tag, program.tag);
  VIP_VI_ATTRIBUTES attributes = program.attributes({});
  attributes.Ptag = tag;
  VIP_VI_HANDLE vi = nullptr;
  ASSERT_EQ(VipCreateVi(program.nic, &attributes, nullptr, nullptr, &vi), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyPtag(program.nic, tag), VIP_ERROR_RESOURCE) << "a VI has it";
  EXPECT_EQ(VipDestroyVi(vi), VIP_SUCCESS);
  VIP_MEM_ATTRIBUTES memory{tag, 0, 0};
  VIP_MEM_HANDLE handle = 0;
  ASSERT_EQ(VipRegisterMem(program.nic, program.data(), 64, &memory, &handle), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyPtag(program.nic, tag), VIP_ERROR_RESOURCE) << "memory has it";
  EXPECT_EQ(VipDeregisterMem(program.nic, program.data(), handle), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyPtag(program.nic, tag), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyPtag(program.nic, tag), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipCreateVi(program.nic, &attributes, nullptr, nullptr, &vi), VIP_INVALID_PTAG);
}

TEST(ViplNic, ATagOfAnotherAdapterIsNoTagHere) {
  Program here, there;
  VIP_VI_ATTRIBUTES attributes = there.attributes({});
  VIP_VI_HANDLE vi = nullptr;
  EXPECT_EQ(VipCreateVi(here.nic, &attributes, nullptr, nullptr, &vi), VIP_INVALID_PTAG);
  EXPECT_EQ(VipDestroyPtag(here.nic, there.tag), VIP_INVALID_PARAMETER);
}

// ---- names

TEST(ViplNames, ThisHostHasOneAddressUnderAllItsNames) {
  Program program;
  VIP_NIC_ATTRIBUTES attributes;
  ASSERT_EQ(VipQueryNic(program.nic, &attributes), VIP_SUCCESS);
  ASSERT_EQ(VipNSInit(program.nic, nullptr), VIP_SUCCESS);
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof host), 0);
  for (std::string name : {std::string("localhost"), std::string(host), std::string("127.0.0.1")}) {
    NetAddress address;
    address.get()->DiscriminatorLen = 3;
    ASSERT_EQ(VipNSGetHostByName(program.nic, name.data(), address.get(), 0), VIP_SUCCESS) << name;
    EXPECT_EQ(address.get()->HostAddressLen, attributes.NicAddressLen);
    EXPECT_EQ(address.get()->DiscriminatorLen, 3) << "the program's own business";
    EXPECT_EQ(std::memcmp(address.bytes(), attributes.LocalNicAddress, attributes.NicAddressLen), 0) << name;
    char back[256] = "";
    VIP_ULONG length = sizeof back;
    EXPECT_EQ(VipNSGetHostByAddr(program.nic, address.get(), back, &length), VIP_SUCCESS);
    EXPECT_STREQ(back, host);
    EXPECT_EQ(length, std::strlen(host) + 1);
  }
  EXPECT_EQ(VipNSShutdown(program.nic), VIP_SUCCESS);
}

TEST(ViplNames, WhatNobodyKnowsIsAnError) {
  Program program;
  NetAddress address;
  char name[] = "no-such-host.invalid";
  EXPECT_EQ(VipNSGetHostByName(program.nic, name, address.get(), 0), VIP_ERROR_NAMESERVICE);
  char local[] = "localhost";
  EXPECT_EQ(VipNSGetHostByName(program.nic, local, address.get(), 99), VIP_ERROR_NAMESERVICE) << "it has not so many";
  ASSERT_EQ(VipNSGetHostByName(program.nic, local, address.get(), 0), VIP_SUCCESS);
  char tiny[2];
  VIP_ULONG length = sizeof tiny;
  EXPECT_EQ(VipNSGetHostByAddr(program.nic, address.get(), tiny, &length), VIP_ERROR_RESOURCE);
  EXPECT_GT(length, sizeof tiny) << "says how much it takes";
  address.get()->HostAddressLen = 3;
  EXPECT_EQ(VipNSGetHostByAddr(program.nic, address.get(), tiny, &length), VIP_INVALID_PARAMETER);
}

TEST(ViplNames, DiscoveryFindsThisHost) {
  Program program;
  NetAddress found;
  VIP_NET_ADDRESS* list[1] = {found.get()};
  VIP_AUTODISCOVERY_LIST request{0, list, 1};
  EXPECT_EQ(VipQuerySystemManagementInfo(program.nic, VIP_SMI_AUTODISCOVERY, &request), VIP_SUCCESS);
  EXPECT_EQ(request.NumAdAddrs, 1u);
  EXPECT_EQ(found.get()->HostAddressLen, 4);
  EXPECT_EQ(VipQuerySystemManagementInfo(program.nic, 99, &request), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipQuerySystemManagementInfo(program.nic, VIP_SMI_AUTODISCOVERY, nullptr), VIP_INVALID_PARAMETER);
}

// ---- fork

TEST(ViplFork, TheParentsHandlesMeanNothingInTheChild) {
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  Child child([&] {
    VIP_NIC_ATTRIBUTES attributes;
    CHILD_EXPECT(VipQueryNic(program.nic, &attributes) == VIP_INVALID_PARAMETER);
    CHILD_EXPECT(VipDestroyVi(vi) == VIP_INVALID_PARAMETER);
    VIP_NIC_HANDLE own = nullptr;
    CHILD_EXPECT(VipOpenNic("viaduct", &own) == VIP_SUCCESS);
    CHILD_EXPECT(VipCloseNic(own) == VIP_SUCCESS);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(program.state(vi), VIP_STATE_IDLE);
}

}  // namespace
}  // namespace viaduct::vipl::testing
