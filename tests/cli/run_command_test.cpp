#include "cli/run_command.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/fd.hpp"

namespace viaduct::cli {

namespace {

std::string contents_of(const Fd& file) {
  std::string text;
  char bytes[4096];
  for (ssize_t got; (got = ::pread(file.get(), bytes, sizeof bytes, static_cast<off_t>(text.size()))) > 0;)
    text.append(bytes, static_cast<std::size_t>(got));
  return text;
}

void forget_own_settings() {
  Arguments names;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::strncmp(*variable, "VIADUCT_", 8) == 0) names.emplace_back(*variable, std::strcspn(*variable, "="));
  for (const std::string& name : names) ::unsetenv(name.c_str());
  ::setenv("VIADUCT_CONFIG", "/dev/null", 1);
}

}  // namespace

void become_command(const Arguments& arguments, const Variables& variables) {
  forget_own_settings();
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv{const_cast<char*>("viaduct")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(VIADUCT_COMMAND, argv.data());
  ::_exit(127);
}

int wait_for_exit(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

Outcome run_command(const Arguments& arguments, const Variables& variables) {
  const Fd out(::memfd_create("out", MFD_CLOEXEC)), err(::memfd_create("err", MFD_CLOEXEC));
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out.get(), STDOUT_FILENO);
    ::dup2(err.get(), STDERR_FILENO);
    become_command(arguments, variables);
  }
  const int code = wait_for_exit(pid);
  return {code, contents_of(out), contents_of(err)};
}

namespace {

TEST(Command, SaysItsVersion) {
  const Outcome outcome = run_command({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.rfind("viaduct ", 0), 0u);
  EXPECT_EQ(lines_in(outcome.out), 1u);
}

TEST(Command, HelpListsTheCommandsAndWorksWithABadSetting) {
  const Outcome outcome = run_command({"--help"}, {{"VIADUCT_SPIN_US", "many"}});
  EXPECT_EQ(outcome.code, 0);
  for (const char* name : {"demo", "info", "top", "bench"})
    EXPECT_NE(outcome.out.find(name), std::string::npos) << name;
}

TEST(Command, OutputThatCannotBeWrittenIsAFailure) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(::open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    become_command({"info"});
  }
  EXPECT_EQ(wait_for_exit(pid), 1);
}

}  // namespace
}  // namespace viaduct::cli
