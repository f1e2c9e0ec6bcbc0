// What the three levels promise, and what happens to a message that nobody is ready for.
#include <thread>

#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

std::uint64_t dropped() {
  return counter("via.dropped").get();
}

class ViplReliability : public ::testing::Test {
 protected:
  void connect(VIP_RELIABILITY_LEVEL level) {
    errors_.listen(program_.nic);
    a_ = program_.make_vi({.level = level});
    b_ = program_.make_vi({.level = level});
    connect_here(program_, a_, b_);
  }
  HangGuard guard_;
  Program program_;
  ErrorLog errors_;
  VIP_VI_HANDLE a_ = nullptr, b_ = nullptr;
};

// ---- unreliable

TEST_F(ViplReliability, UnreliableDropsWhatNobodyIsReadyFor) {
  connect(VIP_SERVICE_UNRELIABLE);
  const std::uint64_t before = dropped();
  for (std::size_t i = 0; i < 3; ++i) {
    std::memset(program_.data(), static_cast<int>(i), 8);
    ASSERT_EQ(program_.post_send(a_, i, 0, 8), VIP_SUCCESS);
    EXPECT_EQ(sent(a_), program_.descriptor(i)) << "the sender is done with it";
  }
  VIP_DESCRIPTOR* none = nullptr;
  EXPECT_EQ(VipRecvDone(b_, &none), VIP_DESCRIPTOR_ERROR) << "no receive is posted";
  EXPECT_EQ(dropped(), before + 3);
  EXPECT_EQ(program_.state(b_), VIP_STATE_CONNECTED);
  EXPECT_TRUE(errors_.errors.empty());
  // What comes next is received.
  ASSERT_EQ(program_.post_receive(b_, 5, 100, 8), VIP_SUCCESS);
  std::memset(program_.data(), 9, 8);
  ASSERT_EQ(program_.post_send(a_, 0, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(received(b_), program_.descriptor(5));
  EXPECT_EQ(program_.data(100)[0], std::byte{9});
  EXPECT_EQ(dropped(), before + 3);
}

TEST_F(ViplReliability, UnreliableDropsWhatIsTooLong) {
  connect(VIP_SERVICE_UNRELIABLE);
  const std::uint64_t before = dropped();
  std::uint64_t expected = before;
  for (const std::uint32_t length : {17u, 65536u}) {
    std::memset(program_.data(), 7, length);
    ASSERT_EQ(program_.post_receive(b_, 0, 100'000, 16), VIP_SUCCESS);
    ASSERT_EQ(program_.post_send(a_, 1, 0, length), VIP_SUCCESS);
    EXPECT_EQ(received(b_, VIP_DESCRIPTOR_ERROR), program_.descriptor(0));
    EXPECT_EQ(program_.descriptor(0)->CS.Status,
              unsigned{VIP_STATUS_DONE | VIP_STATUS_LENGTH_ERROR | VIP_STATUS_OP_RECEIVE});
    EXPECT_EQ(program_.data(100'000)[0], std::byte{0}) << "nothing of it was placed";
    EXPECT_EQ(dropped(), ++expected);
    EXPECT_EQ(sent(a_), program_.descriptor(1));
    // The next message is received, though the rest of the long one came in between.
    ASSERT_EQ(program_.post_receive(b_, 2, 100'100, 16), VIP_SUCCESS);
    ASSERT_EQ(program_.post_send(a_, 3, 0, 16), VIP_SUCCESS);
    EXPECT_EQ(received(b_), program_.descriptor(2));
    EXPECT_EQ(sent(a_), program_.descriptor(3));
  }
  EXPECT_EQ(program_.state(a_), VIP_STATE_CONNECTED);
  EXPECT_EQ(program_.state(b_), VIP_STATE_CONNECTED);
}

// ---- reliable delivery

TEST_F(ViplReliability, ReliableDeliveryBreaksWhenTheReceiveQueueIsEmpty) {
  connect(VIP_SERVICE_RELIABLE_DELIVERY);
  ASSERT_EQ(program_.post_receive(a_, 9, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program_.post_send(a_, 0, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(sent(a_), program_.descriptor(0)) << "handed over: that is all this level says";
  VIP_DESCRIPTOR* none = nullptr;
  EXPECT_EQ(VipRecvDone(b_, &none), VIP_DESCRIPTOR_ERROR);
  EXPECT_EQ(program_.state(b_), VIP_STATE_ERROR);
  ASSERT_EQ(errors_.errors.size(), 1u);
  EXPECT_EQ(errors_.errors[0].ErrorCode, VIP_ERROR_RECVQ_EMPTY);
  EXPECT_EQ(errors_.errors[0].ViHandle, b_);
  // The sender's side learns of it and gets its descriptors back.
  EXPECT_EQ(received(a_, VIP_DESCRIPTOR_ERROR), program_.descriptor(9));
  EXPECT_TRUE(program_.descriptor(9)->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
  EXPECT_EQ(program_.state(a_), VIP_STATE_ERROR);
  ASSERT_EQ(errors_.errors.size(), 2u);
  EXPECT_EQ(errors_.errors[1].ErrorCode, VIP_ERROR_CONN_LOST);
  EXPECT_EQ(errors_.errors[1].ViHandle, a_);
}

TEST_F(ViplReliability, ReliableDeliveryBreaksOnAMessageThatIsTooLong) {
  connect(VIP_SERVICE_RELIABLE_DELIVERY);
  ASSERT_EQ(program_.post_receive(b_, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program_.post_receive(b_, 1, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program_.post_send(a_, 2, 100, 9), VIP_SUCCESS);
  EXPECT_EQ(received(b_, VIP_DESCRIPTOR_ERROR), program_.descriptor(0));
  EXPECT_TRUE(program_.descriptor(0)->CS.Status & VIP_STATUS_LENGTH_ERROR);
  EXPECT_EQ(received(b_, VIP_DESCRIPTOR_ERROR), program_.descriptor(1));
  EXPECT_TRUE(program_.descriptor(1)->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
  EXPECT_EQ(program_.state(b_), VIP_STATE_ERROR);
}

TEST_F(ViplReliability, AnErrorOfASendBreaksAReliableConnection) {
  connect(VIP_SERVICE_RELIABLE_DELIVERY);
  VIP_DESCRIPTOR* const bad = program_.prepare(0, {{0, 8}});
  bad->DS[0].Local.Handle = 0;
  ASSERT_EQ(program_.post_send(a_, bad), VIP_SUCCESS);
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), bad);
  EXPECT_TRUE(bad->CS.Status & VIP_STATUS_PROTECTION_ERROR);
  EXPECT_EQ(program_.state(a_), VIP_STATE_ERROR);
  EXPECT_EQ(program_.state(b_), VIP_STATE_ERROR);
}

// ---- reliable reception

TEST_F(ViplReliability, ReliableReceptionCompletesOnlyWhenTheDataIsThere) {
  connect(VIP_SERVICE_RELIABLE_RECEPTION);
  ASSERT_EQ(program_.post_receive(b_, 0, 100, 8), VIP_SUCCESS);
  std::memset(program_.data(), 3, 8);
  ASSERT_EQ(program_.post_send(a_, 1, 0, 8), VIP_SUCCESS);
  VIP_DESCRIPTOR* descriptor = nullptr;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(VipSendDone(a_, &descriptor), VIP_NOT_DONE) << "the receiver has not called";
  EXPECT_EQ(VipSendWait(a_, 5, &descriptor), VIP_TIMEOUT);
  EXPECT_EQ(received(b_), program_.descriptor(0));
  EXPECT_EQ(program_.data(100)[0], std::byte{3});
  EXPECT_EQ(sent(a_), program_.descriptor(1));
}

TEST_F(ViplReliability, ReliableReceptionTellsWhichMessageWasNotPlaced) {
  connect(VIP_SERVICE_RELIABLE_RECEPTION);
  ASSERT_EQ(program_.post_receive(b_, 0, 100, 8), VIP_SUCCESS);
  for (std::size_t i = 1; i <= 3; ++i) ASSERT_EQ(program_.post_send(a_, i, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(received(b_), program_.descriptor(0));
  EXPECT_EQ(program_.state(b_), VIP_STATE_ERROR) << "the second found no descriptor";
  EXPECT_TRUE(errors_.has(VIP_ERROR_RECVQ_EMPTY));
  EXPECT_EQ(sent(a_), program_.descriptor(1));
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), program_.descriptor(2));
  EXPECT_TRUE(program_.descriptor(2)->CS.Status & VIP_STATUS_REMOTE_DESC_ERROR);
  EXPECT_EQ(sent(a_, VIP_DESCRIPTOR_ERROR), program_.descriptor(3));
  EXPECT_TRUE(program_.descriptor(3)->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
  EXPECT_TRUE(errors_.has(VIP_ERROR_CONN_LOST));
}

// ---- without an error handler

TEST_F(ViplReliability, ErrorsNobodyListensToAreLogged) {
  connect(VIP_SERVICE_RELIABLE_DELIVERY);
  ASSERT_EQ(VipErrorCallback(program_.nic, nullptr, nullptr), VIP_SUCCESS) << "the default again";
  ASSERT_EQ(program_.post_send(a_, 0, 0, 8), VIP_SUCCESS);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(program_.state(b_), VIP_STATE_ERROR);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("no receive descriptor was posted"), std::string::npos) << said;
  EXPECT_TRUE(errors_.errors.empty());
}

}  // namespace
}  // namespace viaduct::vipl::testing
