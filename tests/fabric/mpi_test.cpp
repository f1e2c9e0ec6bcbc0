// Unmodified MPI programs under `viaduct mpirun`: on one host, with more ranks than processors, and on two hosts.
#include <gmock/gmock.h>

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/child.hpp"
#include "base/two_hosts.hpp"

namespace viaduct::fabric::testing {
namespace {

using ::testing::HasSubstr;
using viaduct::testing::HangGuard;

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string output;
};

Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.output.append(buffer.data(), size);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run("command -v mpirun && command -v mpicc").code != 0)
      GTEST_SKIP() << "there is no MPI here (Debian: openmpi-bin, libopenmpi-dev)";
    char name[] = "/tmp/viaduct-mpi-XXXXXX";
    folder_ = ::mkdtemp(name);
    program_ = (folder_ / "program").string();
    const Outcome built = run("mpicc -O1 " VIADUCT_SOURCE_DIR "/tests/fabric/mpi_program.c -o " + program_);
    ASSERT_EQ(built.code, 0) << built.output;
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    ::setenv("TMPDIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  Outcome mpirun(const std::string& arguments) { return run("timeout 100 " VIADUCT_COMMAND " mpirun " + arguments); }

  fs::path folder_;
  std::string program_;
};

TEST_F(Mpi, RanksOfOneHostShareMemory) {
  const Outcome ran = mpirun("--verbose --oversubscribe -n 2 " + program_);
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("good\n"));
  EXPECT_THAT(ran.output, HasSubstr("viaduct: ranks 0 and 1: shared memory\n"));
}

TEST_F(Mpi, MoreRanksThanProcessors) {
  const Outcome ran = mpirun("--oversubscribe -n 6 " + program_ + " 60");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("good\n"));
}

TEST_F(Mpi, ARankThatIsKilledEndsTheProgram) {
  std::ofstream(folder_ / "killed.sh")
      << "#!/bin/sh\n[ \"$OMPI_COMM_WORLD_RANK\" = 1 ] && (sleep 1; kill -9 $$) &\nexec " << program_ << " 100000000\n";
  ::chmod((folder_ / "killed.sh").c_str(), 0755);
  const Outcome ran = mpirun("--oversubscribe -n 2 " + (folder_ / "killed.sh").string());
  EXPECT_NE(ran.code, 0);
  EXPECT_NE(ran.code, 124) << "it did not end: " << ran.output;
}

// mpirun reaches other hosts by ssh; here by a script that enters their namespace.
TEST_F(Mpi, RanksOfTwoHostsUseTheNetwork) {
  TwoHosts hosts;
  if (!hosts.missing().empty()) GTEST_SKIP() << hosts.missing();
  if (::getuid() != 0) GTEST_SKIP() << "only root enters a namespace by nsenter";
  const std::string there =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(hosts.descriptor(TwoHosts::right));
  std::ofstream(folder_ / "agent") << "#!/bin/sh\nshift\nexec nsenter --net=" << there << " sh -c \"$*\"\n";
  ::chmod((folder_ / "agent").c_str(), 0755);
  hosts.enter(TwoHosts::left);
  const Outcome ran =
      mpirun("--verbose --mca plm_rsh_agent " + (folder_ / "agent").string() +
             " --mca oob_tcp_if_include 10.77.0.0/24 --host localhost,10.77.0.2 -n 2 " + program_ + " 60");
  hosts.leave();
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("good\n"));
  EXPECT_THAT(ran.output, HasSubstr("viaduct: ranks 0 and 1: the network, 10.77.0.1:"));
}

TEST_F(Mpi, WithoutMpirunItSaysWhatIsMissing) {
  const Outcome ran = run("PATH=/nowhere " VIADUCT_COMMAND " mpirun -n 2 true");
  EXPECT_EQ(ran.code, 127);
  EXPECT_THAT(ran.output, HasSubstr("there is no mpirun here"));
}

}  // namespace
}  // namespace viaduct::fabric::testing
