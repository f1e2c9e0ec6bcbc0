// Programs that cannot load the library are started without it, by whatever way.
#include "sockets/program_loader.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace viaduct::sockets {
namespace {

namespace fs = std::filesystem;

constexpr char kOurLoader[] = "/lib64/ld-linux-x86-64.so.2";
constexpr char kOtherLoader[] = "ld-musl-x86_64.so.1";  // in the folder where the program starts

std::string left_of(std::string libraries) {
  leave_library_out(libraries.data());
  return libraries.c_str();
}

class ProgramLoader : public ::testing::Test {
 protected:
  ProgramLoader() {
    std::string name = (fs::temp_directory_path() / "viaduct-loader-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~ProgramLoader() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }

  // A program of this machine that asks for another loader. Empty: this machine's programs ask for yet another.
  std::string program_with_other_loader() {
    std::ifstream file("/usr/bin/env", std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = text.find(kOurLoader);
    if (at == std::string::npos) return "";
    text.replace(at, sizeof kOurLoader,
                 std::string(kOtherLoader) + std::string(sizeof kOurLoader - sizeof kOtherLoader, '\0') + '\0');
    return write("environment", text);
  }

  fs::path folder_;
  fs::path before_ = fs::current_path();
};

TEST_F(ProgramLoader, ProgramsOfThisMachineTakeIt) {
  EXPECT_EQ(loading_of("/usr/bin/env"), Loading::takes);
  EXPECT_EQ(loading_of(write("script", "#!/usr/bin/env sh\n").c_str()), Loading::takes);
}

TEST_F(ProgramLoader, OursIsKnownByItsFileWhateverItsName) {
  const std::string program = program_with_other_loader();
  if (program.empty()) GTEST_SKIP() << "/usr/bin/env does not ask for " << kOurLoader;
  remember_own_loader();
  fs::current_path(folder_);
  fs::create_symlink(kOurLoader, kOtherLoader);
  EXPECT_EQ(loading_of(program.c_str()), Loading::takes);
  fs::remove(kOtherLoader);
  fs::copy_file(kOurLoader, kOtherLoader);
  EXPECT_EQ(loading_of(program.c_str()), Loading::chokes_on);
  EXPECT_EQ(loading_of("/usr/bin/env"), Loading::takes);
}

TEST_F(ProgramLoader, WhatIsNoProgramIgnoresIt) {
  EXPECT_EQ(loading_of("/nowhere"), Loading::ignores);
  EXPECT_EQ(loading_of(write("empty", "").c_str()), Loading::ignores);
  EXPECT_EQ(loading_of(write("short", "\177ELF\2").c_str()), Loading::ignores);
  EXPECT_EQ(loading_of(write("text", "echo no line for an interpreter\n").c_str()), Loading::ignores);
  const std::string self = (folder_ / "self").string();
  EXPECT_EQ(loading_of(write("self", "#!" + self + "\n").c_str()), Loading::ignores);
}

TEST_F(ProgramLoader, OtherLoadersChokeOnIt) {
  const std::string program = program_with_other_loader();
  if (program.empty()) GTEST_SKIP() << "/usr/bin/env does not ask for " << kOurLoader;
  EXPECT_EQ(loading_of(program.c_str()), Loading::chokes_on);
  EXPECT_EQ(loading_of(write("script", "#! " + program + " -i\n").c_str()), Loading::chokes_on);
}

TEST(PreloadVariable, LosesTheLibraryAndKeepsTheOthers) {
  EXPECT_EQ(left_of("/usr/lib/libviaduct-sockets.so"), "");
  EXPECT_EQ(left_of("a.so"), "a.so");
  EXPECT_EQ(left_of("a.so:/x/libviaduct-sockets.so:b.so"), "a.so:b.so");
  EXPECT_EQ(left_of("/x/libviaduct-sockets.so  a.so b.so"), "a.so:b.so");
  EXPECT_EQ(left_of(":a.so: libviaduct-sockets.so.0 "), "a.so");
  EXPECT_EQ(left_of(""), "");
}

TEST_F(ProgramLoader, SuchProgramsAreStartedWithoutIt) {
  if (std::string(VIADUCT_SANITIZERS) != "")
    GTEST_SKIP() << "a sanitizer's run time cannot be preloaded into other programs";
  if (program_with_other_loader().empty()) GTEST_SKIP() << "/usr/bin/env does not ask for " << kOurLoader;
  fs::copy_file(kOurLoader, folder_ / kOtherLoader);
  const std::string command = "cd " + folder_.string() + " && LD_PRELOAD=" + SOCKETS_LIBRARY +
                              " sh -c './environment; cat /proc/self/environ | tr \"\\0\" \"\\n\"' 2>&1";
  std::FILE* const output = ::popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string text;
  for (std::array<char, 512> line; std::fgets(line.data(), line.size(), output) != nullptr;) text += line.data();
  EXPECT_EQ(::pclose(output), 0) << text;
  // Once, by the second program, and not by the first.
  const std::size_t first = text.find("LD_PRELOAD="), last = text.rfind("LD_PRELOAD=");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(first, last) << text;
}

}  // namespace
}  // namespace viaduct::sockets
