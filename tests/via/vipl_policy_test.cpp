// Who may connect, and what happens where the kernel does not let one process into another's memory.
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstddef>
#include <thread>

#include "via/port/shm_handshake.hpp"
#include "via/vipl/address.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr uid_t kSomebodyElse = 65534;

bool become_somebody_else() {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kSomebodyElse, kSomebodyElse, kSomebodyElse) == 0 &&
         ::setresuid(kSomebodyElse, kSomebodyElse, kSomebodyElse) == 0;
}

class ViplPolicy : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs two users: only root can become another one";
  }
  HangGuard guard_;
};

TEST_F(ViplPolicy, AnotherUserIsRefused) {
  Program program;
  NetAddress local(program.nic, own_name("policy")), remote;
  WireAddress address;
  ASSERT_TRUE(read_address(local.get(), address));
  VIP_CONN_HANDLE connection = nullptr;
  ASSERT_EQ(VipConnectWait(program.nic, local.get(), 0, remote.get(), nullptr, &connection), VIP_TIMEOUT);
  const std::string name = server_place(address).here;
  Child other([&] {
    CHILD_EXPECT(become_somebody_else());
    // In good order it does not even find us: its users have names of their own.
    Program own;
    CHILD_EXPECT(own.request(local.discriminator(), own.make_vi(), 20) == VIP_NO_MATCH);
    // It may know ours; then it finds that we are not of its user, and does not speak to us.
    auto socket = meeting::connect_at(name);
    CHILD_EXPECT(socket.ok());
    CHILD_EXPECT(meeting::check_peer(socket->get(), meeting::Peers::by_setting).error().code() == EACCES);
    // And if it speaks all the same, nobody listens.
    char byte = 0;
    (void)!::send(socket->get(), &byte, 1, MSG_NOSIGNAL);  // it may be closed already
    while (::recv(socket->get(), &byte, 1, 0) < 0 && errno == EAGAIN) ::usleep(1000);
    return 0;
  });
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(VipConnectWait(program.nic, local.get(), 300, remote.get(), nullptr, &connection), VIP_TIMEOUT);
  EXPECT_EQ(other.wait(), 0) << "its connection was closed";
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("refused: the peer is user 65534"), std::string::npos) << said;
  EXPECT_NE(said.find("VIADUCT_PEERS=any"), std::string::npos) << "and it says what would allow it";
}

// The setting is read once in a process: these two are started with it. RDMA goes by message then, because the kernel
// lets neither into the other's memory.
TEST_F(ViplPolicy, AnotherUserIsWelcomeWhereBothSaySo) {
  const std::string name = own_name("policy.any");
  const auto sample = [&](const char* role, bool other, const char* setting) {
    return [=] {
      ::setenv("VIADUCT_PEERS", setting, 1);
      if (other && !become_somebody_else()) return 126;
      ::execl(VIPL_SAMPLE, VIPL_SAMPLE, role, "viaduct", name.c_str(), nullptr);
      return 127;
    };
  };
  if (::access(VIPL_SAMPLE, X_OK) != 0) GTEST_SKIP() << VIPL_SAMPLE << " is not there";
  Child probe([] {
    if (!become_somebody_else()) return 2;
    return ::access(VIPL_SAMPLE, X_OK) == 0 ? 0 : 1;
  });
  if (probe.wait() != 0) GTEST_SKIP() << "another user cannot run " << VIPL_SAMPLE;
  Child server(sample("server", false, "any")), client(sample("client", true, "any"));
  EXPECT_EQ(client.wait(), 0);
  EXPECT_EQ(server.wait(), 0);
}

// From now on, in this process and those it makes, the kernel refuses what CMA is made of.
bool refuse_cma() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{5, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A sandbox closes over a program that is connected already: RDMA goes on, by message.
TEST(ViplSandbox, RdmaGoesByMessageWhereTheKernelRefuses) {
  HangGuard guard;
  constexpr std::uint32_t kLength = 300'000;
  const std::string name = own_name("sandbox");
  Child initiator([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kLength, .rdma_write = true, .rdma_read = true});
    CHILD_EXPECT(program.post_receive(vi, 0, 0, 8) == VIP_SUCCESS);
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    const VIP_DESCRIPTOR* const offer = received(vi);
    const VIP_MEM_HANDLE theirs = offer->CS.ImmediateData;
    std::uint64_t address = 0;
    std::memcpy(&address, program.data(), sizeof address);
    const auto rdma = [&](std::size_t index, VIP_UINT16 operation, std::size_t at) {
      return program.post_send(vi, program.prepare_rdma(index, operation, address, theirs, {{at, kLength}})) ==
                 VIP_SUCCESS &&
             sent(vi) == program.descriptor(index);
    };
    fill(program.data(), kLength, 5);
    CHILD_EXPECT(rdma(1, VIP_CONTROL_OP_RDMAWRITE, 0));
    CHILD_EXPECT(counter("via.rdma_cma").get() == 1 && counter("via.rdma_by_message").get() == 0);
    if (!refuse_cma()) return 77;
    fill(program.data(), kLength, 6);
    CHILD_EXPECT(rdma(2, VIP_CONTROL_OP_RDMAWRITE, 0));
    CHILD_EXPECT(rdma(3, VIP_CONTROL_OP_RDMAREAD, kLength));
    CHILD_EXPECT(counter("via.rdma_by_message").get() >= 2);
    CHILD_EXPECT(filled(program.data(kLength), kLength, 6));
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kLength, .rdma_write = true, .rdma_read = true});
  ASSERT_EQ(program.post_receive(vi, 1, 900'000, 8), VIP_SUCCESS);
  ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
  const auto address = reinterpret_cast<std::uint64_t>(program.data(4096));
  std::memcpy(program.data(), &address, sizeof address);
  ASSERT_EQ(program.post_send(vi, program.prepare(0, {{0, 8}}, VIP_CONTROL_IMMEDIATE, program.handle)), VIP_SUCCESS);
  EXPECT_EQ(received(vi, VIP_DESCRIPTOR_ERROR), program.descriptor(1)) << "flushed when the initiator has finished";
  const int result = initiator.wait();
  if (result == 77) GTEST_SKIP() << "the kernel has no seccomp filters";
  EXPECT_EQ(result, 0);
  EXPECT_TRUE(filled(program.data(4096), kLength, 6));
}

}  // namespace
}  // namespace viaduct::vipl::testing
