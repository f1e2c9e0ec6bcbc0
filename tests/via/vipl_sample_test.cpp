// A C program that includes vipl.h and links libvipl, as its authors would have: two of it talk.
#include <gtest/gtest.h>

#include <string>

#include "base/child.hpp"

namespace {

using viaduct::testing::Child;

TEST(ViplSample, TalksToItself) {
  const std::string name = "sample." + std::to_string(::getpid());
  const auto run = [&](const char* role, const char* device) {
    return [=] {
      ::execl(VIPL_SAMPLE, VIPL_SAMPLE, role, device, name.c_str(), nullptr);
      return 127;
    };
  };
  for (const char* const device : {"/dev/via_lo", "/dev/clanvi0", "VINIC"}) {
    Child client(run("client", device)), server(run("server", device));
    EXPECT_EQ(client.wait(), 0) << device;
    EXPECT_EQ(server.wait(), 0) << device;
  }
}

}  // namespace
