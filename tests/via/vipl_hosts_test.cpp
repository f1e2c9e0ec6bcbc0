// VIPL between two hosts: the same calls, three reliability levels, RDMA, completion queues that mix, losses, deaths.
#include <gmock/gmock.h>

#include "base/two_hosts.hpp"
#include "via/example_program.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

using ::testing::MatchesRegex;
using viaduct::testing::ExampleProgram;

constexpr TwoHosts::Host kServer = TwoHosts::left, kClient = TwoHosts::right;
constexpr std::uint32_t kShort = 300, kLong = 700'000;

class ViplHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.missing().empty()) GTEST_SKIP() << hosts_.missing();
  }

  // By a process on the server's host.
  template <class Body>
  Child there(Body body) {
    return Child([&] {
      hosts_.enter(kServer);
      return body();
    });
  }
  template <class Body>
  Child here(Body body) {
    return Child([&] {
      hosts_.enter(kClient);
      return body();
    });
  }
  static VIP_RETURN request(Program& program, std::string_view name, VIP_VI_HANDLE vi, VIP_ULONG within = kSoon) {
    NetAddress local(program.nic, "client"), remote(program.nic, name);
    const VIP_UINT8 server[4] = {10, 77, 0, 1};
    std::memcpy(remote.bytes(), server, sizeof server);
    VIP_VI_ATTRIBUTES theirs;
    return VipConnectRequest(vi, local.get(), remote.get(), within, &theirs);
  }
  std::string at_server(const std::string& name) const { return name + '@' + TwoHosts::address(kServer); }

  HangGuard guard_;
  TwoHosts hosts_;
};

TEST_F(ViplHosts, PingPongIsTheSameProgram) {
  for (const char* const bytes : {"4", "0", "65536"}) {
    const std::string name = own_name("pingpong");
    ExampleProgram server({EXAMPLE_PINGPONG, "server", name}, [&] { hosts_.enter(kServer); });
    ExampleProgram client({EXAMPLE_PINGPONG, "client", at_server(name), bytes, "200"}, [&] { hosts_.enter(kClient); });
    EXPECT_THAT(client.hear_after_waiting(), MatchesRegex(std::string(bytes) + " bytes: [0-9]+\\.[0-9]+ us one way"));
    EXPECT_EQ(client.finish(), 0);
    EXPECT_EQ(server.finish(), 0) << "it ends when its client has gone";
  }
}

TEST_F(ViplHosts, ATableIsReadFromAnotherHost) {
  const std::string name = own_name("kv");
  ExampleProgram server({EXAMPLE_RDMA_KV, "server", name, "river=Gard", "height=49 m"}, [&] { hosts_.enter(kServer); });
  ASSERT_EQ(server.hear(), "serving");
  for (int i = 0; i < 3; ++i) {
    ExampleProgram client({EXAMPLE_RDMA_KV, "client", at_server(name)}, [&] { hosts_.enter(kClient); });
    client.say("river\nheight\ncolour\n");
    EXPECT_EQ(client.hear(), "river=Gard");
    EXPECT_EQ(client.hear(), "height=49 m");
    EXPECT_EQ(client.hear(), "colour is not there");
    EXPECT_EQ(client.finish(), 0);
  }
  ExampleProgram stranger({EXAMPLE_RDMA_KV, "client", name + "@no-such-host.invalid"}, [&] { hosts_.enter(kClient); });
  EXPECT_EQ(stranger.hear(), "there is no host 'no-such-host.invalid'");
  EXPECT_EQ(stranger.finish(), 1);
}

class ViplHostsLevels : public ViplHosts, public ::testing::WithParamInterface<VIP_RELIABILITY_LEVEL> {};

