// Other people's tests, the quick ones; tests/external has the rest.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

TEST(External, PythonSeesNoDifference) {
  if (std::string(VIADUCT_SANITIZERS) != "")
    GTEST_SKIP() << "a sanitizer's run time cannot be preloaded into other programs";
  const std::string command = std::string("VIADUCT_EXTERNAL_SECONDS=40 ") + VIADUCT_SOURCE_DIR +
                              "/tests/external/python.sh " + SOCKETS_LIBRARY + " --quick 2>&1";
  std::FILE* const output = ::popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string text;
  for (std::array<char, 512> buffer; std::fgets(buffer.data(), buffer.size(), output) != nullptr;)
    text += buffer.data();
  const int status = ::pclose(output);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << text;
  EXPECT_EQ(status, 0) << text;
}

}  // namespace
