// Completion queues: many work queues, one place to ask.
#include <chrono>
#include <set>
#include <thread>

#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

TEST(ViplCq, MakingResizingDestroying) {
  Program program;
  VIP_CQ_HANDLE cq = nullptr;
  VIP_NIC_ATTRIBUTES attributes;
  ASSERT_EQ(VipQueryNic(program.nic, &attributes), VIP_SUCCESS);
  EXPECT_EQ(VipCreateCQ(program.nic, 0, &cq), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipCreateCQ(program.nic, 4, nullptr), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipCreateCQ(program.nic, attributes.MaxCQEntries + 1, &cq), VIP_ERROR_RESOURCE);
  ASSERT_EQ(VipCreateCQ(program.nic, 4, &cq), VIP_SUCCESS);
  EXPECT_EQ(VipResizeCQ(cq, 0), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipResizeCQ(cq, attributes.MaxCQEntries + 1), VIP_ERROR_RESOURCE);
  EXPECT_EQ(VipResizeCQ(cq, 1000), VIP_SUCCESS);
  VIP_VI_ATTRIBUTES vi_attributes = program.attributes({});
  VIP_VI_HANDLE vi = nullptr;
  ASSERT_EQ(VipCreateVi(program.nic, &vi_attributes, cq, cq, &vi), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyCQ(cq), VIP_ERROR_RESOURCE) << "work queues use it";
  EXPECT_EQ(VipDestroyVi(vi), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyCQ(cq), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyCQ(cq), VIP_INVALID_PARAMETER);
}

class ViplCqPair : public ::testing::Test {
 protected:
  HangGuard guard_;
  Program program_;
  VIP_CQ_HANDLE cq_ = program_.make_cq(4);
  VIP_VI_HANDLE a_ = program_.make_vi({.send_cq = cq_, .receive_cq = cq_});
  VIP_VI_HANDLE b_ = program_.make_vi({.receive_cq = cq_});
  VIP_VI_HANDLE vi_ = nullptr;
  VIP_BOOLEAN receive_ = -1;
};

