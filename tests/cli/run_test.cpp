#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cli/preload_library.hpp"
#include "cli/talking.hpp"

namespace viaduct::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

class Run : public testing::Test {
 protected:
  void SetUp() override { SKIP_IF_SANITIZED(); }
};

TEST_F(Run, TheExitCodeIsTheProgramsAndNothingIsSaid) {
  const Outcome outcome = run_command({"run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"});
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.out, "out\n");
  EXPECT_EQ(outcome.err, "err\n");
}

TEST_F(Run, SaysOnceWhatAServerThatMayBecomeAnotherUserNeeds) {
  if (::getuid() != 0) GTEST_SKIP() << "only who starts as root may";
  const auto said = [](const Arguments& options) {
    Arguments words{"run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", talker("-user"), "idle"});
    return run_command(words).err;
  };
  EXPECT_THAT(said({}), HasSubstr("can change to another user"));
  EXPECT_THAT(said({}), HasSubstr("`viaduct run --peers any`, on both sides"));
  EXPECT_EQ(said({"--peers", "any"}), "");
  EXPECT_EQ(said({"--peers", "user"}), "");
}

TEST_F(Run, IsSilentOfWhatMostlyIsNot) {
  EXPECT_EQ(run_command({"run", "--", talker("-uring"), "idle"}).err, "");
  EXPECT_THAT(run_command({"run", "--verbose", "--", talker("-uring"), "idle"}).err, HasSubstr("liburing"));
}

