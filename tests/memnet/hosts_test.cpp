// The server on another host: the same calls, over the network.
#include <adma.h>

#include <thread>

#include "base/two_hosts.hpp"
#include "memnet/memnet_lab.hpp"

namespace viaduct::memnet::testing {
namespace {

// The server is on the left, the program and its peers are on the right.
class Hosts : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!hosts.missing().empty()) GTEST_SKIP() << hosts.missing();
    if (GetParam() > 0 && !(hosts.lose(TwoHosts::left, GetParam()) && hosts.lose(TwoHosts::right, GetParam())))
      GTEST_SKIP() << "nothing here loses datagrams";
    hosts.enter(TwoHosts::left);
    server = std::make_unique<ServerProcess>([](ServerOptions& options) { options.on_network = true; });
    hosts.enter(TwoHosts::right);
    const std::string name = TwoHosts::address(TwoHosts::left) + '/' + server->name();
    ASSERT_EQ(memnet_open(name.c_str()), 0) << std::strerror(errno);
    listener = memnet_socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_GE(listener, 0) << std::strerror(errno);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    ASSERT_EQ(memnet_bind(listener, generic(any), sizeof any), 0) << std::strerror(errno);
    ASSERT_EQ(memnet_listen(listener, 16), 0);
    socklen_t length = sizeof address;
    ASSERT_EQ(memnet_getsockname(listener, generic(address), &length), 0);
    ASSERT_EQ(::inet_pton(AF_INET, TwoHosts::address(TwoHosts::left).c_str(), &address.sin_addr), 1);
    there = kernel_connect(address);
    here = memnet_accept(listener, nullptr, nullptr);
    ASSERT_GE(here, 0) << std::strerror(errno);
  }
  void TearDown() override {
    memnet_shut();
    server.reset();
    hosts.leave();
  }

  HangGuard guard;
  TwoHosts hosts;
  std::unique_ptr<ServerProcess> server;
  int listener = -1, here = -1;
  sockaddr_in address{};
  Fd there;
};

TEST_P(Hosts, PlainBytesGoBothWays) {
  const std::string bytes = pattern(400'000);
  std::thread peer([&] {
    std::string got(bytes.size(), 0);
    ASSERT_TRUE(read_all(there.get(), got));
    EXPECT_EQ(got, bytes);
    EXPECT_TRUE(write_all(there.get(), got));
  });
  ASSERT_EQ(memnet_send(here, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  std::string back(bytes.size(), 0);
  EXPECT_EQ(memnet_recv(here, back.data(), back.size(), MSG_WAITALL), static_cast<ssize_t>(back.size()));
  EXPECT_EQ(back, bytes);
  peer.join();
  ::shutdown(there.get(), SHUT_WR);
  EXPECT_EQ(memnet_recv(here, back.data(), 1, 0), 0);
}

TEST_P(Hosts, JobsReachRegisteredMemory) {
  constexpr std::size_t kLength = 500'000;
  auto* const bytes = static_cast<char*>(adma_alloc(kLength));
  const std::string what = pattern(kLength);
  std::memcpy(bytes, what.data(), kLength);
  memnet_mem_t memory;
  ASSERT_EQ(memnet_register_mem(bytes, kLength, &memory), 0);
  std::string got(kLength, 0);
  std::thread reader([&] { EXPECT_TRUE(read_all(there.get(), got)); });
  memnet_job_t jobs[10];
  for (std::size_t i = 0; i < 10; ++i)
    ASSERT_EQ(memnet_async_send(here, memory, i * kLength / 10, kLength / 10, 0, &jobs[i]), 0);
  for (const memnet_job_t job : jobs) {
    memnet_result result{};
    ASSERT_EQ(memnet_job_wait(job, 20'000, &result), 1);
    EXPECT_EQ(result.bytes, static_cast<ssize_t>(kLength / 10));
  }
  reader.join();
  EXPECT_EQ(got, what);
  std::memset(bytes, 0, kLength);
  std::thread writer([&] { EXPECT_TRUE(write_all(there.get(), what)); });
  EXPECT_EQ(memnet_recv_direct(here, memory, 0, kLength, MSG_WAITALL), static_cast<ssize_t>(kLength));
  writer.join();
  EXPECT_EQ(std::string(bytes, kLength), what);
  EXPECT_EQ(memnet_deregister_mem(memory), 0);
  adma_free(bytes);
}

// The server cannot open this host's files: the program reads them.
TEST_P(Hosts, FilesAreReadHere) {
  char name[] = "/tmp/memnet-test-XXXXXX";
  const Fd file(::mkstemp(name));
  ::unlink(name);
  const std::string what = pattern(10'000);
  ASSERT_EQ(::write(file.get(), what.data(), what.size()), static_cast<ssize_t>(what.size()));
  memnet_job_t job;
  EXPECT_EQ(memnet_async_sendfile(here, file.get(), 0, what.size(), 0, &job), -1);
  EXPECT_EQ(errno, EXDEV);
  off_t offset = 0;
  EXPECT_EQ(memnet_sendfile(here, file.get(), &offset, what.size()), static_cast<ssize_t>(what.size()));
  std::string got(what.size(), 0);
  ASSERT_TRUE(read_all(there.get(), got));
  EXPECT_EQ(got, what);
}

INSTANTIATE_TEST_SUITE_P(LosingPerThousand, Hosts, ::testing::Values(0, 5),
                         [](const auto& one) { return std::to_string(one.param); });

}  // namespace
}  // namespace viaduct::memnet::testing