// The server says where its memory is; the client writes to it, reads it, and tells that by immediate data.
TEST_P(ViplHostsLevels, MessagesAndRemoteMemory) {
  const std::string name = own_name("levels");
  const bool reads = GetParam() != VIP_SERVICE_UNRELIABLE;
  const ViOptions options{.level = GetParam(), .max_transfer = 1 << 20, .rdma_write = true, .rdma_read = reads};
  struct Where {
    std::uint64_t address;
    VIP_MEM_HANDLE handle;
  };
  Child server = there([&] {
    Program program(4 << 20);
    const VIP_VI_HANDLE vi = program.make_vi(options);
    CHILD_EXPECT(program.post_receive(vi, 1, 0, kLong) == VIP_SUCCESS);
    CHILD_EXPECT(program.post_receive(vi, 2, kLong, kLong) == VIP_SUCCESS);
    CHILD_EXPECT(program.post_receive(vi, 3, 0, 0) == VIP_SUCCESS);
    CHILD_EXPECT(program.serve(name, vi) == VIP_SUCCESS);
    fill(program.data(2 << 20), kLong, 5);
    const Where where{reinterpret_cast<std::uint64_t>(program.data(2 << 20)), program.handle};
    std::memcpy(program.data(3 << 20), &where, sizeof where);
    CHILD_EXPECT(program.post_send(vi, 0, 3 << 20, sizeof where) == VIP_SUCCESS);
    CHILD_EXPECT(sent(vi) != nullptr);
    CHILD_EXPECT(received(vi)->CS.Length == kShort);
    CHILD_EXPECT(filled(program.data(), kShort, 1));
    CHILD_EXPECT(received(vi)->CS.Length == kLong);
    CHILD_EXPECT(filled(program.data(kLong), kLong, 2));
    const VIP_DESCRIPTOR* const told = received(vi);
    CHILD_EXPECT((told->CS.Status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_REMOTE_RDMA_WRITE);
    CHILD_EXPECT(told->CS.ImmediateData == 77);
    CHILD_EXPECT(told->CS.Length == kLong);
    CHILD_EXPECT(filled(program.data(2 << 20), kLong, 3));
    VIP_DESCRIPTOR* done = nullptr;  // the client goes, in good order
    CHILD_EXPECT(program.post_receive(vi, 1, 0, kLong) == VIP_SUCCESS);
    CHILD_EXPECT(VipRecvWait(vi, kSoon, &done) == VIP_DESCRIPTOR_ERROR);
    CHILD_EXPECT((done->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR) != 0);
    return 0;
  });
  Child client = here([&] {
    Program program(4 << 20);
    const VIP_VI_HANDLE vi = program.make_vi(options);
    CHILD_EXPECT(program.post_receive(vi, 1, 0, sizeof(Where)) == VIP_SUCCESS);
    while (request(program, name, vi, 300) != VIP_SUCCESS) continue;
    CHILD_EXPECT(received(vi)->CS.Length == sizeof(Where));
    Where where;
    std::memcpy(&where, program.data(), sizeof where);
    fill(program.data(), kShort, 1);
    fill(program.data(1 << 20), kLong, 2);
    CHILD_EXPECT(program.post_send(vi, 2, 0, kShort) == VIP_SUCCESS);
    CHILD_EXPECT(program.post_send(vi, 3, 1 << 20, kLong) == VIP_SUCCESS);
    CHILD_EXPECT(sent(vi) == program.descriptor(2) && sent(vi) == program.descriptor(3));
    if (reads) {
      CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(4, VIP_CONTROL_OP_RDMAREAD, where.address, where.handle,
                                                              {{2 << 20, kLong}})) == VIP_SUCCESS);
      CHILD_EXPECT(sent(vi) == program.descriptor(4));
      CHILD_EXPECT(filled(program.data(2 << 20), kLong, 5));
    }
    fill(program.data(2 << 20), kLong, 3);
    CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(5, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE,
                                                            where.address, where.handle, {{2 << 20, kLong}}, 77)) ==
                 VIP_SUCCESS);
    CHILD_EXPECT(sent(vi)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
    CHILD_EXPECT(VipDisconnect(vi) == VIP_SUCCESS);
    return 0;
  });
  EXPECT_EQ(client.wait(), 0);
  EXPECT_EQ(server.wait(), 0);
}

