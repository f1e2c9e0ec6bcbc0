// Registered memory: handles, tags, bounds; what every post is checked against.
#include <algorithm>
#include <utility>

#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

TEST(ViplMemory, RegistersAnythingAndSaysWhatItHas) {
  Program program;
  std::vector<char> heap(10'000);
  char stack[100];
  static const char constant[] = "read-only memory can be sent from";
  for (const auto& [address, length] : std::initializer_list<std::pair<const void*, std::size_t>>{
           {heap.data(), heap.size()}, {heap.data() + 1, 1}, {stack, sizeof stack}, {constant, sizeof constant}}) {
    VIP_MEM_ATTRIBUTES attributes{program.tag, 1, 0};
    VIP_MEM_HANDLE handle = 0;
    void* const memory = const_cast<void*>(address);
    ASSERT_EQ(VipRegisterMem(program.nic, memory, length, &attributes, &handle), VIP_SUCCESS);
    EXPECT_NE(handle, 0u);
    VIP_MEM_ATTRIBUTES said{};
    EXPECT_EQ(VipQueryMem(program.nic, memory, handle, &said), VIP_SUCCESS);
    EXPECT_EQ(said.Ptag, program.tag);
    EXPECT_TRUE(said.EnableRdmaWrite);
    EXPECT_FALSE(said.EnableRdmaRead);
    EXPECT_EQ(VipDeregisterMem(program.nic, memory, handle), VIP_SUCCESS);
    EXPECT_EQ(VipDeregisterMem(program.nic, memory, handle), VIP_INVALID_PARAMETER);
    EXPECT_EQ(VipQueryMem(program.nic, memory, handle, &said), VIP_INVALID_PARAMETER);
  }
}

TEST(ViplMemory, RefusesWhatMakesNoSense) {
  Program program;
  VIP_MEM_ATTRIBUTES attributes{program.tag, 0, 0};
  VIP_MEM_HANDLE handle = 0;
  EXPECT_EQ(VipRegisterMem(program.nic, nullptr, 8, &attributes, &handle), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipRegisterMem(program.nic, &handle, 0, &attributes, &handle), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipRegisterMem(program.nic, &handle, 8, nullptr, &handle), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipRegisterMem(program.nic, &handle, 8, &attributes, nullptr), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipRegisterMem(program.nic, &handle, ~0ul, &attributes, &handle), VIP_INVALID_PARAMETER) << "it wraps";
  attributes.Ptag = &handle;
  EXPECT_EQ(VipRegisterMem(program.nic, &handle, 8, &attributes, &handle), VIP_INVALID_PTAG);
  VIP_MEM_ATTRIBUTES said;
  EXPECT_EQ(VipQueryMem(program.nic, program.data(), program.handle, &said), VIP_INVALID_PARAMETER) << "not its start";
  for (const VIP_MEM_HANDLE wild : {0u, 1u, ~0u, program.handle + 0x10000, program.handle + 1})
    EXPECT_EQ(VipDeregisterMem(program.nic, program.descriptor(0), wild), VIP_INVALID_PARAMETER);
}

TEST(ViplMemory, AttributesCanBeChanged) {
  Program program;
  VIP_PROTECTION_HANDLE other = nullptr;
  ASSERT_EQ(VipCreatePtag(program.nic, &other), VIP_SUCCESS);
  int memory = 0;
  VIP_MEM_ATTRIBUTES attributes{program.tag, 0, 0}, said{};
  VIP_MEM_HANDLE handle = 0;
  ASSERT_EQ(VipRegisterMem(program.nic, &memory, sizeof memory, &attributes, &handle), VIP_SUCCESS);
  attributes = {other, 1, 1};
  EXPECT_EQ(VipSetMemAttributes(program.nic, &memory, handle, &attributes), VIP_SUCCESS);
  EXPECT_EQ(VipQueryMem(program.nic, &memory, handle, &said), VIP_SUCCESS);
  EXPECT_EQ(said.Ptag, other);
  EXPECT_TRUE(said.EnableRdmaWrite && said.EnableRdmaRead);
  attributes.Ptag = &memory;
  EXPECT_EQ(VipSetMemAttributes(program.nic, &memory, handle, &attributes), VIP_INVALID_PTAG);
  EXPECT_EQ(VipSetMemAttributes(program.nic, &memory, handle, nullptr), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipSetMemAttributes(program.nic, &memory, handle + 1, &attributes), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipDeregisterMem(program.nic, &memory, handle), VIP_SUCCESS);
}

TEST(ViplMemory, ManyRegionsAndHandlesThatAreNotReusedAtOnce) {
  Program program;
  std::vector<char> memory(20'000);
  std::vector<VIP_MEM_HANDLE> handles(memory.size());
  VIP_MEM_ATTRIBUTES attributes{program.tag, 0, 0};
  for (std::size_t i = 0; i < memory.size(); ++i)
    ASSERT_EQ(VipRegisterMem(program.nic, &memory[i], 1, &attributes, &handles[i]), VIP_SUCCESS);
  const VIP_MEM_HANDLE old = handles[7];
  ASSERT_EQ(VipDeregisterMem(program.nic, &memory[7], old), VIP_SUCCESS);
  ASSERT_EQ(VipRegisterMem(program.nic, &memory[7], 1, &attributes, &handles[7]), VIP_SUCCESS);
  EXPECT_NE(handles[7], old);
  EXPECT_EQ(VipDeregisterMem(program.nic, &memory[7], old), VIP_INVALID_PARAMETER);
  for (std::size_t i = 0; i < memory.size(); ++i)
    ASSERT_EQ(VipDeregisterMem(program.nic, &memory[i], handles[i]), VIP_SUCCESS);
}

// ---- the check of every post

class ViplPostCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    connect_here(program_, a_, b_);
    errors_.listen(program_.nic);
  }
  // Posts on a send or a receive queue and says with which status it came back.
  VIP_UINT32 status_of(VIP_DESCRIPTOR* descriptor, bool receive = false) {
    EXPECT_EQ(receive ? program_.post_receive(a_, descriptor) : program_.post_send(a_, descriptor), VIP_SUCCESS);
    VIP_DESCRIPTOR* back = nullptr;
    EXPECT_EQ(receive ? VipRecvDone(a_, &back) : VipSendDone(a_, &back), VIP_DESCRIPTOR_ERROR);
    EXPECT_EQ(back, descriptor);
    EXPECT_TRUE(descriptor->CS.Status & VIP_STATUS_DONE);
    return descriptor->CS.Status & VIP_STATUS_ERROR_MASK;
  }

  Program program_;
  // Unreliable: an error concerns the descriptor and not the connection.
  VIP_VI_HANDLE a_ = program_.make_vi({.level = VIP_SERVICE_UNRELIABLE});
  VIP_VI_HANDLE b_ = program_.make_vi({.level = VIP_SERVICE_UNRELIABLE});
  ErrorLog errors_;
};

