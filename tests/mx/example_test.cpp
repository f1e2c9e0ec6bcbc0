// A program in C that knows nothing but myriexpress.h, in two processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/child.hpp"
#include "mx/api_pair.hpp"

namespace viaduct::mx::testing {
namespace {

std::string output_of(const std::string& command, int& code) {
  std::string text;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  std::array<char, 256> part;
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  code = ::pclose(pipe);
  return text;
}

TEST(MxExample, MessagesGoBackAndForth) {
  const std::string board = std::to_string(loopback_board());
  const std::string number = std::to_string(20'000 + ::getpid() % 40'000);
  for (const char* size : {"0", "8", "5000", "32768", "100000"}) {
    viaduct::testing::Child server([&] {
      return ::execl(EXAMPLE_MX_PINGPONG, EXAMPLE_MX_PINGPONG, "-b", board.c_str(), "-e", number.c_str(), nullptr);
    });
    int code = -1;
    const std::string text = output_of(std::string("timeout 30 " EXAMPLE_MX_PINGPONG " -b ") + board +
                                           " -d localhost:" + board + " -r " + number + " -N 50 -S " + size,
                                       code);
    EXPECT_EQ(code, 0) << text;
    EXPECT_THAT(text, ::testing::MatchesRegex(std::string(size) + " bytes: [0-9.]+ us one way\n"));
    EXPECT_EQ(server.wait(), 0);
  }
}

}  // namespace
}  // namespace viaduct::mx::testing
