// The scripts of the tree: ./viaduct and .ci/run. Nothing here builds: the words used stop before that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

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
  for (const char* word : {"build", "test", "install", "uninstall"}) {
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
  EXPECT_EQ(viaduct({"uninstall"}).code, 2);
}

// ctest passes over options that it does not know: a misspelt one would run every test.
TEST(Script, RefusesWhatCtestWouldPassOver) {
  for (const char* word : {"--foo", "--labels", "ring", "-Z"}) {
    const Outcome said = viaduct({"test", word});
    EXPECT_EQ(said.code, 2) << said.output;
    EXPECT_THAT(said.output, HasSubstr(std::string("'") + word + "'"));
  }
  EXPECT_EQ(viaduct({"test", "-R"}).code, 2);
  EXPECT_EQ(viaduct({"test", "-R", "ring", "--foo"}).code, 2) << "wherever it stands";
  const Outcome room = viaduct({"test", "--rooms", "base,cellar"});
  EXPECT_EQ(room.code, 2);
  EXPECT_THAT(room.output, HasSubstr("'cellar' (there are: base bench cli"));
}

// Runs the words as a user who may not write where he likes, whoever we are.
Outcome as_nobody(std::vector<std::string> words) {
  if (::getuid() == 0) words.insert(words.begin(), {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
  return run(words);
}

class NotWritable : public testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() == 0 && !on_the_path("setpriv")) GTEST_SKIP() << "setpriv is not installed";
    fs::copy_file(source_dir() / "viaduct", folder_ / "viaduct");
    fs::permissions(folder_.path(), fs::perms(0555));
  }
  void TearDown() override { fs::permissions(folder_.path(), fs::perms(0755)); }
  Folder folder_;
};

TEST_F(NotWritable, ATreeIsNamedWithWhatToDo) {
  const Outcome said = as_nobody({(folder_ / "viaduct").string(), "build"});
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.output,
              StartsWith("viaduct: cannot make " + (folder_ / "build").string() + ": the tree belongs to "));
  EXPECT_EQ(said.output.find('\n'), said.output.size() - 1) << said.output;
}

TEST_F(NotWritable, APrefixIsNamedWithWhatToDo) {
  const std::string prefix = (folder_ / "prefix/of/mine").string();
  const Outcome said = as_nobody({(folder_ / "viaduct").string(), "install", "--prefix", prefix});
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.output, StartsWith("viaduct: cannot install to " + prefix + ": " + folder_.path().string()));
  EXPECT_THAT(said.output, HasSubstr("another --prefix"));
}

TEST_F(NotWritable, NothingToUninstallIsSaid) {
  const Outcome said = as_nobody({(folder_ / "viaduct").string(), "uninstall", "--prefix", folder_.path().string()});
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.output, HasSubstr("Viaduct is not installed at " + folder_.path().string()));
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
