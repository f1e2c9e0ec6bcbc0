// Every way in which an operation fails halfway: which status its descriptor has, which code the error callback is
// told, and that memory which is no longer registered is not touched.
#include <sys/mman.h>

#include <thread>

#include "via/vipl_stranger.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr std::uint32_t kBig = 1 << 20;

// Memory registered apart from the program's own.
class Region {
 public:
  Region(Program& program, std::size_t length, bool rdma = false) : program_(program), length_(length) {
    memory_ =
        static_cast<std::byte*>(::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    VIP_MEM_ATTRIBUTES attributes{program.tag, rdma, rdma};
    if (VipRegisterMem(program.nic, memory_, length, &attributes, &handle) != VIP_SUCCESS) std::abort();
  }
  ~Region() {
    deregister();
    unmap();
  }
  void deregister() {
    if (handle == 0) return;
    EXPECT_EQ(VipDeregisterMem(program_.nic, memory_, handle), VIP_SUCCESS);
    handle = 0;
  }
  void unmap() {
    if (memory_ != nullptr) ::munmap(memory_, length_);
    memory_ = nullptr;
  }
  std::byte* data() const { return memory_; }
  VIP_MEM_HANDLE handle = 0;

 private:
  Program& program_;
  std::size_t length_;
  std::byte* memory_;
};

class ViplErrors : public ::testing::Test {
 protected:
  void connect(const ViOptions& options) {
    errors_.listen(program_.nic);
    a_ = program_.make_vi(options);
    b_ = program_.make_vi(options);
    connect_here(program_, a_, b_);
  }
  // As `index`, but with its data elsewhere.
  VIP_DESCRIPTOR* prepare_in(const Region& region, std::size_t index, std::uint32_t length) {
    VIP_DESCRIPTOR* const descriptor = program_.prepare(index, {{0, length}});
    descriptor->DS[0].Local.Data.Address = region.data();
    descriptor->DS[0].Local.Handle = region.handle;
    return descriptor;
  }
  // In two segments: such a message goes through the ring, in parts.
  VIP_DESCRIPTOR* prepare_two_in(const Region& region, std::size_t index, std::uint32_t length) {
    VIP_DESCRIPTOR* const descriptor = program_.prepare(index, {{0, length / 2}, {length / 2, length - length / 2}});
    for (int i = 0; i < 2; ++i) {
      descriptor->DS[i].Local.Data.Address = region.data() + i * (length / 2);
      descriptor->DS[i].Local.Handle = region.handle;
    }
    return descriptor;
  }
  HangGuard guard_;
  Program program_{2 * std::size_t{kBig}};
  ErrorLog errors_;
  VIP_VI_HANDLE a_ = nullptr, b_ = nullptr;
};

// ---- the descriptor itself is no longer registered

TEST_F(ViplErrors, ACompletionThatCannotBeWrittenIsReported) {
  connect({.level = VIP_SERVICE_UNRELIABLE});
  Region region(program_, 4096);
  auto* const receive = reinterpret_cast<VIP_DESCRIPTOR*>(region.data());
  *receive = *program_.prepare(0, {{0, 64}});
  ASSERT_EQ(VipPostRecv(b_, receive, region.handle), VIP_SUCCESS);
  region.deregister();
  ASSERT_EQ(::mprotect(region.data(), 4096, PROT_NONE), 0) << "whoever touches it dies";
  ASSERT_EQ(program_.post_send(a_, 1, 64, 64), VIP_SUCCESS);
  EXPECT_EQ(received(b_, VIP_DESCRIPTOR_ERROR), receive) << "it comes back all the same";
  ASSERT_EQ(errors_.errors.size(), 1u);
  EXPECT_EQ(errors_.errors[0].ErrorCode, VIP_ERROR_COMP_PROT);
  EXPECT_EQ(errors_.errors[0].DescriptorPtr, receive);
  EXPECT_EQ(errors_.errors[0].ResourceCode, VIP_RESOURCE_DESCRIPTOR);
  EXPECT_EQ(errors_.errors[0].OpCode, unsigned{VIP_STATUS_OP_RECEIVE});
  EXPECT_EQ(program_.state(b_), VIP_STATE_CONNECTED);
}

TEST_F(ViplErrors, AnAcknowledgedSendWhoseDescriptorIsGone) {
  connect({.level = VIP_SERVICE_RELIABLE_RECEPTION});
  Region region(program_, 4096);
  auto* const send = reinterpret_cast<VIP_DESCRIPTOR*>(region.data());
  *send = *program_.prepare(0, {{0, 64}});
  ASSERT_EQ(program_.post_receive(b_, 1, 64, 64), VIP_SUCCESS);
  ASSERT_EQ(VipPostSend(a_, send, region.handle), VIP_SUCCESS);
  region.deregister();
  ASSERT_EQ(::mprotect(region.data(), 4096, PROT_NONE), 0);
  EXPECT_EQ(received(b_), program_.descriptor(1));
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), send);
  EXPECT_TRUE(errors_.has(VIP_ERROR_COMP_PROT));
}

