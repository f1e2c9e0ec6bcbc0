// What is installed is enough: programs outside the tree build against it, in C and in C++, and run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <viaduct/version.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "house/program.hpp"

namespace viaduct::house {
namespace {

using testing::AnyOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

constexpr const char* kProgramInC = R"(
#include <adma.h>
#include <stdio.h>
#include <viaduct/version.h>

int main(void) {
  const char from[] = "over the viaduct";
  char to[sizeof from] = "";
  if (adma_copy(from, to, sizeof from) != 0) return 1;
  printf("%s %s %s\n", viaduct_version(), VIADUCT_VERSION, to);
  return 0;
}
)";

constexpr const char* kProgramInCpp = R"(
#include <viaduct/copy.hpp>
#include <viaduct/version.h>
#include <cstdio>
#include <string>

int main() {
  const std::string from = "over the viaduct";
  std::string to(from.size(), ' ');
  auto operation = viaduct::copy::start(from.data(), to.data(), from.size());
  if (operation.wait()) return 1;
  std::printf("%s %s %s\n", viaduct_version(), VIADUCT_VERSION, to.c_str());
}
)";

// As it would have been written for an adapter of its day.
constexpr const char* kProgramForVipl = R"(
#include <stdio.h>
#include <vipl.h>

int main(void) {
  VIP_NIC_HANDLE nic;
  VIP_NIC_ATTRIBUTES attributes;
  if (VipOpenNic("/dev/clanvi0", &nic) != VIP_SUCCESS) return 1;
  if (VipQueryNic(nic, &attributes) != VIP_SUCCESS) return 1;
  printf("%s\n", attributes.Name);
  return VipCloseNic(nic) != VIP_SUCCESS;
}
)";

constexpr const char* kProgramForMx = R"(
#include <mx_extensions.h>
#include <myriexpress.h>
#include <stdio.h>

int main(void) {
  mx_endpoint_t endpoint;
  mx_endpoint_addr_t address;
  uint32_t number;
  if (mx_init() != MX_SUCCESS) return 1;
  if (mx_open_endpoint(MX_ANY_NIC, 200, 0, NULL, 0, &endpoint) != MX_SUCCESS) return 1;
  if (mx_get_endpoint_addr(endpoint, &address) != MX_SUCCESS) return 1;
  if (mx_decompose_endpoint_addr(address, NULL, &number) != MX_SUCCESS) return 1;
  printf("endpoint %u\n", number);
  return mx_close_endpoint(endpoint) != MX_SUCCESS || mx_finalize() != MX_SUCCESS;
}
)";

constexpr const char* kProgramForMemNet = R"(
#include <errno.h>
#include <memnet.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  if (memnet_open("nobody-serves-here") == 0 || errno != ECONNREFUSED) return 1;
  puts("no server");
  return memnet_close(1) != -1 || errno != EBADF;
}
)";

constexpr const char* kCMakeProject = R"(
cmake_minimum_required(VERSION 3.23)
project(outside LANGUAGES C)
find_package(viaduct 0.1 REQUIRED)
add_executable(outside outside.c)
target_link_libraries(outside PRIVATE viaduct::viaduct)
)";

const std::string kExpected = VIADUCT_VERSION " " VIADUCT_VERSION " over the viaduct\n";

class Install : public testing::Test {
 protected:
  void SetUp() override {
    if (!sanitizers().empty())
      GTEST_SKIP() << "a program outside the tree cannot link a library built with " << sanitizers()
                   << "; the release build runs this test";
    const Outcome installed = run({VIADUCT_CMAKE, "--install", build_dir().string(), "--prefix", prefix_.string()});
    ASSERT_EQ(installed.code, 0) << installed.output;
  }

  std::vector<std::string> pkg_config(const std::string& wanted) {
    const Outcome said = run(
        {"env", "PKG_CONFIG_PATH=" + (prefix_ / "lib/pkgconfig").string(), "pkg-config", "--cflags", "--libs", wanted});
    EXPECT_EQ(said.code, 0) << said.output;
    std::istringstream words(said.output);
    return {std::istream_iterator<std::string>(words), {}};
  }