TEST_F(ViplCqPair, NamesTheQueueAndTheDescriptorIsFoundThere) {
  connect_here(program_, a_, b_);
  EXPECT_EQ(VipCQDone(cq_, &vi_, &receive_), VIP_NOT_DONE);
  ASSERT_EQ(program_.post_receive(b_, 0, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(VipCQDone(cq_, &vi_, &receive_), VIP_NOT_DONE);
  ASSERT_EQ(program_.post_send(a_, 1, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(VipCQDone(cq_, &vi_, &receive_), VIP_SUCCESS);
  EXPECT_EQ(vi_, a_);
  EXPECT_EQ(receive_, VIP_FALSE);
  EXPECT_EQ(sent(a_), program_.descriptor(1));
  ASSERT_EQ(VipCQWait(cq_, kSoon, &vi_, &receive_), VIP_SUCCESS);
  EXPECT_EQ(vi_, b_);
  EXPECT_EQ(receive_, VIP_TRUE);
  EXPECT_EQ(received(b_), program_.descriptor(0));
  EXPECT_EQ(VipCQDone(cq_, &vi_, &receive_), VIP_NOT_DONE);
  EXPECT_EQ(VipCQDone(cq_, nullptr, &receive_), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipCQWait(cq_, 1, &vi_, nullptr), VIP_INVALID_PARAMETER);
}

TEST_F(ViplCqPair, WaitingTimesOutNotEarly) {
  connect_here(program_, a_, b_);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(VipCQWait(cq_, 30, &vi_, &receive_), VIP_TIMEOUT);
  const double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(took, 30);
  EXPECT_LT(took, kSanitized ? 2000 : 150);
  EXPECT_EQ(VipCQWait(cq_, 0, &vi_, &receive_), VIP_TIMEOUT);
}

TEST_F(ViplCqPair, EntriesBeyondItsSizeAreKept) {
  connect_here(program_, a_, b_);
  for (std::size_t i = 0; i < 20; ++i) ASSERT_EQ(program_.post_receive(b_, i, 0, 8), VIP_SUCCESS);
  for (std::size_t i = 0; i < 20; ++i) ASSERT_EQ(program_.post_send(a_, 20 + i, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(VipResizeCQ(cq_, 3), VIP_ERROR_RESOURCE) << "it holds more";
  int sends = 0, receives = 0;
  while (VipCQDone(cq_, &vi_, &receive_) == VIP_SUCCESS) (receive_ ? receives : sends)++;
  EXPECT_EQ(sends, 20);
  EXPECT_EQ(receives, 20);
  EXPECT_EQ(VipResizeCQ(cq_, 3), VIP_SUCCESS);
}

TEST_F(ViplCqPair, FlushedDescriptorsAreReportedToo) {
  connect_here(program_, a_, b_);
  ASSERT_EQ(program_.post_receive(b_, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(VipDisconnect(a_), VIP_SUCCESS);
  ASSERT_EQ(VipCQWait(cq_, kSoon, &vi_, &receive_), VIP_SUCCESS);
  EXPECT_EQ(vi_, b_);
  EXPECT_EQ(received(b_, VIP_DESCRIPTOR_ERROR), program_.descriptor(0));
}

TEST_F(ViplCqPair, EntriesOfADestroyedViAreForgotten) {
  connect_here(program_, a_, b_);
  ASSERT_EQ(program_.post_receive(b_, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(VipDisconnect(b_), VIP_SUCCESS);
  ASSERT_EQ(VipDestroyVi(b_), VIP_SUCCESS);
  program_.forget(b_);
  EXPECT_EQ(VipCQDone(cq_, &vi_, &receive_), VIP_NOT_DONE);
}

// Completions of sends and of receives go to different queues of one VI; acknowledgements come with the data.
TEST(ViplCqs, SendAndReceiveQueuesMayUseTwo) {
  HangGuard guard;
  Program program;
  const VIP_CQ_HANDLE sends = program.make_cq(), receives = program.make_cq();
  const ViOptions options{.level = VIP_SERVICE_RELIABLE_RECEPTION, .send_cq = sends, .receive_cq = receives};
  const VIP_VI_HANDLE a = program.make_vi(options), b = program.make_vi(options);
  connect_here(program, a, b);
  ASSERT_EQ(program.post_receive(b, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program.post_send(a, 1, 0, 8), VIP_SUCCESS);
  VIP_VI_HANDLE vi = nullptr;
  VIP_BOOLEAN receive = -1;
  ASSERT_EQ(VipCQWait(sends, kSoon, &vi, &receive), VIP_SUCCESS) << "asking for one serves the other";
  EXPECT_EQ(vi, a);
  EXPECT_FALSE(receive);
  ASSERT_EQ(VipCQDone(receives, &vi, &receive), VIP_SUCCESS);
  EXPECT_EQ(vi, b);
  EXPECT_TRUE(receive);
}

// Two thousand connections of two processes end in one queue; a few speak at a time.
TEST(ViplCqs, TwoThousandVisOnOne) {
  HangGuard guard;
  const int many = kSanitized ? 300 : 2000;
  const std::string name = own_name("many");
  Baton connected;
  Child clients([&] {
    Program program;
    std::vector<VIP_VI_HANDLE> vis;
    for (int i = 0; i < many; ++i) {
      vis.push_back(program.make_vi({.max_transfer = 4096}));
      CHILD_EXPECT(program.request(name, vis.back()) == VIP_SUCCESS);
    }
    CHILD_EXPECT(connected.take());
    for (int round = 0; round < 3; ++round)
      for (int i = 0; i < many; ++i) {
        const int who = (i * 7 + round) % many;
        std::memcpy(program.data(), &who, sizeof who);
        CHILD_EXPECT(program.post_send(vis[static_cast<std::size_t>(who)], 0, 0, sizeof who) == VIP_SUCCESS);
        CHILD_EXPECT(sent(vis[static_cast<std::size_t>(who)]) == program.descriptor(0));
      }
    VIP_DESCRIPTOR* descriptor = nullptr;
    CHILD_EXPECT(program.post_receive(vis[0], 1, 0, 8) == VIP_SUCCESS);
    CHILD_EXPECT(VipRecvWait(vis[0], kSoon, &descriptor) == VIP_SUCCESS);
    return 0;
  });
  Program program(std::size_t{8} << 20);
  const VIP_CQ_HANDLE cq = program.make_cq(static_cast<VIP_ULONG>(many));
  // A descriptor and a word for each of three messages of each VI.
  const auto descriptor_of = [&](int vi, int round) {
    return reinterpret_cast<VIP_DESCRIPTOR*>(program.data(static_cast<std::size_t>(vi * 3 + round) * 64));
  };
  const std::size_t words = static_cast<std::size_t>(many) * 3 * 64;
  std::vector<VIP_VI_HANDLE> vis;
  for (int i = 0; i < many; ++i) {
    vis.push_back(program.make_vi({.max_transfer = 4096, .receive_cq = cq}));
    for (int round = 0; round < 3; ++round) {
      VIP_DESCRIPTOR* const descriptor = descriptor_of(i, round);
      descriptor->CS.SegCount = 1;
      descriptor->CS.Length = 8;
      descriptor->DS[0].Local.Data.Address = program.data(words + static_cast<std::size_t>(i * 3 + round) * 8);
      descriptor->DS[0].Local.Handle = program.handle;
      descriptor->DS[0].Local.Length = 8;
      ASSERT_EQ(program.post_receive(vis.back(), descriptor), VIP_SUCCESS);
    }
    ASSERT_EQ(program.serve(name, vis.back()), VIP_SUCCESS) << i;
  }
  std::vector<int> rounds(static_cast<std::size_t>(many));
  connected.give();
  for (int i = 0; i < many * 3; ++i) {
    VIP_VI_HANDLE vi = nullptr;
    VIP_BOOLEAN receive = -1;
    ASSERT_EQ(VipCQWait(cq, kSoon, &vi, &receive), VIP_SUCCESS) << i;
    ASSERT_TRUE(receive);
    VIP_DESCRIPTOR* descriptor = nullptr;
    ASSERT_EQ(VipRecvDone(vi, &descriptor), VIP_SUCCESS);
    int who = -1;
    std::memcpy(&who, descriptor->DS[0].Local.Data.Address, sizeof who);
    ASSERT_EQ(vis.at(static_cast<std::size_t>(who)), vi);
    ASSERT_EQ(descriptor, descriptor_of(who, rounds[static_cast<std::size_t>(who)]++));
  }
  ASSERT_EQ(program.post_send(vis[0], 0, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(clients.wait(), 0);
}

}  // namespace
}  // namespace viaduct::vipl::testing