// ---- the peer leaves

// What it had sent before is received first, also by somebody who still has much to send, and no room for it.
TEST_F(ViplErrors, WhatCameBeforeTheEndIsReceived) {
  connect({});
  constexpr std::uint32_t kMessages = 5, kSends = 200;
  for (std::uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(program_.post_receive(a_, i, 4096 * i, 4096), VIP_SUCCESS);
  Region descriptors(program_, kSends * sizeof(VIP_DESCRIPTOR));
  const auto post = [&](std::uint32_t i) {
    auto* const one = reinterpret_cast<VIP_DESCRIPTOR*>(descriptors.data()) + i;
    one->CS.SegCount = 1;
    one->CS.Length = 60'000;
    one->DS[0].Local = {{.Address = program_.data()}, program_.handle, 60'000};
    return VipPostSend(a_, one, descriptors.handle);
  };
  for (std::uint32_t i = 0; i < kSends / 2; ++i) ASSERT_EQ(post(i), VIP_SUCCESS);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(program_.post_send(b_, 50 + i, 4096 * i, 64 + i), VIP_SUCCESS);
    (void)sent(b_);
  }
  ASSERT_EQ(VipDisconnect(b_), VIP_SUCCESS);
  for (std::uint32_t i = kSends / 2; i < kSends; ++i) ASSERT_EQ(post(i), VIP_SUCCESS);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    VIP_DESCRIPTOR* const got = received(a_);
    ASSERT_EQ(got, program_.descriptor(i));
    EXPECT_EQ(got->CS.Length, 64 + i);
  }
  EXPECT_EQ(program_.state(a_), VIP_STATE_ERROR);
  VIP_DESCRIPTOR* done = nullptr;
  while (VipSendDone(a_, &done) == VIP_SUCCESS) continue;  // those that had gone into the ring
  ASSERT_NE(done, nullptr);
  EXPECT_NE(done->CS.Status & VIP_STATUS_ERROR_MASK, 0u);
}

// ---- data that is deregistered while it moves

TEST_F(ViplErrors, ASendDeregisteredHalfwayBreaksTheConnection) {
  connect({.max_transfer = kBig});
  Region region(program_, kBig);
  ASSERT_EQ(program_.post_receive(b_, program_.prepare(1, {{0, 64}, {64, kBig - 64}})), VIP_SUCCESS);
  VIP_DESCRIPTOR* const send = prepare_two_in(region, 0, kBig);
  ASSERT_EQ(program_.post_send(a_, send), VIP_SUCCESS);
  VIP_DESCRIPTOR* none = nullptr;
  ASSERT_EQ(VipRecvDone(b_, &none), VIP_NOT_DONE) << "a part of it has come";
  region.deregister();
  region.unmap();
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), send);
  EXPECT_TRUE(send->CS.Status & VIP_STATUS_PROTECTION_ERROR);
  EXPECT_EQ(program_.state(a_), VIP_STATE_ERROR);
  EXPECT_EQ(received(b_, VIP_DESCRIPTOR_ERROR), program_.descriptor(1));
  EXPECT_TRUE(program_.descriptor(1)->CS.Status & VIP_STATUS_PARTIAL_ERROR);
}