// Old programs register what they use of a buffer, and post receives as long as the longest message there could be.
TEST_F(ViplPostCheck, AReceiveMayReachPastItsRegistration) {
  constexpr std::uint32_t kInside = 100'000, kPosted = 150'000;
  VIP_MEM_ATTRIBUTES attributes{program_.tag, 0, 0};
  VIP_MEM_HANDLE handle = 0;
  std::byte* const target = program_.data(500'000);
  ASSERT_EQ(VipRegisterMem(program_.nic, target, kInside, &attributes, &handle), VIP_SUCCESS);
  for (const VIP_RELIABILITY_LEVEL level :
       {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION})
    for (const int segments : {1, 2}) {
      const VIP_VI_HANDLE from = program_.make_vi({.level = level, .max_transfer = kPosted});
      const VIP_VI_HANDLE to = program_.make_vi({.level = level, .max_transfer = kPosted});
      connect_here(program_, from, to);
      std::memset(target, 0, kPosted);
      for (const std::uint32_t length : {std::uint32_t{16}, kInside, kInside + 1}) {
        VIP_DESCRIPTOR* const receive = segments == 1 ? program_.prepare(0, {{500'000, kPosted}})
                                                      : program_.prepare(0, {{500'000, 64}, {500'064, kPosted - 64}});
        for (int i = 0; i < segments; ++i) receive->DS[i].Local.Handle = handle;
        ASSERT_EQ(program_.post_receive(to, receive), VIP_SUCCESS);
        fill(program_.data(), length, length);
        ASSERT_EQ(program_.post_send(from, 1, 0, length), VIP_SUCCESS);
        const bool fits = length <= kInside;
        EXPECT_EQ(received(to, fits ? VIP_SUCCESS : VIP_DESCRIPTOR_ERROR), receive) << length;
        EXPECT_EQ(receive->CS.Status & VIP_STATUS_ERROR_MASK, unsigned{fits ? 0u : VIP_STATUS_PROTECTION_ERROR});
        if (!fits) break;
        EXPECT_EQ(receive->CS.Length, length);
        EXPECT_TRUE(filled(target, length, length));
        EXPECT_EQ(sent(from), program_.descriptor(1));
      }
      EXPECT_TRUE(std::all_of(target + kInside, target + kPosted, [](std::byte one) { return one == std::byte{0}; }));
      EXPECT_EQ(program_.state(to), level == VIP_SERVICE_UNRELIABLE ? VIP_STATE_CONNECTED : VIP_STATE_ERROR);
    }
  for (const VIP_VI_HANDLE vi : program_.vis()) (void)VipDisconnect(vi);
  EXPECT_EQ(VipDeregisterMem(program_.nic, target, handle), VIP_SUCCESS);
}

TEST_F(ViplPostCheck, DataOutsideItsRegistrationIsAProtectionError) {
  for (const bool receive : {false, true}) {
    VIP_DESCRIPTOR* const descriptor = program_.prepare(0, {{0, 16}});
    const VIP_DATA_SEGMENT good = descriptor->DS[0].Local;
    VIP_DATA_SEGMENT& segment = descriptor->DS[0].Local;
    segment.Handle = program_.handle + 1;
    EXPECT_EQ(status_of(descriptor, receive), VIP_STATUS_PROTECTION_ERROR) << "no such handle";
    segment = good;
    segment.Handle = 0;
    EXPECT_EQ(status_of(descriptor, receive), VIP_STATUS_PROTECTION_ERROR);
    segment = good;
    segment.Data.AddressBits = 8;
    EXPECT_EQ(status_of(descriptor, receive), VIP_STATUS_PROTECTION_ERROR) << "below";
    segment.Data.Address = program_.data((1 << 20) + 4096 - (receive ? 0 : 8));
    EXPECT_EQ(status_of(descriptor, receive), VIP_STATUS_PROTECTION_ERROR) << "over the end";
    segment.Data.AddressBits = ~0ull - 4;
    EXPECT_EQ(status_of(descriptor, receive), VIP_STATUS_PROTECTION_ERROR) << "it wraps";
  }
  EXPECT_EQ(program_.state(a_), VIP_STATE_CONNECTED);
}

TEST_F(ViplPostCheck, DataOfAnotherTagIsAProtectionError) {
  VIP_PROTECTION_HANDLE other = nullptr;
  ASSERT_EQ(VipCreatePtag(program_.nic, &other), VIP_SUCCESS);
  VIP_MEM_ATTRIBUTES attributes{other, 0, 0};
  VIP_MEM_HANDLE handle = 0;
  ASSERT_EQ(VipRegisterMem(program_.nic, program_.data(), 4096, &attributes, &handle), VIP_SUCCESS);
  VIP_DESCRIPTOR* const descriptor = program_.prepare(0, {{0, 16}});
  descriptor->DS[0].Local.Handle = handle;
  EXPECT_EQ(status_of(descriptor), VIP_STATUS_PROTECTION_ERROR);
  attributes.Ptag = program_.tag;
  ASSERT_EQ(VipSetMemAttributes(program_.nic, program_.data(), handle, &attributes), VIP_SUCCESS);
  ASSERT_EQ(program_.post_receive(b_, 1, 64, 64), VIP_SUCCESS);
  ASSERT_EQ(program_.post_send(a_, descriptor), VIP_SUCCESS);
  EXPECT_EQ(sent(a_), descriptor) << "the tags match now";
  EXPECT_EQ(VipDeregisterMem(program_.nic, program_.data(), handle), VIP_SUCCESS);
}

// A VI with a null tag asks for no protection, for the program itself and for RDMA of its peer.
TEST_F(ViplPostCheck, AViWithoutATagMayUseMemoryOfEveryTag) {
  const VIP_PROTECTION_HANDLE tag = std::exchange(program_.tag, nullptr);
  const ViOptions options{.rdma_write = true, .rdma_read = true};
  const VIP_VI_HANDLE from = program_.make_vi(options), to = program_.make_vi(options);
  program_.tag = tag;
  connect_here(program_, from, to);
  for (const std::uint32_t length : {8u, 20'000u}) {
    fill(program_.data(32'768), length, length);
    ASSERT_EQ(program_.post_receive(to, 0, 0, length), VIP_SUCCESS);
    ASSERT_EQ(program_.post_send(from, 1, 32'768, length), VIP_SUCCESS);
    EXPECT_EQ(received(to), program_.descriptor(0));
    EXPECT_EQ(sent(from), program_.descriptor(1));
    EXPECT_TRUE(filled(program_.data(), length, length));
  }
  for (const VIP_UINT16 operation : {VIP_CONTROL_OP_RDMAWRITE, VIP_CONTROL_OP_RDMAREAD}) {
    VIP_DESCRIPTOR* const rdma = program_.prepare_rdma(2, operation, reinterpret_cast<std::uint64_t>(program_.data()),
                                                       program_.handle, {{32'768, 64}});
    ASSERT_EQ(program_.post_send(from, rdma), VIP_SUCCESS);
    EXPECT_EQ(sent(from), rdma);
  }
}

// On a reliable VI too, and before its turn as well as when it is posted.
TEST_F(ViplPostCheck, ABadReceiveTakesNoMessageAndTheConnectionStays) {
  const VIP_VI_HANDLE from = program_.make_vi(), to = program_.make_vi();
  connect_here(program_, from, to);
  for (const std::size_t index : {0u, 1u, 2u}) {
    VIP_DESCRIPTOR* const receive = program_.prepare(index, {{64 * index, 64}});
    if (index != 1) receive->DS[0].Local.Handle = 0;
    ASSERT_EQ(program_.post_receive(to, receive), VIP_SUCCESS);
  }
  EXPECT_EQ(received(to, VIP_DESCRIPTOR_ERROR), program_.descriptor(0));
  ASSERT_EQ(program_.post_send(from, 10, 4096, 64), VIP_SUCCESS);
  EXPECT_EQ(received(to), program_.descriptor(1));
  EXPECT_EQ(received(to, VIP_DESCRIPTOR_ERROR), program_.descriptor(2));
  EXPECT_EQ(sent(from), program_.descriptor(10));
  EXPECT_EQ(program_.state(to), VIP_STATE_CONNECTED);
}

TEST_F(ViplPostCheck, FormatAndLengthErrors) {
  EXPECT_EQ(status_of(program_.prepare(0, {{0, 16}}, VIP_CONTROL_OP_RESERVED)), VIP_STATUS_FORMAT_ERROR);
  EXPECT_EQ(status_of(program_.prepare(0, {{0, 16}}, 0x10)), VIP_STATUS_FORMAT_ERROR) << "a reserved bit";
  EXPECT_EQ(status_of(program_.prepare(0, {{0, 16}}, VIP_CONTROL_OP_RDMAREAD)), VIP_STATUS_FORMAT_ERROR)
      << "not on an unreliable VI";
  EXPECT_EQ(status_of(program_.prepare(0, {{0, 16}}, VIP_CONTROL_OP_RDMAWRITE), true), VIP_STATUS_FORMAT_ERROR)
      << "nobody receives by RDMA";
  VIP_DESCRIPTOR* descriptor = program_.prepare(0, {{0, 16}}, VIP_CONTROL_OP_RDMAWRITE);
  descriptor->CS.SegCount = 0;
  EXPECT_EQ(status_of(descriptor), VIP_STATUS_FORMAT_ERROR) << "no address segment";
  descriptor = program_.prepare(0, {{0, 16}});
  descriptor->CS.SegCount = 253;
  EXPECT_EQ(status_of(descriptor), VIP_STATUS_FORMAT_ERROR) << "more segments than offered";
  descriptor = program_.prepare(0, {{0, 16}});
  descriptor->CS.Length = 15;
  EXPECT_EQ(status_of(descriptor), VIP_STATUS_LENGTH_ERROR) << "not the sum of its segments";
  EXPECT_EQ(status_of(program_.prepare(0, {{0, 65537}})), VIP_STATUS_LENGTH_ERROR) << "longer than the VI's transfers";
}

TEST_F(ViplPostCheck, ADescriptorThatCannotBeReadIsReportedAsynchronously) {
  VIP_DESCRIPTOR* const good = program_.prepare(0, {{0, 16}});
  EXPECT_EQ(VipPostSend(a_, good, program_.handle + 1), VIP_DESCRIPTOR_ERROR) << "no such handle";
  EXPECT_EQ(VipPostSend(a_, reinterpret_cast<VIP_DESCRIPTOR*>(64), program_.handle), VIP_DESCRIPTOR_ERROR);
  EXPECT_EQ(VipPostRecv(a_, reinterpret_cast<VIP_DESCRIPTOR*>(reinterpret_cast<char*>(good) + 8), program_.handle),
            VIP_DESCRIPTOR_ERROR)
      << "not aligned";
  EXPECT_EQ(VipPostSend(a_, nullptr, program_.handle), VIP_INVALID_PARAMETER);
  ASSERT_EQ(errors_.errors.size(), 3u);
  for (const VIP_ERROR_DESCRIPTOR& error : errors_.errors) {
    EXPECT_EQ(error.ErrorCode, VIP_ERROR_POST_DESC);
    EXPECT_EQ(error.ResourceCode, VIP_RESOURCE_DESCRIPTOR);
    EXPECT_EQ(error.NicHandle, program_.nic);
    EXPECT_EQ(error.ViHandle, a_);
  }
  EXPECT_EQ(errors_.errors[0].DescriptorPtr, good);
}

TEST_F(ViplPostCheck, MemoryDeregisteredWhilePostedIsNotTouched) {
  std::vector<std::byte> memory(4096);
  VIP_MEM_ATTRIBUTES attributes{program_.tag, 0, 0};
  VIP_MEM_HANDLE handle = 0;
  ASSERT_EQ(VipRegisterMem(program_.nic, memory.data(), memory.size(), &attributes, &handle), VIP_SUCCESS);
  VIP_DESCRIPTOR* const receive = program_.prepare(1, {{0, 64}});
  receive->DS[0].Local.Data.Address = memory.data();
  receive->DS[0].Local.Handle = handle;
  ASSERT_EQ(program_.post_receive(b_, receive), VIP_SUCCESS);
  ASSERT_EQ(VipDeregisterMem(program_.nic, memory.data(), handle), VIP_SUCCESS);
  fill(program_.data(), 64, 1);
  ASSERT_EQ(program_.post_send(a_, 0, 0, 64), VIP_SUCCESS);
  EXPECT_EQ(received(b_, VIP_DESCRIPTOR_ERROR), receive);
  EXPECT_EQ(receive->CS.Status & VIP_STATUS_ERROR_MASK, unsigned{VIP_STATUS_PROTECTION_ERROR});
  EXPECT_EQ(memory, std::vector<std::byte>(4096));
}

TEST_F(ViplPostCheck, TooManyDescriptorsAreAnOverrun) {
  VIP_NIC_ATTRIBUTES attributes;
  ASSERT_EQ(VipQueryNic(program_.nic, &attributes), VIP_SUCCESS);
  VIP_DESCRIPTOR* const receive = program_.prepare(0, {{0, 16}});
  for (VIP_ULONG i = 0; i < attributes.MaxDescriptorsPerQueue; ++i)
    ASSERT_EQ(program_.post_receive(a_, receive), VIP_SUCCESS);
  EXPECT_EQ(program_.post_receive(a_, receive), VIP_ERROR_RESOURCE);
  EXPECT_TRUE(errors_.has(VIP_ERROR_VI_OVERRUN));
}

}  // namespace
}  // namespace viaduct::vipl::testing
