// VIs: creating, asking, changing, destroying; their states.
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

TEST(ViplVi, IsWhatWasAskedFor) {
  Program program;
  const VIP_VI_HANDLE vi =
      program.make_vi({.level = VIP_SERVICE_RELIABLE_RECEPTION, .max_transfer = 1234, .rdma_write = true});
  VIP_VI_STATE state = VIP_STATE_ERROR;
  VIP_VI_ATTRIBUTES said{};
  VIP_BOOLEAN send_empty = 0, receive_empty = 0;
  EXPECT_EQ(VipQueryVi(vi, &state, &said, &send_empty, &receive_empty), VIP_SUCCESS);
  EXPECT_EQ(state, VIP_STATE_IDLE);
  EXPECT_EQ(said.ReliabilityLevel, VIP_SERVICE_RELIABLE_RECEPTION);
  EXPECT_EQ(said.MaxTransferSize, 1234u);
  EXPECT_EQ(said.Ptag, program.tag);
  EXPECT_TRUE(said.EnableRdmaWrite);
  EXPECT_FALSE(said.EnableRdmaRead);
  EXPECT_TRUE(send_empty && receive_empty);
  ASSERT_EQ(program.post_receive(vi, 0, 0, 16), VIP_SUCCESS);
  EXPECT_EQ(VipQueryVi(vi, nullptr, nullptr, &send_empty, &receive_empty), VIP_SUCCESS);
  EXPECT_TRUE(send_empty);
  EXPECT_FALSE(receive_empty);
}

TEST(ViplVi, RefusesAttributesThatCannotBe) {
  Program program;
  VIP_VI_HANDLE vi = nullptr;
  const VIP_VI_ATTRIBUTES good = program.attributes({});
  VIP_VI_ATTRIBUTES bad = good;
  bad.ReliabilityLevel = 3;
  EXPECT_EQ(VipCreateVi(program.nic, &bad, nullptr, nullptr, &vi), VIP_INVALID_RELIABILITY_LEVEL);
  bad.ReliabilityLevel = 0;
  EXPECT_EQ(VipCreateVi(program.nic, &bad, nullptr, nullptr, &vi), VIP_INVALID_RELIABILITY_LEVEL);
  bad = good;
  bad.MaxTransferSize = 0;
  EXPECT_EQ(VipCreateVi(program.nic, &bad, nullptr, nullptr, &vi), VIP_INVALID_MTU);
  bad = good;
  bad.Ptag = &bad;
  EXPECT_EQ(VipCreateVi(program.nic, &bad, nullptr, nullptr, &vi), VIP_INVALID_PTAG);
  bad = good;
  bad.ReliabilityLevel = VIP_SERVICE_UNRELIABLE;
  bad.EnableRdmaRead = 1;
  EXPECT_EQ(VipCreateVi(program.nic, &bad, nullptr, nullptr, &vi), VIP_INVALID_RDMAREAD);
  bad = good;
  EXPECT_EQ(VipCreateVi(program.nic, nullptr, nullptr, nullptr, &vi), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipCreateVi(program.nic, &bad, nullptr, nullptr, nullptr), VIP_INVALID_PARAMETER);
  EXPECT_EQ(VipCreateVi(program.nic, &bad, &bad, nullptr, &vi), VIP_INVALID_PARAMETER) << "not a CQ";
  Program other;
  EXPECT_EQ(VipCreateVi(program.nic, &bad, nullptr, other.make_cq(), &vi), VIP_INVALID_PARAMETER)
      << "another adapter's";
}

TEST(ViplVi, AttributesChangeOnlyWhileIdle) {
  Program program;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  VIP_VI_ATTRIBUTES attributes = program.attributes({.max_transfer = 999});
  EXPECT_EQ(VipSetViAttributes(a, &attributes), VIP_SUCCESS);
  EXPECT_EQ(VipSetViAttributes(b, &attributes), VIP_SUCCESS);
  EXPECT_EQ(VipSetViAttributes(a, nullptr), VIP_INVALID_PARAMETER);
  attributes.MaxTransferSize = 0;
  EXPECT_EQ(VipSetViAttributes(a, &attributes), VIP_INVALID_MTU);
  attributes.MaxTransferSize = 1000;
  connect_here(program, a, b);
  EXPECT_EQ(VipSetViAttributes(a, &attributes), VIP_INVALID_STATE);
  VIP_VI_ATTRIBUTES said{};
  EXPECT_EQ(VipQueryVi(a, nullptr, &said, nullptr, nullptr), VIP_SUCCESS);
  EXPECT_EQ(said.MaxTransferSize, 999u);
}

TEST(ViplVi, IsDestroyedOnlyWhileIdle) {
  Program program;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  connect_here(program, a, b);
  EXPECT_EQ(program.state(a), VIP_STATE_CONNECTED);
  EXPECT_EQ(VipDestroyVi(a), VIP_INVALID_STATE);
  EXPECT_EQ(VipDisconnect(a), VIP_SUCCESS);
  EXPECT_EQ(program.state(a), VIP_STATE_IDLE);
  EXPECT_EQ(VipDisconnect(a), VIP_INVALID_STATE);
  EXPECT_EQ(VipDestroyVi(a), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyVi(a), VIP_INVALID_PARAMETER);
  program.forget(a);
}

