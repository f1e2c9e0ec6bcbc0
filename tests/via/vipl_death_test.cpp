// A process is killed in the middle of everything: the other one is told, gets its descriptors back, and never hangs.
#include <csignal>
#include <thread>

#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

enum class How { polling, waiting, completion_queue };

class ViplDeath : public ::testing::TestWithParam<std::tuple<How, bool, VIP_RELIABILITY_LEVEL, std::uint32_t>> {
 protected:
  HangGuard guard_;
};

INSTANTIATE_TEST_SUITE_P(
    OfEitherSide, ViplDeath,
    ::testing::Combine(::testing::Values(How::polling, How::waiting, How::completion_queue), ::testing::Bool(),
                       ::testing::Values(VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION),
                       ::testing::Values(20'000, 400'000)),
    [](const auto& one) {
      const How how = std::get<0>(one.param);
      return std::string(how == How::polling   ? "Polling"
                         : how == How::waiting ? "Waiting"
                                               : "Cq") +
             (std::get<1>(one.param) ? "ServerDies" : "ClientDies") + "Level" + std::to_string(std::get<2>(one.param)) +
             "Bytes" + std::to_string(std::get<3>(one.param));
    });

// Sends and receives as fast as it goes, until something fails. False: something impossible.
bool talk(Program& program, VIP_VI_HANDLE vi, VIP_CQ_HANDLE cq, How how, bool starts, std::uint32_t length,
          Baton* talking) {
  int round = 0;
  const auto finished = [&](bool receive, VIP_DESCRIPTOR** descriptor) {
    if (how == How::waiting)
      return receive ? VipRecvWait(vi, VIP_INFINITE, descriptor) : VipSendWait(vi, VIP_INFINITE, descriptor);
    for (;;) {
      const VIP_RETURN result = receive ? VipRecvDone(vi, descriptor) : VipSendDone(vi, descriptor);
      if (result != VIP_NOT_DONE) return result;
      VIP_VI_HANDLE which = nullptr;
      VIP_BOOLEAN of_receive = 0;
      if (how == How::completion_queue && VipCQWait(cq, VIP_INFINITE, &which, &of_receive) != VIP_SUCCESS)
        return VIP_INVALID_PARAMETER;
    }
  };
  for (bool sending = starts;; sending = !sending, ++round) {
    VIP_DESCRIPTOR* descriptor = nullptr;
    VIP_RETURN result;
    if (sending) {
      if (program.post_send(vi, 10, 0, length) != VIP_SUCCESS) return false;
      result = finished(false, &descriptor);
    } else {
      result = finished(true, &descriptor);
      if (result == VIP_SUCCESS && program.post_receive(vi, descriptor) != VIP_SUCCESS) return false;
    }
    if (talking != nullptr && round == 200) talking->give();
    if (result == VIP_SUCCESS) continue;
    return result == VIP_DESCRIPTOR_ERROR && descriptor != nullptr &&
           (descriptor->CS.Status & (VIP_STATUS_DESC_FLUSHED_ERROR | VIP_STATUS_TRANSPORT_ERROR)) != 0;
  }
}