TEST_F(Run, HelpNamesTheProgramAndItsExitCodes) {
  const Outcome outcome = run_command({"run", "--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("Usage: viaduct run [OPTIONS] -- PROGRAM [ARGUMENT...]"));
  EXPECT_THAT(outcome.out, HasSubstr("127 there is none"));
}

TEST_F(Run, PutsTheLibraryInFrontOfWhatIsThere) {
  const Outcome outcome =
      run_command({"run", "--", "sh", "-c", "echo $LD_PRELOAD"}, {{"LD_PRELOAD", "libm.so.6 libdl.so.2"}});
  EXPECT_THAT(outcome.out, ContainsRegex("^/.*/libviaduct-sockets.so:libm.so.6:libdl.so.2\n$"));
}

TEST_F(Run, InsideItselfPreloadsOnce) {
  const Outcome once = run_command({"run", "--", "sh", "-c", "echo $LD_PRELOAD"});
  const Outcome twice = run_command({"run", "--", VIADUCT_COMMAND, "run", "--", "sh", "-c", "echo $LD_PRELOAD"});
  EXPECT_EQ(once.out, twice.out);
  EXPECT_EQ(twice.err, "");
}

TEST_F(Run, TheLibraryIsReallyThere) {
  const Outcome outcome = run_command({"run", "cat", "/proc/self/maps"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("/libviaduct-sockets.so"));
}

TEST_F(Run, OptionsBecomeSettings) {
  const Arguments show{"sh", "-c", "echo $VIADUCT_SPIN_US $VIADUCT_PEERS"};
  Arguments words{"run", "--spin", "7", "--peers", "any", "--"};
  words.insert(words.end(), show.begin(), show.end());
  EXPECT_EQ(run_command(words).out, "7 any\n");
}

TEST_F(Run, EverythingBehindTheProgramIsItsOwn) {
  const Arguments printed{"printf", "%s|", "--json", "--", "ls", "--spin"};
  for (const Arguments& start : {Arguments{"run"}, Arguments{"run", "--"}, Arguments{"run", "--spin", "3"}}) {
    Arguments words = start;
    words.insert(words.end(), printed.begin(), printed.end());
    EXPECT_EQ(run_command(words).out, "--json|--|ls|--spin|");
  }
}

TEST_F(Run, VerboseSaysWhatIsPreloaded) {
  const Outcome outcome = run_command({"run", "--verbose", "--", talker(), "wrong"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("is dynamically linked"));
  EXPECT_THAT(outcome.err, ContainsRegex("library /.*/libviaduct-sockets.so [0-9]"));
  EXPECT_THAT(outcome.err, HasSubstr("viaduct ls "));
}

TEST_F(Run, AWrongLibraryLeavesTheProgramOnTcp) {
  for (const char* library : {"/no/such/library.so", "/etc/passwd", "/bin/sh", "/dev"}) {
    const Outcome outcome = run_command({"run", "--library", library, "--", "sh", "-c", "echo $LD_PRELOAD; exit 3"});
    EXPECT_EQ(outcome.code, 3) << library;
    EXPECT_EQ(outcome.out, "\n");
    EXPECT_THAT(outcome.err, StartsWith("viaduct: sh runs on kernel TCP: ")) << library;
    EXPECT_THAT(outcome.err, HasSubstr(library));
    EXPECT_EQ(lines_in(outcome.err), 1u);
  }
}

TEST_F(Run, ALibraryOfAnotherVersionIsUsedWithAWord) {
  const std::filesystem::path folder = testing::TempDir() + "viaduct-run-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const std::string other = (folder / "libviaduct-sockets.so").string();
  const std::filesystem::path own = std::filesystem::path(VIADUCT_COMMAND).parent_path().parent_path() / "lib";
  std::ofstream(folder / "version", std::ios::binary) << "9.9.9" << '\0';
  const std::string tool = "objcopy --update-section .viaduct.version=" + (folder / "version").string() + " " +
                           (own / "libviaduct-sockets.so").string() + " " + other;
  const bool made = std::system(tool.c_str()) == 0;
  const Outcome outcome = run_command({"run", "--library", other, "--", "sh", "-c", "echo $LD_PRELOAD"});
  std::filesystem::remove_all(folder);
  if (!made) GTEST_SKIP() << "objcopy is not there or does not work: " << tool;
  EXPECT_EQ(outcome.out, other + "\n");
  EXPECT_THAT(outcome.err, HasSubstr("is of version 9.9.9, this command of "));
}

TEST_F(Run, AStaticProgramRunsWithAWord) {
  const Outcome outcome = run_command({"run", "--", talker("-static"), "wrong"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("runs on kernel TCP: it is statically linked"));
  EXPECT_THAT(outcome.err, HasSubstr("usage: talker"));
}

TEST(RunErrors, AProgramThatIsNotThere) {
  const Outcome outcome = run_command({"run", "--", "no-such-program"});
  EXPECT_EQ(outcome.code, 127);
  EXPECT_EQ(outcome.err, "viaduct: there is no program 'no-such-program' in PATH\n");
}

TEST(RunErrors, AFileThatIsNoProgram) {
  const Outcome outcome = run_command({"run", "--", "/etc/passwd"});
  EXPECT_EQ(outcome.code, 126);
  EXPECT_THAT(outcome.err, HasSubstr("/etc/passwd is not a program that you may run"));
}

TEST(RunErrors, NoProgramOrABadOptionIsAUsageError) {
  EXPECT_THAT(run_command({"run"}).err, HasSubstr("run what?"));
  EXPECT_EQ(run_command({"run"}).code, 2);
  EXPECT_EQ(run_command({"run", "--spin", "long", "--", "true"}).code, 2);
  EXPECT_EQ(run_command({"run", "--peers", "friends", "--", "true"}).code, 2);
}

TEST(PreloadLibrary, ComesFirstAndOnce) {
  EXPECT_EQ(with_preload("/l/our.so", ""), "/l/our.so");
  EXPECT_EQ(with_preload("/l/our.so", "a.so b.so:c.so"), "/l/our.so:a.so:b.so:c.so");
  EXPECT_EQ(with_preload("/l/our.so", "a.so:/l/our.so"), "/l/our.so:a.so");
}

}  // namespace
}  // namespace viaduct::cli
