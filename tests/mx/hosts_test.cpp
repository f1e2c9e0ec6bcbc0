// Between two hosts: the same programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/two_hosts.hpp"
#include "mx/api_pair.hpp"
#include "mx/soak.hpp"

namespace viaduct::mx::testing {
namespace {

using viaduct::testing::Child;
using viaduct::testing::HangGuard;

constexpr TwoHosts::Host kSides[] = {TwoHosts::left, TwoHosts::right};

std::uint64_t nic_of(TwoHosts::Host host) {
  return nic_of_ipv4(10u << 24 | 77u << 16 | (host == TwoHosts::left ? 1u : 2u));
}

class MxHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.missing().empty()) GTEST_SKIP() << hosts_.missing();
  }
  template <class Body>
  std::unique_ptr<Child> on(TwoHosts::Host host, Body body) {
    return std::make_unique<Child>([&] {
      hosts_.enter(host);
      return body();
    });
  }
  void soak(int ranks, std::uint32_t messages) {
    const SoakPlan plan = soak_plan(ranks, messages);
    std::vector<std::unique_ptr<Child>> all;
    for (int rank = 0; rank < plan.ranks; ++rank)
      all.push_back(on(kSides[rank % 2], [&, rank] {
        return soak_rank(plan, rank, 0, 100, [](int other) { return nic_of(kSides[other % 2]); });
      }));
    for (auto& rank : all) EXPECT_EQ(rank->wait(), 0) << "seed " << plan.seed;
  }
  HangGuard guard_;
  TwoHosts hosts_;
};

TEST_F(MxHosts, ThePingPongIsTheSameProgram) {
  for (const char* const size : {"0", "1000", "32768", "1000000"}) {
    auto server =
        on(TwoHosts::left, [&] { return ::execl(EXAMPLE_MX_PINGPONG, EXAMPLE_MX_PINGPONG, "-e", "3", nullptr); });
    auto client = on(TwoHosts::right, [&] {
      return ::execl(EXAMPLE_MX_PINGPONG, EXAMPLE_MX_PINGPONG, "-d", "10.77.0.1", "-r", "3", "-N", "20", "-S", size,
                     nullptr);
    });
    EXPECT_EQ(client->wait(), 0);
    EXPECT_EQ(server->wait(), 0);
  }
}

// Ranks of one host and of two at the same time.
TEST_F(MxHosts, ASoakOfRandomMessages) {
  soak(4, 60);
}

TEST_F(MxHosts, ASoakWithLosses) {
  if (!hosts_.lose(TwoHosts::left, 5) || !hosts_.lose(TwoHosts::right, 5)) GTEST_SKIP() << "no nft here";
  soak(4, 40);
}