  // Compiles, runs, and returns what the program printed.
  std::string built_and_run(std::vector<std::string> compiler, const std::string& source, const char* text,
                            const std::string& library = "viaduct") {
    write(folder_ / source, text);
    const std::string program = (folder_ / (source + ".out")).string();
    compiler.insert(compiler.end(), {"-Wall", "-Wextra", "-Werror", (folder_ / source).string(), "-o", program});
    for (std::string& word : pkg_config(library)) compiler.push_back(std::move(word));
    const Outcome compiled = run(compiler);
    EXPECT_EQ(compiled.code, 0) << compiled.output;
    if (compiled.code != 0) return {};
    const Outcome ran = run({program});
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.output;
  }

  Folder folder_;
  const fs::path prefix_ = folder_ / "prefix";
};

TEST_F(Install, AProgramInCBuildsWithPkgConfig) {
  EXPECT_EQ(built_and_run({VIADUCT_CC, "-std=c11"}, "outside.c", kProgramInC), kExpected);
}

TEST_F(Install, AProgramInCppBuildsWithPkgConfig) {
  EXPECT_EQ(built_and_run({VIADUCT_CXX, "-std=c++20"}, "outside.cpp", kProgramInCpp), kExpected);
}

TEST_F(Install, AProgramForViplBuildsWithPkgConfig) {
  EXPECT_EQ(built_and_run({VIADUCT_CC, "-std=c99"}, "old.c", kProgramForVipl, "vipl"), "/dev/clanvi0\n");
}

TEST_F(Install, AProgramForMemNetBuildsWithPkgConfig) {
  EXPECT_EQ(built_and_run({VIADUCT_CC, "-std=c11"}, "far.c", kProgramForMemNet, "memnet"), "no server\n");
}

TEST_F(Install, TheMemNetLibraryExportsItsFunctionsAndNothingElse) {
  const Outcome names = run({"nm", "--dynamic", "--defined-only", (prefix_ / "lib/libmemnet.so").string()});
  ASSERT_EQ(names.code, 0) << names.output;
  std::istringstream lines(names.output);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_THAT(line.substr(line.find_first_not_of("0123456789abcdef ") + 2), StartsWith("memnet_"));
  EXPECT_GE(count, 40);
}

// What a header declares must be in a library: those of rooms without one stay in the tree.
TEST_F(Install, EachHeaderHasALibrary) {
  std::set<std::string> exported;
  for (const char* library : {"libviaduct.so", "libvipl.so", "libmyriexpress.so", "libmemnet.so"}) {
    const Outcome names =
        run({"nm", "--dynamic", "--defined-only", "--demangle", (prefix_ / "lib" / library).string()});
    std::istringstream lines(names.output);
    for (std::string line; std::getline(lines, line);) exported.insert(line);
  }
  const auto is_exported = [&](const std::string& name) {
    return std::any_of(exported.begin(), exported.end(), [&](const std::string& line) {
      return line.find(name + "(") != std::string::npos || line.ends_with(' ' + name) ||
             line.find(' ' + name + "@@") != std::string::npos;
    });
  };
  const std::regex declared(R"(VIADUCT_API [^(;]*?\b([a-z][A-Za-z_]*)\()");
  int functions = 0;
  for (const auto& entry : fs::recursive_directory_iterator(prefix_ / "include")) {
    if (!entry.is_regular_file()) continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator found(text.begin(), text.end(), declared), end; found != end; ++found, ++functions)
      EXPECT_TRUE(is_exported((*found)[1])) << (*found)[1] << " of " << entry.path();
  }
  EXPECT_GT(functions, 20);
}

TEST_F(Install, TheViplLibraryExportsItsFunctionsAndNothingElse) {
  const Outcome names = run({"nm", "--dynamic", "--defined-only", (prefix_ / "lib/libvipl.so").string()});
  ASSERT_EQ(names.code, 0) << names.output;
  std::istringstream lines(names.output);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_THAT(line.substr(line.find_first_not_of("0123456789abcdef ") + 2), StartsWith("Vip"));
  EXPECT_EQ(count, 41);
}