TEST_F(ViplErrors, AReceiveDeregisteredHalfwayIsNotWrittenTo) {
  for (const VIP_RELIABILITY_LEVEL level : {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY}) {
    connect({.level = level, .max_transfer = kBig});
    Region region(program_, kBig);
    VIP_DESCRIPTOR* const receive = prepare_two_in(region, 0, kBig);
    ASSERT_EQ(program_.post_receive(b_, receive), VIP_SUCCESS);
    ASSERT_EQ(program_.post_send(a_, program_.prepare(1, {{0, 64}, {64, kBig - 64}})), VIP_SUCCESS);
    VIP_DESCRIPTOR* none = nullptr;
    ASSERT_EQ(VipRecvDone(b_, &none), VIP_NOT_DONE);
    region.deregister();
    region.unmap();
    VIP_RETURN result;
    while ((result = VipRecvDone(b_, &none)) == VIP_NOT_DONE) (void)program_.state(a_);
    EXPECT_EQ(result, VIP_DESCRIPTOR_ERROR);
    EXPECT_EQ(none, receive);
    EXPECT_TRUE(receive->CS.Status & VIP_STATUS_PROTECTION_ERROR);
    EXPECT_EQ(program_.state(b_), level == VIP_SERVICE_UNRELIABLE ? VIP_STATE_CONNECTED : VIP_STATE_ERROR);
  }
}

// ---- RDMA

// What is registered may be unmapped by its program: permitted, and yet impossible.
TEST_F(ViplErrors, RdmaIntoMemoryThatIsNotThere) {
  for (const VIP_UINT16 operation : {VIP_CONTROL_OP_RDMAWRITE, VIP_CONTROL_OP_RDMAREAD}) {
    connect({.rdma_write = true, .rdma_read = true});
    Region region(program_, 8192, true);
    const auto address = reinterpret_cast<std::uint64_t>(region.data());
    region.unmap();
    VIP_DESCRIPTOR* const rdma = program_.prepare_rdma(0, operation, address, region.handle, {{0, 64}});
    ASSERT_EQ(program_.post_send(a_, rdma), VIP_SUCCESS);
    EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), rdma);
    const unsigned op = operation == VIP_CONTROL_OP_RDMAWRITE ? VIP_STATUS_OP_RDMA_WRITE : VIP_STATUS_OP_RDMA_READ;
    EXPECT_EQ(rdma->CS.Status, VIP_STATUS_DONE | VIP_STATUS_TRANSPORT_ERROR | op);
    EXPECT_EQ(program_.state(a_), VIP_STATE_ERROR);
    EXPECT_EQ(program_.state(b_), VIP_STATE_ERROR);
    ASSERT_EQ(errors_.errors.size(), 2u) << "both are told";
    for (const VIP_ERROR_DESCRIPTOR& error : errors_.errors) EXPECT_EQ(error.ErrorCode, VIP_ERROR_RDMA_TRANSPORT);
    errors_.errors.clear();
    VIP_MEM_HANDLE handle = std::exchange(region.handle, 0);
    EXPECT_EQ(VipDeregisterMem(program_.nic, reinterpret_cast<void*>(address), handle), VIP_SUCCESS);
  }
}

// ---- peers that stop in the middle

class ViplErrorsOfPeers : public ViplErrors {
 protected:
  void meet(VIP_RELIABILITY_LEVEL level) {
    errors_.listen(program_.nic);
    stranger_ = std::make_unique<Stranger>(level);
    stranger_->offer(reinterpret_cast<std::uint64_t>(remote_), sizeof remote_, &remote_handle_);
    a_ = program_.make_vi({.level = level, .rdma_write = true, .rdma_read = level != VIP_SERVICE_UNRELIABLE});
    for (std::size_t i = 0; i < 2; ++i) ASSERT_EQ(program_.post_receive(a_, i, 1000 * i, 1000), VIP_SUCCESS);
    const std::string name = own_name("errors") + std::to_string(++number_);
    std::thread connecting([&] { EXPECT_TRUE(stranger_->connect(program_, name)); });
    EXPECT_EQ(program_.serve(name, a_), VIP_SUCCESS);
    connecting.join();
  }
  WriteHeader write_of(std::uint32_t length) const {
    return {reinterpret_cast<std::uint64_t>(program_.data(8192)), program_.handle, length, 0, 0};
  }
  // What the program under test said, message by message; 0: nothing.
  std::uint32_t heard() {
    via::Fragment fragment;
    if (stranger_->channel().peek(fragment) != via::Got::fragment) return 0;
    const std::uint32_t word = fragment.immediate;
    stranger_->channel().consume();
    return word;
  }

