#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/config.hpp"
#include "cli/run_command.hpp"

namespace viaduct::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// A usage error is one line on standard error, nothing on standard output, and exit code 2.
std::string usage_error_of(const Arguments& arguments, const Variables& variables = {}) {
  const Outcome outcome = run_command(arguments, variables);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(lines_in(outcome.err), 1u) << outcome.err;
  return outcome.err;
}

TEST(Usage, AnUnknownCommandNamesTheNearest) {
  EXPECT_EQ(usage_error_of({"inof"}),
            "viaduct: there is no command 'inof'; did you mean 'info'? (viaduct --help lists them)\n");
  EXPECT_EQ(usage_error_of({"tpo", "--once"}),
            "viaduct: there is no command 'tpo'; did you mean 'top'? (viaduct --help lists them)\n");
}

TEST(Usage, ACommandLikeNoOtherNamesNone) {
  EXPECT_EQ(usage_error_of({"xyzzy"}), "viaduct: there is no command 'xyzzy' (viaduct --help lists them)\n");
}

TEST(Usage, NoCommandAtAllListsThem) {
  const std::string error = usage_error_of({});
  EXPECT_THAT(error, HasSubstr("name a command: "));
  for (const char* name : {"demo", "info", "top", "bench"}) EXPECT_THAT(error, HasSubstr(name));
}

TEST(Usage, AnUnknownOptionNamesTheNearestOfItsCommand) {
  EXPECT_EQ(usage_error_of({"info", "--jsn"}),
            "viaduct: info has no option '--jsn'; did you mean '--json'? (viaduct info --help lists them)\n");
  EXPECT_THAT(usage_error_of({"top", "--intervall=3"}), HasSubstr("'--intervall'; did you mean '--interval'?"));
  EXPECT_THAT(usage_error_of({"info", "--once"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(usage_error_of({"--vresion"}), HasSubstr("did you mean '--version'?"));
}

TEST(Usage, EveryWayToAskForTheVersionIsUnderstood) {
  const std::string version = run_command({"--version"}).out;
  EXPECT_THAT(version, testing::StartsWith("viaduct "));
  for (const char* way : {"version", "-V"}) {
    const Outcome outcome = run_command({way}, {{"VIADUCT_SPIN_US", "many"}});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, version);
  }
}

TEST(Usage, HelpTellsDefaults) {
  const std::string help = run_command({"run", "--help"}).out;
  for (const Setting& setting : settings()) {
    if (setting.name != "VIADUCT_SPIN_US" && setting.name != "VIADUCT_PEERS") continue;
    EXPECT_THAT(help, HasSubstr("(" + std::string(setting.name) + "; " + std::string(setting.fallback) + ")"));
  }
  EXPECT_THAT(run_command({"bench", "--help"}).out, HasSubstr("own number if not given"));
}

TEST(Usage, AnArgumentTooManyIsNamed) {
  EXPECT_THAT(usage_error_of({"info", "surplus"}), HasSubstr("info does not take 'surplus'"));
  EXPECT_THAT(usage_error_of({"info", "two\nlines"}), HasSubstr("'two lines'"));
}

TEST(Usage, AMissingOrImpossibleValueIsNamed) {
  EXPECT_THAT(usage_error_of({"top", "--interval"}), HasSubstr("--interval needs a value: SECONDS"));
  EXPECT_THAT(usage_error_of({"top", "--interval", "soon"}), HasSubstr("'soon' is not a number from 0.05 to 3600"));
  EXPECT_THAT(usage_error_of({"top", "--interval", "0"}), HasSubstr("'0' is not a number from"));
  EXPECT_THAT(usage_error_of({"top", "init"}), HasSubstr("'init' is not a number from 1"));
}

TEST(Usage, ABadSettingNamesTheVariableAndWhatItAccepts) {
  const std::string error = usage_error_of({"info"}, {{"VIADUCT_SPIN_US", "many"}});
  EXPECT_THAT(error, HasSubstr("VIADUCT_SPIN_US: 'many'"));
  EXPECT_THAT(error, HasSubstr("0..10000"));
}

TEST(Usage, ABadConfigurationFileNamesTheLine) {
  const std::string path = testing::TempDir() + "viaduct-usage-test-" + std::to_string(::getpid());
  std::ofstream(path) << "# settings\nspin_us = 5\nspin = 6\n";
  EXPECT_THAT(usage_error_of({"top"}, {{"VIADUCT_CONFIG", path}}), HasSubstr(path + ":3: 'spin'"));
  ::unlink(path.c_str());
  EXPECT_THAT(usage_error_of({"top"}, {{"VIADUCT_CONFIG", path}}), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace viaduct::cli
