// Connecting: client and server, between equals; what both are told when it fails; times.
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <thread>

#include "via/port/handshake.hpp"
#include "via/port/port.hpp"
#include "via/vipl/memory.hpp"
#include "via/vipl/peer_request.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

class ViplConnect : public ::testing::Test {
 protected:
  HangGuard guard_;
  const std::string name_ = own_name(::testing::UnitTest::GetInstance()->current_test_info()->name());
};

double milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

TEST_F(ViplConnect, ClientAndServerInTwoProcesses) {
  Child server([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = 5000, .rdma_write = true});
    NetAddress local(program.nic, name_), remote;
    VIP_VI_ATTRIBUTES theirs{};
    VIP_CONN_HANDLE connection = nullptr;
    CHILD_EXPECT(VipConnectWait(program.nic, local.get(), kSoon, remote.get(), &theirs, &connection) == VIP_SUCCESS);
    CHILD_EXPECT(remote.discriminator() == "the client");
    CHILD_EXPECT(theirs.MaxTransferSize == 5000 && theirs.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
    CHILD_EXPECT(!theirs.EnableRdmaWrite && theirs.EnableRdmaRead);
    CHILD_EXPECT(program.post_receive(vi, 0, 0, 16) == VIP_SUCCESS);
    CHILD_EXPECT(VipConnectAccept(connection, vi) == VIP_SUCCESS);
    CHILD_EXPECT(VipConnectAccept(connection, vi) == VIP_INVALID_PARAMETER);  // used up
    CHILD_EXPECT(program.state(vi) == VIP_STATE_CONNECTED);
    CHILD_EXPECT(received(vi) == program.descriptor(0));
    CHILD_EXPECT(std::memcmp(program.data(), "over the viaduct", 16) == 0);
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = 5000, .rdma_read = true});
  NetAddress local(program.nic, "the client"), remote(program.nic, name_);
  VIP_VI_ATTRIBUTES theirs{};
  ASSERT_EQ(VipConnectRequest(vi, local.get(), remote.get(), kSoon, &theirs), VIP_SUCCESS);
  EXPECT_TRUE(theirs.EnableRdmaWrite);
  EXPECT_FALSE(theirs.EnableRdmaRead);
  EXPECT_EQ(VipConnectRequest(vi, local.get(), remote.get(), kSoon, &theirs), VIP_INVALID_STATE);
  std::memcpy(program.data(), "over the viaduct", 16);
  ASSERT_EQ(program.post_send(vi, 0, 0, 16), VIP_SUCCESS);
  EXPECT_EQ(sent(vi), program.descriptor(0));
  EXPECT_EQ(server.wait(), 0);
}

TEST_F(ViplConnect, PeersInTwoProcessesWhoeverComesFirst) {
  for (const bool swapped : {false, true}) {
    const std::string one = name_ + ".1", two = name_ + ".2";
    Child other([&] {
      Program program;
      const VIP_VI_HANDLE vi = program.make_vi();
      CHILD_EXPECT(program.post_receive(vi, 0, 0, 8) == VIP_SUCCESS);
      CHILD_EXPECT(program.meet(swapped ? one : two, swapped ? two : one, vi) == VIP_SUCCESS);
      CHILD_EXPECT(received(vi) == program.descriptor(0));
      CHILD_EXPECT(program.post_send(vi, 1, 0, 8) == VIP_SUCCESS);
      CHILD_EXPECT(sent(vi) == program.descriptor(1));
      // Until the other has read it and gone.
      CHILD_EXPECT(program.post_receive(vi, 0, 0, 8) == VIP_SUCCESS);
      CHILD_EXPECT(received(vi, VIP_DESCRIPTOR_ERROR) == program.descriptor(0));
      return 0;
    });
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    ASSERT_EQ(program.post_receive(vi, 0, 0, 8), VIP_SUCCESS);
    ASSERT_EQ(program.meet(swapped ? two : one, swapped ? one : two, vi), VIP_SUCCESS);
    ASSERT_EQ(program.post_send(vi, 1, 0, 8), VIP_SUCCESS);
    EXPECT_EQ(sent(vi), program.descriptor(1));
    EXPECT_EQ(received(vi), program.descriptor(0));
    EXPECT_EQ(VipDisconnect(vi), VIP_SUCCESS);
    EXPECT_EQ(other.wait(), 0);
  }
}

