// Each group of the conformance program as a test: natively and under the library, call by call.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

class Conformance : public ::testing::TestWithParam<const char*> {};

TEST_P(Conformance, SameAsNatively) {
  if (std::string(VIADUCT_SANITIZERS) != "")
    GTEST_SKIP() << "a sanitizer's run time cannot be preloaded into other programs";
  const std::string command =
      std::string(SOCKETS_CONFORMANCE) + " --compare " + SOCKETS_LIBRARY + " --only " + GetParam() + ". 2>&1";
  std::FILE* const output = ::popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string text;
  for (std::array<char, 512> buffer; std::fgets(buffer.data(), buffer.size(), output) != nullptr;)
    text += buffer.data();
  EXPECT_EQ(::pclose(output), 0) << text;
}

INSTANTIATE_TEST_SUITE_P(Sockets, Conformance,
                         ::testing::Values("data", "life", "options", "wait", "signals", "epoll", "process"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