TEST_F(Install, AProgramForMxBuildsWithPkgConfig) {
  EXPECT_EQ(built_and_run({VIADUCT_CC, "-std=c99"}, "mx.c", kProgramForMx, "myriexpress"), "endpoint 200\n");
}

// Programs that were built for the original ask for these versions, and for this name.
TEST_F(Install, TheMxLibraryExportsItsFunctionsAndNothingElse) {
  const std::string library = (prefix_ / "lib/libmyriexpress.so").string();
  const Outcome names = run({"nm", "--dynamic", "--defined-only", "--with-symbol-versions", library});
  ASSERT_EQ(names.code, 0) << names.output;
  for (const char* versioned :
       {"mx_open_endpoint@@MX_0.9", "mx_decompose_endpoint_addr@@MX_0.9", "mx_get_info@@MX_0.91", "mx_test@@MX_0.91",
        "mx_wait@@MX_0.91", "mx_iprobe@@MX_0.91", "mx__init_api@@MX_0.92"})
    EXPECT_THAT(names.output, HasSubstr(std::string(" ") + versioned + "\n"));
  std::istringstream lines(names.output);
  int functions = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(line.find_first_not_of("0123456789abcdef ") + 2);
    functions += name.starts_with("mx_") ? 1 : 0;
    EXPECT_THAT(name, AnyOf(StartsWith("mx_"), StartsWith("MX_")));
  }
  EXPECT_EQ(functions, 45);
  EXPECT_THAT(run({"readelf", "--dynamic", library}).output, HasSubstr("soname: [libmyriexpress.so]"));
}

TEST_F(Install, AProgramBuildsWithFindPackage) {
  write(folder_ / "outside.c", kProgramInC);
  write(folder_ / "CMakeLists.txt", kCMakeProject);
  const std::string build = (folder_ / "build").string();
  const Outcome configured =
      run({VIADUCT_CMAKE, "-G", "Ninja", "-S", folder_.path().string(), "-B", build,
           std::string("-DCMAKE_C_COMPILER=") + VIADUCT_CC, "-DCMAKE_PREFIX_PATH=" + prefix_.string()});
  ASSERT_EQ(configured.code, 0) << configured.output;
  const Outcome built = run({VIADUCT_CMAKE, "--build", build});
  ASSERT_EQ(built.code, 0) << built.output;
  EXPECT_EQ(run({build + "/outside"}).output, kExpected);
}

TEST_F(Install, TheCommandRunsFromThere) {
  const Outcome said = run({(prefix_ / "bin/viaduct").string(), "--version"});
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.output, "viaduct " VIADUCT_VERSION "\n");
}

TEST_F(Install, TheCommandPreloadsTheLibraryFromThere) {
  const Outcome maps = run({(prefix_ / "bin/viaduct").string(), "run", "--", "cat", "/proc/self/maps"});
  EXPECT_EQ(maps.code, 0) << maps.output;
  EXPECT_THAT(maps.output, HasSubstr((prefix_ / "lib/libviaduct-sockets.so").string()));
}

// In somebody else's program every other name could meet one of the program's own.
TEST_F(Install, TheSocketsLibraryExportsWhatItStandsInFrontOf) {
  const Outcome names = run({"nm", "--dynamic", "--defined-only", (prefix_ / "lib/libviaduct-sockets.so").string()});
  ASSERT_EQ(names.code, 0) << names.output;
  const std::string listed = text_of(source_dir() / "cmake/sockets.map");
  std::istringstream lines(names.output);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_THAT(listed, ContainsRegex("[ \n]" + line.substr(line.rfind(' ') + 1) + ";"));
  EXPECT_GE(count, 50);
}