TEST(ViplVi, TheOtherEndOfADisconnectIsInErrorUntilItDisconnectsToo) {
  Program program;
  ErrorLog errors;
  errors.listen(program.nic);
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  connect_here(program, a, b);
  ASSERT_EQ(program.post_receive(b, 0, 0, 16), VIP_SUCCESS);
  ASSERT_EQ(program.post_receive(b, 1, 0, 16), VIP_SUCCESS);
  ASSERT_EQ(VipDisconnect(a), VIP_SUCCESS);
  EXPECT_EQ(received(b, VIP_DESCRIPTOR_ERROR), program.descriptor(0));
  EXPECT_EQ(program.descriptor(0)->CS.Status,
            unsigned{VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR | VIP_STATUS_OP_RECEIVE});
  EXPECT_EQ(received(b, VIP_DESCRIPTOR_ERROR), program.descriptor(1));
  EXPECT_EQ(program.state(b), VIP_STATE_ERROR);
  ASSERT_EQ(errors.errors.size(), 1u);
  EXPECT_EQ(errors.errors[0].ErrorCode, VIP_ERROR_CONN_LOST);
  EXPECT_EQ(errors.errors[0].ViHandle, b);
  EXPECT_EQ(errors.errors[0].ResourceCode, VIP_RESOURCE_VI);
  EXPECT_EQ(VipDestroyVi(b), VIP_INVALID_STATE);
  // In the error state whatever is posted comes back at once.
  ASSERT_EQ(program.post_receive(b, 0, 0, 16), VIP_SUCCESS);
  EXPECT_EQ(received(b, VIP_DESCRIPTOR_ERROR), program.descriptor(0));
  ASSERT_EQ(program.post_send(b, 2, 0, 16), VIP_SUCCESS);
  EXPECT_EQ(sent(b, VIP_DESCRIPTOR_ERROR), program.descriptor(2));
  EXPECT_TRUE(program.descriptor(2)->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
  EXPECT_EQ(VipDisconnect(b), VIP_SUCCESS);
  EXPECT_EQ(program.state(b), VIP_STATE_IDLE);
  // And both can be used again.
  connect_here(program, a, b);
  ASSERT_EQ(program.post_receive(b, 0, 0, 16), VIP_SUCCESS);
  ASSERT_EQ(program.post_send(a, 1, 0, 16), VIP_SUCCESS);
  EXPECT_EQ(received(b), program.descriptor(0));
}

TEST(ViplVi, DisconnectFlushesWhatIsPosted) {
  Program program;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  connect_here(program, a, b);
  for (std::size_t i = 0; i < 5; ++i) ASSERT_EQ(program.post_receive(a, i, 0, 16), VIP_SUCCESS);
  ASSERT_EQ(VipDisconnect(a), VIP_SUCCESS);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(received(a, VIP_DESCRIPTOR_ERROR), program.descriptor(i)) << "in order";
    EXPECT_TRUE(program.descriptor(i)->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
  }
  VIP_DESCRIPTOR* none = program.descriptor(0);
  EXPECT_EQ(VipRecvDone(a, &none), VIP_DESCRIPTOR_ERROR) << "the queue is empty";
  EXPECT_EQ(none, nullptr);
}

TEST(ViplVi, IdleVisKeepReceivesAndFlushSends) {
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi(), other = program.make_vi();
  VIP_DESCRIPTOR* descriptor = nullptr;
  ASSERT_EQ(program.post_receive(vi, 0, 0, 16), VIP_SUCCESS);
  EXPECT_EQ(VipRecvDone(vi, &descriptor), VIP_NOT_DONE);
  EXPECT_EQ(VipRecvWait(vi, 1, &descriptor), VIP_TIMEOUT);
  ASSERT_EQ(program.post_send(vi, 1, 0, 16), VIP_SUCCESS);
  EXPECT_EQ(sent(vi, VIP_DESCRIPTOR_ERROR), program.descriptor(1));
  connect_here(program, vi, other);
  ASSERT_EQ(program.post_send(other, 2, 0, 16), VIP_SUCCESS);
  EXPECT_EQ(received(vi), program.descriptor(0)) << "posted before there was a connection";
}

TEST(ViplVi, EmptyQueuesSaySo) {
  Program program;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  connect_here(program, a, b);
  for (const auto done : {VipSendDone, VipRecvDone}) {
    VIP_DESCRIPTOR* none = program.descriptor(0);
    EXPECT_EQ(done(a, &none), VIP_DESCRIPTOR_ERROR);
    EXPECT_EQ(none, nullptr);
  }
  for (const auto wait : {VipSendWait, VipRecvWait}) {
    VIP_DESCRIPTOR* none = program.descriptor(0);
    EXPECT_EQ(wait(a, VIP_INFINITE, &none), VIP_DESCRIPTOR_ERROR) << "nothing can ever come";
    EXPECT_EQ(none, nullptr);
  }
}

}  // namespace
}  // namespace viaduct::vipl::testing