TEST_P(ViplDeath, TheSurvivorIsTold) {
  const auto [how, server_dies, level, length] = GetParam();
  const std::string name = own_name("death");
  Baton talking;
  Child victim([&, how = how, server_dies = server_dies, level = level, length = length] {
    Program program(std::size_t{4} * length);
    const VIP_CQ_HANDLE cq = how == How::completion_queue ? program.make_cq() : nullptr;
    const VIP_VI_HANDLE vi =
        program.make_vi({.level = level, .max_transfer = 1 << 19, .send_cq = cq, .receive_cq = cq});
    for (std::size_t i = 0; i < 4; ++i) CHILD_EXPECT(program.post_receive(vi, i, length * i, length) == VIP_SUCCESS);
    CHILD_EXPECT((server_dies ? program.serve(name, vi) : program.request(name, vi)) == VIP_SUCCESS);
    (void)talk(program, vi, cq, how, false, length, nullptr);
    return 0;
  });
  Program program(std::size_t{4} * length);
  ErrorLog errors;
  errors.listen(program.nic);
  const VIP_CQ_HANDLE cq = how == How::completion_queue ? program.make_cq() : nullptr;
  const VIP_VI_HANDLE vi = program.make_vi({.level = level, .max_transfer = 1 << 19, .send_cq = cq, .receive_cq = cq});
  for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(program.post_receive(vi, i, length * i, length), VIP_SUCCESS);
  ASSERT_EQ(server_dies ? program.request(name, vi) : program.serve(name, vi), VIP_SUCCESS);
  std::thread killer([&] {
    ASSERT_TRUE(talking.take());
    victim.kill();
  });
  EXPECT_TRUE(talk(program, vi, cq, how, true, length, &talking));
  killer.join();
  EXPECT_EQ(program.state(vi), VIP_STATE_ERROR);
  ASSERT_EQ(errors.errors.size(), 1u);
  EXPECT_EQ(errors.errors[0].ErrorCode, VIP_ERROR_CONN_LOST);
  EXPECT_EQ(errors.errors[0].ViHandle, vi);
  VIP_DESCRIPTOR* descriptor = nullptr;
  while (VipRecvDone(vi, &descriptor) == VIP_DESCRIPTOR_ERROR && descriptor != nullptr)
    EXPECT_TRUE(descriptor->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
  EXPECT_EQ(descriptor, nullptr) << "all were flushed";
  EXPECT_EQ(VipDisconnect(vi), VIP_SUCCESS);
  EXPECT_EQ(victim.wait(), -SIGKILL);
}

// Asleep, with a message that does not fit: nothing but the socket can tell.
TEST(ViplDeathAsleep, ASenderWithoutRoomIsWoken) {
  HangGuard guard;
  const std::string name = own_name("death.room");
  Baton connected;
  Child victim([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = 1 << 20});
    CHILD_EXPECT(program.serve(name, vi) == VIP_SUCCESS);
    connected.give();
    ::pause();
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = 1 << 20});
  ASSERT_EQ(program.request(name, vi), VIP_SUCCESS);
  ASSERT_TRUE(connected.take());
  ASSERT_EQ(program.post_send(vi, 0, 0, 1 << 20), VIP_SUCCESS);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    victim.kill();
  });
  VIP_DESCRIPTOR* descriptor = nullptr;
  EXPECT_EQ(VipSendWait(vi, VIP_INFINITE, &descriptor), VIP_DESCRIPTOR_ERROR);
  EXPECT_EQ(descriptor, program.descriptor(0));
  EXPECT_TRUE(descriptor->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
  killer.join();
}

// RDMA into the memory of a process that has gone touches nobody else's.
TEST(ViplDeathRdma, FailsAgainstAProcessThatHasGone) {
  HangGuard guard;
  const std::string name = own_name("death.rdma");
  Baton connected, seen;
  Child victim([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi({.rdma_write = true});
    CHILD_EXPECT(program.serve(name, vi) == VIP_SUCCESS);
    CHILD_EXPECT(program.post_send(vi, program.prepare(0, {{0, 0}}, VIP_CONTROL_IMMEDIATE, program.handle)) ==
                 VIP_SUCCESS);
    connected.give();
    ::pause();
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  ASSERT_EQ(program.post_receive(vi, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program.request(name, vi), VIP_SUCCESS);
  ASSERT_TRUE(connected.take());
  const VIP_MEM_HANDLE handle = received(vi)->CS.ImmediateData;
  victim.kill();
  (void)victim.wait();
  // It was forked from this process: its memory lay where ours lies.
  ASSERT_EQ(
      program.post_send(vi, program.prepare_rdma(1, VIP_CONTROL_OP_RDMAWRITE,
                                                 reinterpret_cast<std::uint64_t>(program.data()), handle, {{0, 64}})),
      VIP_SUCCESS);
  EXPECT_EQ(sent(vi, VIP_DESCRIPTOR_ERROR), program.descriptor(1));
  EXPECT_EQ(program.state(vi), VIP_STATE_ERROR);
}

}  // namespace
}  // namespace viaduct::vipl::testing