TEST_F(MxHosts, ALongMessageIsGivenUpInTime) {
  auto receiver = on(TwoHosts::left, [&] {
    (void)mx_init();
    mx_set_error_handler(MX_ERRORS_RETURN);
    mx_endpoint_t own;
    CHILD_EXPECT(mx_open_endpoint(0, 5, 0, nullptr, 0, &own) == MX_SUCCESS);
    mx_status_t status;
    std::uint32_t result = 0;
    CHILD_EXPECT(mx_probe(own, 20000, 2, MX_MATCH_MASK_NONE, &status, &result) == MX_SUCCESS && result == 1);
    std::vector<char> in(1'000'000);  // its sender has given it up by then
    mx_segment_t segment{in.data(), 1'000'000};
    mx_request_t request;
    CHILD_EXPECT(mx_irecv(own, &segment, 1, 1, MX_MATCH_MASK_NONE, nullptr, &request) == MX_SUCCESS);
    CHILD_EXPECT(mx_wait(own, &request, 20000, &status, &result) == MX_SUCCESS && result == 1);
    CHILD_EXPECT(status.code == MX_STATUS_ABORTED);
    CHILD_EXPECT(mx_close_endpoint(own) == MX_SUCCESS);
    return 0;
  });
  auto sender = on(TwoHosts::right, [&] {
    (void)mx_init();
    mx_set_error_handler(MX_ERRORS_RETURN);
    mx_endpoint_t own;
    mx_endpoint_addr_t there;
    CHILD_EXPECT(mx_open_endpoint(0, 5, 0, nullptr, 0, &own) == MX_SUCCESS);
    CHILD_EXPECT(mx_connect(own, nic_of(TwoHosts::left), 5, 0, 20000, &there) == MX_SUCCESS);
    std::vector<char> out(1'000'000);
    mx_segment_t segment{out.data(), 1'000'000};
    mx_request_t request;
    CHILD_EXPECT(mx_isend(own, &segment, 1, there, 1, nullptr, &request) == MX_SUCCESS);
    CHILD_EXPECT(mx_set_request_timeout(own, request, 50) == MX_SUCCESS);
    mx_status_t status;
    std::uint32_t result = 0;
    CHILD_EXPECT(mx_wait(own, &request, 20000, &status, &result) == MX_SUCCESS && result == 1);
    CHILD_EXPECT(status.code == MX_STATUS_TIMEOUT);
    CHILD_EXPECT(mx_issend(own, nullptr, 0, there, 2, nullptr, &request) == MX_SUCCESS);
    CHILD_EXPECT(mx_set_request_timeout(own, request, 3000) == MX_SUCCESS);
    CHILD_EXPECT(mx_wait(own, &request, 20000, &status, &result) == MX_SUCCESS && result == 1);
    return 0;
  });
  EXPECT_EQ(sender->wait(), 0);
  EXPECT_EQ(receiver->wait(), 0);
}

TEST_F(MxHosts, ADeadPartnerIsNoticed) {
  ::setenv("VIADUCT_NETWORK_SILENCE", "2", 1);
  auto survivor = on(TwoHosts::left, [&] {
    (void)mx_init();
    mx_set_error_handler(MX_ERRORS_RETURN);
    mx_endpoint_t own;
    CHILD_EXPECT(mx_open_endpoint(0, 5, 0, nullptr, 0, &own) == MX_SUCCESS);
    mx_request_t request;
    mx_status_t status;
    std::uint32_t result = 0;
    CHILD_EXPECT(mx_irecv(own, nullptr, 0, 1, MX_MATCH_MASK_NONE, nullptr, &request) == MX_SUCCESS);
    CHILD_EXPECT(mx_wait(own, &request, 20000, &status, &result) == MX_SUCCESS && result == 1);
    std::vector<char> out(1'000'000);
    mx_segment_t segment{out.data(), 1'000'000};
    CHILD_EXPECT(mx_isend(own, &segment, 1, status.source, 1, nullptr, &request) == MX_SUCCESS);
    CHILD_EXPECT(mx_wait(own, &request, 30000, &status, &result) == MX_SUCCESS && result == 1);
    CHILD_EXPECT(status.code == MX_STATUS_ENDPOINT_UNREACHABLE);
    return 0;
  });
  auto victim = on(TwoHosts::right, [&] {
    (void)mx_init();
    mx_set_error_handler(MX_ERRORS_RETURN);
    mx_endpoint_t own;
    mx_endpoint_addr_t there;
    CHILD_EXPECT(mx_open_endpoint(0, 5, 0, nullptr, 0, &own) == MX_SUCCESS);
    CHILD_EXPECT(mx_connect(own, nic_of(TwoHosts::left), 5, 0, 20000, &there) == MX_SUCCESS);
    mx_request_t request;
    CHILD_EXPECT(mx_issend(own, nullptr, 0, there, 1, nullptr, &request) == MX_SUCCESS);
    mx_status_t status;
    std::uint32_t result = 0;
    CHILD_EXPECT(mx_wait(own, &request, 20000, &status, &result) == MX_SUCCESS && result == 1);
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  EXPECT_EQ(victim->wait(), -SIGKILL);
  EXPECT_EQ(survivor->wait(), 0);
  ::unsetenv("VIADUCT_NETWORK_SILENCE");
}

}  // namespace
}  // namespace viaduct::mx::testing