// What the owner did not open is not touched, and both sides hear of it.
TEST_P(ViplHostsLevels, MemoryThatIsNotOpenedIsNotReached) {
  const std::string name = own_name("closed");
  const ViOptions options{.level = GetParam(), .max_transfer = 1 << 20, .rdma_write = true};
  Child server = there([&] {
    ErrorLog log;
    Program program(1 << 20, false);
    log.listen(program.nic);
    const VIP_VI_HANDLE vi = program.make_vi(options);
    CHILD_EXPECT(program.post_receive(vi, 1, 4096, 4096) == VIP_SUCCESS);
    CHILD_EXPECT(program.serve(name, vi) == VIP_SUCCESS);
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(program.data(65536));
    std::memcpy(program.data(), &address, sizeof address);
    std::memcpy(program.data(8), &program.handle, sizeof program.handle);
    CHILD_EXPECT(program.post_send(vi, 0, 0, 16) == VIP_SUCCESS);
    CHILD_EXPECT(sent(vi) != nullptr);
    VIP_DESCRIPTOR* done = nullptr;
    CHILD_EXPECT(VipRecvWait(vi, kSoon, &done) == VIP_DESCRIPTOR_ERROR);
    CHILD_EXPECT(program.data(65536)[0] == std::byte{0});
    return 0;
  });
  Child client = here([&] {
    ErrorLog log;
    Program program;
    log.listen(program.nic);
    const VIP_VI_HANDLE vi = program.make_vi(options);
    CHILD_EXPECT(program.post_receive(vi, 1, 0, 16) == VIP_SUCCESS);
    while (request(program, name, vi, 300) != VIP_SUCCESS) continue;
    CHILD_EXPECT(received(vi) != nullptr);
    std::uint64_t address;
    VIP_MEM_HANDLE handle;
    std::memcpy(&address, program.data(), sizeof address);
    std::memcpy(&handle, program.data(8), sizeof handle);
    fill(program.data(), 1000, 9);
    CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(2, VIP_CONTROL_OP_RDMAWRITE, address, handle,
                                                            {{0, 1000}})) == VIP_SUCCESS);
    VIP_DESCRIPTOR* done = nullptr;
    CHILD_EXPECT(VipSendWait(vi, kSoon, &done) == VIP_DESCRIPTOR_ERROR);
    CHILD_EXPECT((done->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_RDMA_PROT_ERROR);
    CHILD_EXPECT(program.state(vi) == VIP_STATE_ERROR);
    return 0;
  });
  EXPECT_EQ(client.wait(), 0);
  EXPECT_EQ(server.wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Each, ViplHostsLevels,
                         ::testing::Values(VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                                           VIP_SERVICE_RELIABLE_RECEPTION),
                         [](const auto& level) {
                           return level.param == VIP_SERVICE_UNRELIABLE          ? "unreliable"
                                  : level.param == VIP_SERVICE_RELIABLE_DELIVERY ? "delivery"
                                                                                 : "reception";
                         });

TEST_F(ViplHosts, OneCompletionQueueTakesBothKinds) {
  const std::string near = own_name("near"), far = own_name("far");
  Child remote = there([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    CHILD_EXPECT(program.post_receive(vi, 1, 0, 8) == VIP_SUCCESS);
    CHILD_EXPECT(program.serve(far, vi) == VIP_SUCCESS);
    for (int i = 0; i < 20; ++i) {
      CHILD_EXPECT(program.post_send(vi, 0, 64, 100) == VIP_SUCCESS);
      CHILD_EXPECT(sent(vi) != nullptr);
    }
    VIP_DESCRIPTOR* done = nullptr;
    return VipRecvWait(vi, kSoon, &done) == VIP_SUCCESS ? 0 : 1;
  });
  Child local = here([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    CHILD_EXPECT(program.post_receive(vi, 1, 0, 8) == VIP_SUCCESS);
    CHILD_EXPECT(program.serve(near, vi) == VIP_SUCCESS);
    for (int i = 0; i < 20; ++i) {
      CHILD_EXPECT(program.post_send(vi, 0, 64, 100) == VIP_SUCCESS);
      CHILD_EXPECT(sent(vi) != nullptr);
    }
    VIP_DESCRIPTOR* done = nullptr;
    return VipRecvWait(vi, kSoon, &done) == VIP_SUCCESS ? 0 : 1;
  });
  Child both = here([&] {
    Program program;
    const VIP_CQ_HANDLE cq = program.make_cq(128);
    const VIP_VI_HANDLE vis[] = {program.make_vi({.receive_cq = cq}), program.make_vi({.receive_cq = cq})};
    for (std::size_t i = 0; i < 50; ++i) CHILD_EXPECT(program.post_receive(vis[i % 2], i, i * 128, 128) == VIP_SUCCESS);
    CHILD_EXPECT(program.request(near, vis[0]) == VIP_SUCCESS);
    while (request(program, far, vis[1], 300) != VIP_SUCCESS) continue;
    int taken[2] = {0, 0};
    while (taken[0] + taken[1] < 40) {
      VIP_VI_HANDLE vi = nullptr;
      VIP_BOOLEAN receive = 0;
      CHILD_EXPECT(VipCQWait(cq, kSoon, &vi, &receive) == VIP_SUCCESS);
      VIP_DESCRIPTOR* done = nullptr;
      CHILD_EXPECT(receive && VipRecvDone(vi, &done) == VIP_SUCCESS);
      ++taken[vi == vis[1]];
      done->CS.Length = 128;
      CHILD_EXPECT(program.post_receive(vi, done) == VIP_SUCCESS);
    }
    CHILD_EXPECT(taken[0] == 20 && taken[1] == 20);
    for (const VIP_VI_HANDLE vi : vis) {
      CHILD_EXPECT(program.post_send(vi, 60, 0, 8) == VIP_SUCCESS);
      CHILD_EXPECT(sent(vi) != nullptr);
    }
    return 0;
  });
  EXPECT_EQ(both.wait(), 0);
  EXPECT_EQ(local.wait(), 0);
  EXPECT_EQ(remote.wait(), 0);
}