  std::unique_ptr<Stranger> stranger_;
  std::byte remote_[4096] = {};
  VIP_MEM_HANDLE remote_handle_ = 0;
  int number_ = 0;
};

TEST_F(ViplErrorsOfPeers, AnRdmaWriteThatEndsEarlyIsAborted) {
  meet(VIP_SERVICE_RELIABLE_DELIVERY);
  ASSERT_TRUE(stranger_->say(kWrite, write_of(1000), 100, true));
  EXPECT_EQ(program_.state(a_), VIP_STATE_CONNECTED);
  stranger_->hang_up();
  EXPECT_EQ(program_.state(a_), VIP_STATE_ERROR);
  ASSERT_EQ(errors_.errors.size(), 1u);
  EXPECT_EQ(errors_.errors[0].ErrorCode, VIP_ERROR_RDMAW_ABORT);
}

TEST_F(ViplErrorsOfPeers, AnRdmaWriteThatIsGarbledIsADataError) {
  meet(VIP_SERVICE_RELIABLE_DELIVERY);
  ASSERT_TRUE(stranger_->say(kWrite, write_of(1000), 100, false));
  EXPECT_EQ(program_.state(a_), VIP_STATE_ERROR);
  ASSERT_EQ(errors_.errors.size(), 1u);
  EXPECT_EQ(errors_.errors[0].ErrorCode, VIP_ERROR_RDMAW_DATA);
}

TEST_F(ViplErrorsOfPeers, AMessageThatEndsEarlyIsPartial) {
  meet(VIP_SERVICE_RELIABLE_DELIVERY);
  ASSERT_TRUE(stranger_->say(kLongSend, LongHeader{1000, 0}, 100, true));
  EXPECT_EQ(program_.state(a_), VIP_STATE_CONNECTED);
  stranger_->hang_up();
  EXPECT_EQ(received(a_, VIP_DESCRIPTOR_ERROR), program_.descriptor(0));
  EXPECT_EQ(program_.descriptor(0)->CS.Status & VIP_STATUS_ERROR_MASK,
            unsigned{VIP_STATUS_PARTIAL_ERROR | VIP_STATUS_DESC_FLUSHED_ERROR});
  EXPECT_EQ(received(a_, VIP_DESCRIPTOR_ERROR), program_.descriptor(1));
  EXPECT_EQ(program_.descriptor(1)->CS.Status & VIP_STATUS_ERROR_MASK, unsigned{VIP_STATUS_DESC_FLUSHED_ERROR});
}

TEST_F(ViplErrorsOfPeers, WhatWasNotAcknowledgedMayOrMayNotHaveArrived) {
  meet(VIP_SERVICE_RELIABLE_RECEPTION);
  ASSERT_EQ(program_.post_send(a_, 4, 0, 64), VIP_SUCCESS);
  stranger_->hang_up();
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), program_.descriptor(4));
  EXPECT_EQ(program_.descriptor(4)->CS.Status, unsigned{VIP_STATUS_DONE | VIP_STATUS_TRANSPORT_ERROR});
  ASSERT_EQ(program_.post_send(a_, 5, 0, 64), VIP_SUCCESS);
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), program_.descriptor(5));
  EXPECT_EQ(program_.descriptor(5)->CS.Status, unsigned{VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR});
}

// An RDMA read by message whose local memory goes away between two fragments of the reply.
TEST_F(ViplErrorsOfPeers, AReadDeregisteredHalfwayIsNotWrittenTo) {
  meet(VIP_SERVICE_RELIABLE_DELIVERY);
  Region region(program_, 4096);
  VIP_DESCRIPTOR* const read = program_.prepare_rdma(
      4, VIP_CONTROL_OP_RDMAREAD, reinterpret_cast<std::uint64_t>(remote_), remote_handle_, {{0, 4096}});
  read->DS[1].Local.Data.Address = region.data();
  read->DS[1].Local.Handle = region.handle;
  ASSERT_EQ(program_.post_send(a_, read), VIP_SUCCESS);
  ASSERT_EQ(heard(), kRead) << "there is no other way into a stranger's memory";
  ASSERT_TRUE(stranger_->say(kReadReply, ReplyHeader{4096, 0}, 1000, true));
  VIP_DESCRIPTOR* none = nullptr;
  ASSERT_EQ(VipSendDone(a_, &none), VIP_NOT_DONE);
  region.deregister();
  region.unmap();
  ASSERT_TRUE(stranger_->say(kReadReply, std::vector<std::byte>(3096)));
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), read);
  EXPECT_EQ(read->CS.Status, unsigned{VIP_STATUS_DONE | VIP_STATUS_PROTECTION_ERROR | VIP_STATUS_OP_RDMA_READ});
  EXPECT_EQ(program_.state(a_), VIP_STATE_ERROR);
}