TEST_F(Install, TheCommandIsAllThatThePathGets) {
  std::vector<std::string> names;
  for (const auto& program : fs::directory_iterator(prefix_ / "bin")) names.push_back(program.path().filename());
  EXPECT_THAT(names, ElementsAre("viaduct"));
  EXPECT_TRUE(fs::exists(prefix_ / "libexec/viaduct/viaduct-plain-sockets")) << "benchmarks need it";
}

TEST_F(Install, WhatIsInstalledIsStripped) {
  if (text_of(build_dir() / "CMakeCache.txt").find("VIADUCT_STRIP:BOOL=ON") == std::string::npos)
    GTEST_SKIP() << "this build keeps its symbols";
  for (const char* file : {"bin/viaduct", "lib/libviaduct.so", "lib/libvipl.so", "lib/libmyriexpress.so",
                           "lib/libmemnet.so", "lib/libviaduct-sockets.so"}) {
    const Outcome sections = run({"readelf", "--wide", "--sections", (prefix_ / file).string()});
    ASSERT_EQ(sections.code, 0) << sections.output;
    EXPECT_THAT(sections.output, HasSubstr(".text"));
    EXPECT_THAT(sections.output, Not(AnyOf(HasSubstr(".debug_info"), HasSubstr(".symtab")))) << file;
  }
}

TEST_F(Install, UninstallingLeavesWhatWasThereBefore) {
  const fs::path prefix = folder_ / "another";
  fs::create_directories(prefix / "bin");
  write(prefix / "bin/mine", "mine");
  const auto install = [&] {
    return run({VIADUCT_CMAKE, "--install", build_dir().string(), "--prefix", prefix.string()});
  };
  ASSERT_EQ(install().code, 0);
  write(prefix / "lib/mine", "mine");
  // What an older version had installed and this one does not; and installing again knows still which folders are ours.
  write(prefix / "bin/viaduct-old", "old");
  std::ofstream(prefix / "libexec/viaduct/installed", std::ios::app) << "bin/viaduct-old\n";
  ASSERT_EQ(install().code, 0);
  EXPECT_FALSE(fs::exists(prefix / "bin/viaduct-old"));
  const Outcome said = run({(prefix / "libexec/viaduct/uninstall").string()});
  EXPECT_EQ(said.code, 0) << said.output;
  EXPECT_THAT(said.output, StartsWith("removed "));
  std::vector<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(prefix))
    left.push_back(entry.path().lexically_relative(prefix));
  EXPECT_THAT(left, UnorderedElementsAre("bin", "bin/mine", "lib", "lib/mine"));
}

TEST_F(Install, ManualPagesAreWhereManLooks) {
  for (const auto& page : fs::directory_iterator(source_dir() / "man")) {
    const std::string section = page.path().extension().string().substr(1);
    EXPECT_TRUE(fs::exists(prefix_ / "share/man" / ("man" + section) / page.path().filename())) << page.path();
  }
}

// A name that leaks from the inside would be a promise, and could collide with the host program's own.
TEST_F(Install, TheLibraryExportsItsDoorsAndNothingElse) {
  const Outcome names =
      run({"nm", "--dynamic", "--defined-only", "--demangle", (prefix_ / "lib/libviaduct.so").string()});
  ASSERT_EQ(names.code, 0) << names.output;
  EXPECT_THAT(names.output, HasSubstr(" viaduct_version\n"));
  const std::string header = text_of(prefix_ / "include/viaduct/adma.h");
  const std::regex declared("VIADUCT_API [^(]*?(adma_[a-z_]+)\\(");
  for (std::sregex_iterator function(header.begin(), header.end(), declared), end; function != end; ++function)
    EXPECT_THAT(names.output, HasSubstr(" " + (*function)[1].str() + "\n"));
  EXPECT_THAT(names.output, HasSubstr(" viaduct::copy::start("));
  std::istringstream lines(names.output);
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(line.find_first_not_of("0123456789abcdef ") + 2);
    EXPECT_THAT(name, AnyOf(StartsWith("viaduct_"), StartsWith("adma_"), StartsWith("viaduct::copy::")));
  }
}

}  // namespace
}  // namespace viaduct::house