TEST_F(ViplHosts, LostDatagramsAreNotLostMessages) {
  if (!hosts_.lose(kServer, 20) || !hosts_.lose(kClient, 20)) GTEST_SKIP() << "no nft here, which loses datagrams";
  const std::string name = own_name("lossy");
  for (const char* const bytes : {"4", "65536"}) {
    ExampleProgram server({EXAMPLE_PINGPONG, "server", name}, [&] { hosts_.enter(kServer); });
    ExampleProgram client({EXAMPLE_PINGPONG, "client", at_server(name), bytes, "100"}, [&] { hosts_.enter(kClient); });
    EXPECT_THAT(client.hear_after_waiting(), MatchesRegex(std::string(bytes) + " bytes: .* us one way"));
    EXPECT_EQ(client.finish(), 0);
    EXPECT_EQ(server.finish(), 0);
  }
}

TEST_F(ViplHosts, ARejectedRequestSaysSo) {
  const std::string name = own_name("reject");
  Child server = there([&] {
    Program program;
    NetAddress local(program.nic, name), remote;
    VIP_VI_ATTRIBUTES theirs;
    VIP_CONN_HANDLE connection = nullptr;
    CHILD_EXPECT(VipConnectWait(program.nic, local.get(), kSoon, remote.get(), &theirs, &connection) == VIP_SUCCESS);
    CHILD_EXPECT(VipConnectReject(connection) == VIP_SUCCESS);
    return 0;
  });
  Child client = here([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    VIP_RETURN said;
    while ((said = request(program, name, vi, 300)) == VIP_NO_MATCH || said == VIP_TIMEOUT) continue;
    CHILD_EXPECT(said == VIP_REJECT);
    CHILD_EXPECT(program.state(vi) == VIP_STATE_IDLE);
    return 0;
  });
  EXPECT_EQ(client.wait(), 0);
  EXPECT_EQ(server.wait(), 0);
}

TEST_F(ViplHosts, WhoHasALevelOfItsOwnIsRefused) {
  const std::string name = own_name("level");
  Child server = there([&] {
    Program program;
    return program.serve(name, program.make_vi({.level = VIP_SERVICE_RELIABLE_RECEPTION})) ==
                   VIP_INVALID_RELIABILITY_LEVEL
               ? 0
               : 1;
  });
  Child client = here([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    VIP_RETURN said;
    while ((said = request(program, name, vi, 300)) == VIP_NO_MATCH || said == VIP_TIMEOUT) continue;
    CHILD_EXPECT(said != VIP_SUCCESS);
    return 0;
  });
  EXPECT_EQ(server.wait(), 0);
  client.kill();
}

TEST_F(ViplHosts, AKilledServerIsNoticed) {
  ::setenv("VIADUCT_NETWORK_SILENCE", "1", 1);
  const std::string name = own_name("killed");
  ExampleProgram server({EXAMPLE_PINGPONG, "server", name}, [&] { hosts_.enter(kServer); });
  ExampleProgram client({EXAMPLE_PINGPONG, "client", at_server(name), "4", "2000000000"},
                        [&] { hosts_.enter(kClient); });
  ::unsetenv("VIADUCT_NETWORK_SILENCE");
  ::usleep(700'000);
  server.signal(SIGKILL);
  EXPECT_THAT(client.hear_after_waiting(), MatchesRegex("the server has gone, after [0-9]+ rounds of 2000000000"));
  EXPECT_EQ(client.finish(), 1);
}

}  // namespace
}  // namespace viaduct::vipl::testing