// A refusal is blamed on the operation it is about, not on a send that is merely not acknowledged yet.
TEST_F(ViplErrorsOfPeers, ARefusedReadIsTheOneBlamed) {
  meet(VIP_SERVICE_RELIABLE_RECEPTION);
  ASSERT_EQ(program_.post_send(a_, 4, 0, 64), VIP_SUCCESS);
  VIP_DESCRIPTOR* const read = program_.prepare_rdma(
      5, VIP_CONTROL_OP_RDMAREAD, reinterpret_cast<std::uint64_t>(remote_), remote_handle_, {{0, 64}});
  ASSERT_EQ(program_.post_send(a_, read), VIP_SUCCESS);
  ASSERT_EQ(heard(), kSend);
  ASSERT_EQ(heard(), kRead);
  ASSERT_TRUE(stranger_->say(kPlaced, PlacedHeader{1}));
  ASSERT_TRUE(stranger_->say(kBroken, BrokenHeader{VIP_ERROR_RDMAR_PROT, 0}));
  EXPECT_EQ(sent(a_), program_.descriptor(4));
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), read);
  EXPECT_EQ(read->CS.Status, unsigned{VIP_STATUS_DONE | VIP_STATUS_RDMA_PROT_ERROR | VIP_STATUS_OP_RDMA_READ});
  ASSERT_EQ(errors_.errors.size(), 1u);
  EXPECT_EQ(errors_.errors[0].ErrorCode, VIP_ERROR_RDMAR_PROT);
}

// The acknowledgement of what was placed goes before the bad news, also where one look finds both.
TEST_F(ViplErrors, OnlyTheMessageThatFoundNoDescriptorIsBlamed) {
  errors_.listen(program_.nic);
  const VIP_CQ_HANDLE cq = program_.make_cq();
  a_ = program_.make_vi({.level = VIP_SERVICE_RELIABLE_RECEPTION});
  b_ = program_.make_vi({.level = VIP_SERVICE_RELIABLE_RECEPTION, .receive_cq = cq});
  connect_here(program_, a_, b_);
  ASSERT_EQ(program_.post_receive(b_, 0, 100, 8), VIP_SUCCESS);
  for (std::size_t i = 1; i <= 2; ++i) ASSERT_EQ(program_.post_send(a_, i, 0, 8), VIP_SUCCESS);
  VIP_VI_HANDLE which = nullptr;
  VIP_BOOLEAN receive = -1;
  while (VipCQDone(cq, &which, &receive) != VIP_SUCCESS) {
  }
  EXPECT_EQ(program_.state(b_), VIP_STATE_ERROR);
  EXPECT_EQ(sent(a_), program_.descriptor(1));
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), program_.descriptor(2));
  EXPECT_TRUE(program_.descriptor(2)->CS.Status & VIP_STATUS_REMOTE_DESC_ERROR);
}

// ---- completion queues that are too small

TEST_F(ViplErrors, ACompletionQueueThatOverflowsGrowsAndIsCounted) {
  const VIP_CQ_HANDLE cq = program_.make_cq(2);
  a_ = program_.make_vi({.send_cq = cq});
  b_ = program_.make_vi();
  connect_here(program_, a_, b_);
  const std::uint64_t before = counter("via.cq_overflows").get();
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_EQ(program_.post_receive(b_, i, 0, 8), VIP_SUCCESS);
    ASSERT_EQ(program_.post_send(a_, 10 + i, 0, 8), VIP_SUCCESS);
  }
  EXPECT_GT(counter("via.cq_overflows").get(), before);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(sent(a_), program_.descriptor(10 + i));
}

}  // namespace
}  // namespace viaduct::vipl::testing
