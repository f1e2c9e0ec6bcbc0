// The scripts of the tree: ./viaduct and .ci/run. Nothing here builds: the words used stop before that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "house/program.hpp"

namespace viaduct::house {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Outcome viaduct(std::vector<std::string> words) {
  words.insert(words.begin(), (source_dir() / "viaduct").string());
  return run(words);
}

TEST(Script, IsShell) {
  EXPECT_EQ(run({"sh", "-n", (source_dir() / "viaduct").string()}).code, 0);
  EXPECT_EQ(run({"bash", "-n", (source_dir() / ".ci/run").string()}).code, 0);
}

TEST(Script, PassesShellcheck) {
  if (!on_the_path("shellcheck")) GTEST_SKIP() << "shellcheck is not installed";
  const Outcome said = run({"shellcheck", (source_dir() / "viaduct").string(), (source_dir() / ".ci/run").string()});
  EXPECT_EQ(said.code, 0) << said.output;
}

TEST(Script, SaysHowItsOwnWordsAreUsed) {
  for (const char* word : {"build", "test", "install"}) {
    const Outcome said = viaduct({word, "--help"});
    EXPECT_EQ(said.code, 0) << said.output;
    EXPECT_THAT(said.output, StartsWith(std::string("usage: viaduct ") + word));
  }
}

TEST(Script, RefusesAPresetThatDoesNotExist) {
  for (const char* word : {"build", "test"}) {
    const Outcome said = viaduct({word, "--preset", "fastest"});
    EXPECT_EQ(said.code, 2) << said.output;
    EXPECT_THAT(said.output, HasSubstr("'fastest'"));
    EXPECT_EQ(viaduct({word, "--preset"}).code, 2);
  }
}

TEST(Script, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(viaduct({"build", "--fast"}).code, 2);
  EXPECT_EQ(viaduct({"install"}).code, 2);
  EXPECT_EQ(viaduct({"install", "--where"}).code, 2);
}

TEST(Script, KnowsThePresetsThereAre) {
  const std::string usage = viaduct({"build", "--help"}).output;
  const std::string presets = text_of(source_dir() / "CMakePresets.json");
  for (const char* preset : {"release", "debug", "asan", "tsan"}) {
    EXPECT_THAT(usage, HasSubstr(preset));
    EXPECT_THAT(presets, HasSubstr("\"name\": \"" + std::string(preset) + "\""));
  }
}

}  // namespace
}  // namespace viaduct::house