TEST_F(ViplConnect, PeersUnderOneName) {
  Child other([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    CHILD_EXPECT(program.meet(name_, name_, vi) == VIP_SUCCESS);
    CHILD_EXPECT(program.post_receive(vi, 0, 0, 8) == VIP_SUCCESS);
    CHILD_EXPECT(received(vi, VIP_DESCRIPTOR_ERROR) == program.descriptor(0));
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  EXPECT_EQ(program.meet(name_, name_, vi), VIP_SUCCESS);
  EXPECT_EQ(VipDisconnect(vi), VIP_SUCCESS);
  EXPECT_EQ(other.wait(), 0);
}

TEST_F(ViplConnect, PeerRequestsDoNotBlock) {
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  NetAddress local(program.nic, name_ + ".1"), remote(program.nic, name_ + ".2");
  EXPECT_EQ(VipConnectPeerDone(vi, nullptr), VIP_INVALID_STATE) << "nothing was asked for";
  ASSERT_EQ(VipConnectPeerRequest(vi, local.get(), remote.get(), VIP_INFINITE), VIP_SUCCESS);
  EXPECT_EQ(program.state(vi), VIP_STATE_CONNECT_PENDING);
  EXPECT_EQ(VipConnectPeerDone(vi, nullptr), VIP_NOT_DONE);
  EXPECT_EQ(VipConnectPeerRequest(vi, local.get(), remote.get(), kSoon), VIP_INVALID_STATE);
  EXPECT_EQ(VipDestroyVi(vi), VIP_INVALID_STATE);
  EXPECT_EQ(VipDisconnect(vi), VIP_SUCCESS) << "calls it off";
  EXPECT_EQ(program.state(vi), VIP_STATE_IDLE);
  EXPECT_EQ(VipConnectPeerRequest(vi, local.get(), remote.get(), 0), VIP_INVALID_PARAMETER);
}

// Asked again after its end, it says the same: the first to ask is VipConnectPeerRequest itself, which tells nobody.
TEST_F(ViplConnect, TheEndOfAPeerRequestIsRemembered) {
  const auto port = std::move(*via::Port::open(meeting::Peers::own_user, true));
  Description first{}, second{};
  first.max_transfer = second.max_transfer = 4096;
  const auto name = [&](WireAddress& address, const std::string& text) {
    address.discriminator_length = static_cast<std::uint16_t>(text.size());
    text.copy(reinterpret_cast<char*>(address.bytes), sizeof address.bytes);
  };
  name(first.local, name_ + ".1"), name(first.remote, name_ + ".2");
  name(second.local, name_ + ".2"), name(second.remote, name_ + ".1");
  via::Terms terms;
  terms.options = {.bulk_bytes = 4096, .slots = 8};
  PeerRequest opener(port, first, terms, Deadline::never());
  PeerRequest joiner(port, second, terms, Deadline::never());
  while (joiner.advance() == VIP_NOT_DONE) (void)opener.advance();
  EXPECT_EQ(joiner.advance(), VIP_SUCCESS);
  EXPECT_EQ(opener.advance(), VIP_SUCCESS);
  EXPECT_EQ(opener.advance(), VIP_SUCCESS);
}

// ---- refusals

TEST_F(ViplConnect, ARejectIsTold) {
  Child server([&] {
    Program program;
    NetAddress local(program.nic, name_), remote;
    VIP_VI_ATTRIBUTES theirs{};
    VIP_CONN_HANDLE connection = nullptr;
    CHILD_EXPECT(VipConnectWait(program.nic, local.get(), kSoon, remote.get(), &theirs, &connection) == VIP_SUCCESS);
    CHILD_EXPECT(VipConnectReject(connection) == VIP_SUCCESS);
    CHILD_EXPECT(VipConnectReject(connection) == VIP_INVALID_PARAMETER);
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  EXPECT_EQ(program.request(name_, vi), VIP_REJECT);
  EXPECT_EQ(program.state(vi), VIP_STATE_IDLE);
  EXPECT_EQ(server.wait(), 0);
}

// A server may try several VIs: the client is told nothing until one fits.
TEST_F(ViplConnect, VisThatDoNotAgreeAreNotConnected) {
  Child server([&] {
    Program program;
    const VIP_VI_HANDLE unreliable = program.make_vi({.level = VIP_SERVICE_UNRELIABLE});
    const VIP_VI_HANDLE reception = program.make_vi({.level = VIP_SERVICE_RELIABLE_RECEPTION});
    const VIP_VI_HANDLE small = program.make_vi({.max_transfer = 4096});
    const VIP_VI_HANDLE fits = program.make_vi();
    NetAddress local(program.nic, name_), remote;
    VIP_VI_ATTRIBUTES theirs{};
    VIP_CONN_HANDLE connection = nullptr;
    CHILD_EXPECT(VipConnectWait(program.nic, local.get(), kSoon, remote.get(), &theirs, &connection) == VIP_SUCCESS);
    CHILD_EXPECT(VipConnectAccept(connection, unreliable) == VIP_INVALID_RELIABILITY_LEVEL);
    CHILD_EXPECT(VipConnectAccept(connection, reception) == VIP_INVALID_RELIABILITY_LEVEL);
    CHILD_EXPECT(VipConnectAccept(connection, small) == VIP_INVALID_MTU);
    CHILD_EXPECT(program.state(small) == VIP_STATE_IDLE);
    Program other;
    CHILD_EXPECT(VipConnectAccept(connection, other.make_vi()) == VIP_INVALID_PARAMETER);  // another adapter's
    CHILD_EXPECT(VipConnectAccept(connection, fits) == VIP_SUCCESS);
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  EXPECT_EQ(program.request(name_, vi), VIP_SUCCESS);
  EXPECT_EQ(server.wait(), 0);
}

TEST_F(ViplConnect, PeersThatDoNotAgreeAreBothTold) {
  Program program;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi({.level = VIP_SERVICE_UNRELIABLE});
  NetAddress first(program.nic, name_ + ".1"), second(program.nic, name_ + ".2");
  for (const VIP_RETURN expected : {VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU}) {
    ASSERT_EQ(VipConnectPeerRequest(a, first.get(), second.get(), kSoon), VIP_SUCCESS);
    ASSERT_EQ(VipConnectPeerRequest(b, second.get(), first.get(), kSoon), VIP_SUCCESS);
    VIP_RETURN done_a = VIP_NOT_DONE, done_b = VIP_NOT_DONE;
    while (done_a == VIP_NOT_DONE || done_b == VIP_NOT_DONE) {
      if (done_a == VIP_NOT_DONE) done_a = VipConnectPeerDone(a, nullptr);
      if (done_b == VIP_NOT_DONE) done_b = VipConnectPeerDone(b, nullptr);
    }
    EXPECT_EQ(done_a, expected);
    EXPECT_EQ(done_b, expected);
    EXPECT_EQ(program.state(a), VIP_STATE_IDLE);
    EXPECT_EQ(program.state(b), VIP_STATE_IDLE);
    VIP_VI_ATTRIBUTES attributes = program.attributes({.max_transfer = 77});
    ASSERT_EQ(VipSetViAttributes(b, &attributes), VIP_SUCCESS);
  }
}

TEST_F(ViplConnect, AcceptingIntoAConnectedViIsRefused) {
  Program program;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  connect_here(program, a, b);
  Child client([&] {
    Program own;
    const VIP_RETURN result = own.request(name_, own.make_vi());
    CHILD_EXPECT(result == VIP_REJECT);
    return 0;
  });
  NetAddress local(program.nic, name_), remote;
  VIP_CONN_HANDLE connection = nullptr;
  ASSERT_EQ(VipConnectWait(program.nic, local.get(), kSoon, remote.get(), nullptr, &connection), VIP_SUCCESS);
  EXPECT_EQ(VipConnectAccept(connection, a), VIP_INVALID_STATE);
  EXPECT_EQ(VipConnectReject(connection), VIP_SUCCESS);
  EXPECT_EQ(client.wait(), 0);
}

// ---- times

TEST_F(ViplConnect, NobodyThereAndNobodyComing) {
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(program.request(name_, vi, 60), VIP_NO_MATCH);
  EXPECT_GE(milliseconds(start), 60);
  EXPECT_LT(milliseconds(start), kSanitized ? 2000 : 200);
  EXPECT_EQ(program.request(name_, vi, 0), VIP_INVALID_PARAMETER);

  NetAddress local(program.nic, name_), remote;
  VIP_CONN_HANDLE connection = nullptr;
  start = std::chrono::steady_clock::now();
  EXPECT_EQ(VipConnectWait(program.nic, local.get(), 60, remote.get(), nullptr, &connection), VIP_TIMEOUT);
  EXPECT_GE(milliseconds(start), 60);
  EXPECT_LT(milliseconds(start), kSanitized ? 2000 : 200);
  EXPECT_EQ(VipConnectWait(program.nic, local.get(), 0, remote.get(), nullptr, &connection), VIP_TIMEOUT);

  // The server is there now, and does not answer.
  start = std::chrono::steady_clock::now();
  EXPECT_EQ(program.request(name_, vi, 60), VIP_TIMEOUT);
  EXPECT_GE(milliseconds(start), 60);
  EXPECT_EQ(program.state(vi), VIP_STATE_IDLE);

  start = std::chrono::steady_clock::now();
  EXPECT_EQ(program.meet(name_ + ".1", name_ + ".2", vi, 60), VIP_TIMEOUT);
  EXPECT_GE(milliseconds(start), 60);
  EXPECT_EQ(program.state(vi), VIP_STATE_IDLE);
}

TEST_F(ViplConnect, ARequestWaitsForItsServerToAppear) {
  Baton asked;
  Child client([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    asked.give();
    CHILD_EXPECT(program.request(name_, vi, VIP_INFINITE) == VIP_SUCCESS);
    return 0;
  });
  ASSERT_TRUE(asked.take());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it may well be asking by now; if not, nothing is lost
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  EXPECT_EQ(program.serve(name_, vi), VIP_SUCCESS);
  EXPECT_EQ(client.wait(), 0);
}

TEST_F(ViplConnect, AClientThatGaveUpIsNotConnected) {
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi(), other = program.make_vi();
  NetAddress local(program.nic, name_), remote;
  VIP_CONN_HANDLE connection = nullptr;
  ASSERT_EQ(VipConnectWait(program.nic, local.get(), 0, remote.get(), nullptr, &connection), VIP_TIMEOUT);
  EXPECT_EQ(program.request(name_, vi, 20), VIP_TIMEOUT);
  // Its request is in the queue, and it has left.
  if (VipConnectWait(program.nic, local.get(), 20, remote.get(), nullptr, &connection) == VIP_SUCCESS) {
    EXPECT_EQ(VipConnectAccept(connection, other), VIP_TIMEOUT);
    EXPECT_EQ(program.state(other), VIP_STATE_IDLE);
  }
}

// ---- strangers

int stranger(const std::string& name) {
  auto socket = meeting::connect_at(name);
  return socket ? socket->release() : -1;
}

TEST_F(ViplConnect, WhoeverSaysNothingOrNonsenseHoldsNobodyUp) {
  Program program;
  NetAddress local(program.nic, name_), remote;
  VIP_CONN_HANDLE connection = nullptr;
  ASSERT_EQ(VipConnectWait(program.nic, local.get(), 0, remote.get(), nullptr, &connection), VIP_TIMEOUT);
  WireAddress address;
  ASSERT_TRUE(read_address(local.get(), address));
  const std::string socket_name = server_place(address).here;
  const Fd silent(stranger(socket_name)), gone(stranger(socket_name)), babbling(stranger(socket_name));
  ASSERT_TRUE(silent && gone && babbling);
  ::shutdown(gone.get(), SHUT_RDWR);
  const std::vector<char> nonsense(1000, 'x');
  EXPECT_EQ(::send(babbling.get(), nonsense.data(), nonsense.size(), 0), 1000);
  Child client([&] {
    Program own;
    CHILD_EXPECT(own.request(name_, own.make_vi()) == VIP_SUCCESS);
    return 0;
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(program.serve(name_, program.make_vi()), VIP_SUCCESS);
  EXPECT_LT(milliseconds(start), kSanitized ? 10'000 : 2000);
  EXPECT_EQ(client.wait(), 0);
}

TEST_F(ViplConnect, HostsThatDoNotAnswerAreGivenUp) {
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  NetAddress local(program.nic, "client"), far(program.nic, name_);
  const VIP_UINT8 elsewhere[4] = {192, 0, 2, 77};  // reserved for documents
  std::memcpy(far.bytes(), elsewhere, 4);
  EXPECT_EQ(VipConnectRequest(vi, local.get(), far.get(), 100, nullptr), VIP_NO_MATCH);
  EXPECT_EQ(program.state(vi), VIP_STATE_IDLE);
  EXPECT_EQ(VipConnectPeerRequest(vi, local.get(), far.get(), 100), VIP_SUCCESS);
  EXPECT_EQ(VipConnectPeerWait(vi, nullptr), VIP_TIMEOUT);
  EXPECT_EQ(VipConnectWait(program.nic, far.get(), 0, nullptr, nullptr, nullptr), VIP_INVALID_PARAMETER);
  far.get()->DiscriminatorLen = 65;
  EXPECT_EQ(VipConnectRequest(vi, local.get(), far.get(), kSoon, nullptr), VIP_INVALID_PARAMETER) << "too long";
  EXPECT_EQ(program.state(vi), VIP_STATE_IDLE);
}

TEST_F(ViplConnect, LongDiscriminatorsAreToldApart) {
  const std::string long_name = std::string(50, 'n') + name_.substr(name_.size() - 5);
  for (const char last : {'1', '2'}) {
    Child client([&] {
      Program own;
      CHILD_EXPECT(own.request(long_name + last, own.make_vi()) == VIP_SUCCESS);
      return 0;
    });
    Program program;
    EXPECT_EQ(program.serve(long_name + (last == '1' ? '2' : '1'), program.make_vi(), 30), VIP_TIMEOUT);
    EXPECT_EQ(program.serve(long_name + last, program.make_vi()), VIP_SUCCESS);
    EXPECT_EQ(client.wait(), 0);
  }
}

// ---- nothing is left behind

TEST_F(ViplConnect, AKilledServersNameIsFreeAtOnce) {
  Baton waits;
  Child server([&] {
    Program program;
    NetAddress local(program.nic, name_), remote;
    VIP_CONN_HANDLE connection = nullptr;
    (void)VipConnectWait(program.nic, local.get(), 0, remote.get(), nullptr, &connection);
    waits.give();
    (void)VipConnectWait(program.nic, local.get(), VIP_INFINITE, remote.get(), nullptr, &connection);
    return 0;
  });
  ASSERT_TRUE(waits.take());
  Program program;
  EXPECT_EQ(program.serve(name_, program.make_vi(), 20), VIP_ERROR_RESOURCE) << "somebody else waits under that name";
  server.kill();
  (void)server.wait();
  EXPECT_EQ(program.serve(name_, program.make_vi(), 20), VIP_TIMEOUT) << "the name is ours";
}

// A child forked from a connected process must not keep the connection alive.
TEST_F(ViplConnect, AForkedChildDoesNotHoldTheConnection) {
  Baton end;
  Child server([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    CHILD_EXPECT(program.serve(name_, vi) == VIP_SUCCESS);
    if (::fork() == 0) {
      (void)end.take();
      ::_exit(0);
    }
    ::_exit(0);  // without a word
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  ASSERT_EQ(program.post_receive(vi, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program.request(name_, vi), VIP_SUCCESS);
  EXPECT_EQ(received(vi, VIP_DESCRIPTOR_ERROR), program.descriptor(0)) << "the grandchild lives and changes nothing";
  end.give();
  EXPECT_EQ(server.wait(), 0);
}

}  // namespace
}  // namespace viaduct::vipl::testing
