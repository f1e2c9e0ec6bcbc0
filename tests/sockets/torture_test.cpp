// The torture program under the library, in doses for every day; VIADUCT_TORTURE multiplies them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct Dose {
  const char* mode;
  int rounds;
  // Connections go back to TCP and come to the ring again all the time (VIADUCT_SOCKETS_JUDGE).
  bool back_and_forth = false;
};

class Torture : public ::testing::TestWithParam<Dose> {};

TEST_P(Torture, NothingIsLostAndNobodyHangs) {
  if (std::string(VIADUCT_SANITIZERS) != "")
    GTEST_SKIP() << "a sanitizer's run time cannot be preloaded into other programs";
  const char* const times = std::getenv("VIADUCT_TORTURE");
  const int rounds = GetParam().rounds * std::max(times != nullptr ? std::atoi(times) : 1, 1);
  const std::string judge = GetParam().back_and_forth ? "VIADUCT_SOCKETS_JUDGE=always " : "";
  const std::string command = judge + "LD_PRELOAD=" + SOCKETS_LIBRARY + " " + SOCKETS_TORTURE + " " + GetParam().mode +
                              " " + std::to_string(rounds) + " 2>&1";
  std::FILE* const output = ::popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string text;
  for (std::array<char, 512> buffer; std::fgets(buffer.data(), buffer.size(), output) != nullptr;)
    text += buffer.data();
  const int status = ::pclose(output);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "this machine does not let " << GetParam().mode << " be tried";
  EXPECT_EQ(status, 0) << text;
}

INSTANTIATE_TEST_SUITE_P(Sockets, Torture,
                         ::testing::Values(Dose{"kill", 100}, Dose{"mix", 50}, Dose{"leave", 200}, Dose{"family", 12},
                                           Dose{"crowd", 1000}, Dose{"pool", 2000}, Dose{"waiters", 1},
                                           Dose{"reopen", 100}, Dose{"stopped", 60}, Dose{"torn", 60},
                                           Dose{"storm", 100}, Dose{"row", 100}, Dose{"idle", 100}, Dose{"hostile", 40},
                                           Dose{"giga", 2}, Dose{"asked", 5}, Dose{"late", 3}, Dose{"limit", 60},
                                           Dose{"unread", 3}, Dose{"namespaces", 3}, Dose{"nofile", 5},
                                           Dose{"no-memfd", 3}, Dose{"no-memory", 3}, Dose{"no-proc", 3},
                                           Dose{"kill", 50, true}, Dose{"mix", 50, true}, Dose{"leave", 50, true},
                                           Dose{"family", 6, true}, Dose{"crowd", 500, true}, Dose{"pool", 1000, true},
                                           Dose{"waiters", 1, true}, Dose{"giga", 1, true}),
                         [](const auto& given) {
                           std::string name = given.param.mode;
                           std::erase(name, '-');
                           if (given.param.back_and_forth) name += "_back_and_forth";
                           return name;
                         });

}  // namespace
