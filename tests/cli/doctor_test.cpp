#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cli/redis_demo.hpp"
#include "cli/talking.hpp"

namespace viaduct::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// Copies of the talker, changed as a test needs it.
class Doctor : public testing::Test {
 protected:
  Doctor() : folder_(testing::TempDir() + "viaduct-doctor-" + std::to_string(::getpid())) {
    fs::create_directories(folder_);
  }
  ~Doctor() override { fs::remove_all(folder_); }

  std::string copy(const std::string& name) {
    fs::copy_file(talker(), folder_ / name, fs::copy_options::overwrite_existing);
    return (folder_ / name).string();
  }
  std::string script(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    fs::permissions(folder_ / name, fs::perms::owner_all);
    return (folder_ / name).string();
  }

  const fs::path folder_;
};

// The finding of that name, in the answer about a program that ends with that exit code.
json finding(const std::string& program, const std::string& check, int code) {
  const Outcome outcome = run_command({"doctor", "--json", program});
  EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
  const json report = json::parse(outcome.out);
  for (const json& each : report.at("findings"))
    if (each.at("check") == check) return each;
  ADD_FAILURE() << check << " is not in " << report;
  return {{"result", ""}, {"detail", ""}};
}

TEST_F(Doctor, PassesAnOrdinaryProgram) {
  SKIP_IF_SANITIZED();
  const Outcome outcome = run_command({"doctor", talker()});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("is dynamically linked"));
  EXPECT_THAT(outcome.out, HasSubstr("\nyes: "));
  const json report = json::parse(run_command({"doctor", "--json", talker()}).out);
  EXPECT_EQ(report["program"], talker());
  EXPECT_EQ(report["interpreters"], json::array());
  EXPECT_EQ(report["accelerated"], "yes");
}

TEST_F(Doctor, FindsAStaticProgram) {
  SKIP_IF_SANITIZED();
  EXPECT_THAT(finding(talker("-static"), "linking", 1)["detail"], HasSubstr("statically linked"));
}

TEST_F(Doctor, FindsIoUring) {
  SKIP_IF_SANITIZED();
  const json found = finding(talker("-uring"), "io_uring", 0);
  EXPECT_EQ(found["result"], "partly");
  EXPECT_THAT(run_command({"doctor", talker("-uring")}).out, HasSubstr("\npartly: "));
}

TEST_F(Doctor, FindsAServerThatMayBecomeAnotherUser) {
  SKIP_IF_SANITIZED();
  if (::getuid() != 0) GTEST_SKIP() << "only who starts as root may";
  const json found = finding(talker("-user"), "user", 0);
  EXPECT_EQ(found["result"], "partly");
  EXPECT_THAT(found["detail"].get<std::string>(), HasSubstr("`viaduct run --peers any`, on both sides"));
  const Variables any{{"VIADUCT_PEERS", "any"}};
  EXPECT_THAT(run_command({"doctor", talker("-user")}, any).out, HasSubstr("\nyes: "));
}

TEST_F(Doctor, FindsAProgramWrittenInGo) {
  const std::string program = copy("gopher");
  const std::string tool = "objcopy --add-section .go.buildinfo=/etc/hostname " + program;
  if (std::system(tool.c_str()) != 0) GTEST_SKIP() << "objcopy is not there or does not work: " << tool;
  EXPECT_EQ(finding(program, "language", 1)["result"], "no");
}

TEST_F(Doctor, FindsA32BitProgram) {
  const std::string program = copy("narrow");
  std::fstream(program, std::ios::in | std::ios::out | std::ios::binary).seekp(4).put(1);  // EI_CLASS
  EXPECT_THAT(finding(program, "class", 1)["detail"], HasSubstr("32-bit"));
}

TEST_F(Doctor, FindsAProgramForAnotherProcessor) {
  const std::string program = copy("foreign");
  std::fstream(program, std::ios::in | std::ios::out | std::ios::binary).seekp(18).put(8);  // e_machine: MIPS
  EXPECT_THAT(finding(program, "class", 1)["detail"], HasSubstr("another kind of processor"));
}

TEST_F(Doctor, FindsASetuidProgram) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const std::string program = copy("mighty");
  ASSERT_EQ(::chown(program.c_str(), 1, static_cast<gid_t>(-1)), 0);
  ASSERT_EQ(::chmod(program.c_str(), 04755), 0);
  EXPECT_THAT(finding(program, "privileges", 1)["detail"], HasSubstr("setuid"));
}

TEST_F(Doctor, LooksAtWhatRunsAScript) {
  SKIP_IF_SANITIZED();
  const std::string inner = script("inner", "#!" + talker() + " idle\n");
  const std::string outer = script("outer", "#! /usr/bin/env -S A=b " + inner + "\n");
  const json report = json::parse(run_command({"doctor", "--json", outer}).out);
  EXPECT_EQ(report["interpreters"], json({inner, talker()}));
  EXPECT_EQ(report["accelerated"], "yes");
}

TEST_F(Doctor, FindsAScriptWithoutInterpreter) {
  EXPECT_THAT(finding(script("lost", "#!/no/such/thing\n"), "script", 1)["detail"],
              HasSubstr("interpreter is missing"));
  EXPECT_THAT(finding(script("empty", "#!\n"), "script", 1)["detail"], HasSubstr("interpreter is missing"));
  const std::string self = (folder_ / "self").string();
  EXPECT_THAT(finding(script("self", "#!" + self + "\n"), "script", 1)["detail"], HasSubstr("without end"));
}

TEST_F(Doctor, SurvivesDamagedPrograms) {
  const std::string whole = copy("whole");
  for (const std::uintmax_t size : {5u, 60u, 64u, 100u, 700u, 4096u, 9000u}) {
    const std::string program = copy("damaged");
    fs::resize_file(program, size);
    const Outcome outcome = run_command({"doctor", program});
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 1) << size << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(program));
  }
  // Every table of the header points somewhere else.
  for (const int offset : {32, 40, 54, 56, 58, 60, 62}) {
    const std::string program = copy("damaged");
    std::fstream file(program, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset).write("\xff\xff", 2);
    file.close();
    const Outcome outcome = run_command({"doctor", program});
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 1) << offset << outcome.err;
  }
}

TEST_F(Doctor, SaysThatItIsSwitchedOff) {
  const Outcome outcome = run_command({"doctor", talker()}, {{"VIADUCT_SOCKETS", "off"}});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("VIADUCT_SOCKETS is off"));
}

TEST_F(Doctor, AProgramThatIsNotThereIsAFailure) {
  const Outcome outcome = run_command({"doctor", "no-such-program"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("there is no program 'no-such-program'"));
  EXPECT_EQ(run_command({"doctor"}).code, 2);
}

TEST(RedisDemo, UnderstandsTheBenchmark) {
  const auto figures = parse_redis_csv(
      "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\"\n"
      "\"GET\",\"66666.66\",\"0.376\",\"0.120\",\"0.367\",\"0.503\"\n");
  ASSERT_TRUE(figures);
  EXPECT_DOUBLE_EQ(figures->requests_per_second, 66666.66);
  EXPECT_DOUBLE_EQ(figures->median_us, 367);
  EXPECT_FALSE(parse_redis_csv(""));
  EXPECT_FALSE(parse_redis_csv("Could not connect to Redis\n"));
}

}  // namespace
}  // namespace viaduct::cli
