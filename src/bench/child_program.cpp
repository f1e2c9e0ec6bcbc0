#include "bench/child_program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/topology.hpp"
#include "bench/conduit.hpp"

namespace viaduct::bench {

namespace {

using std::chrono::milliseconds;

void become(const std::string& user) {
  const passwd* const entry = user.empty() || ::geteuid() != 0 ? nullptr : ::getpwnam(user.c_str());
  if (entry == nullptr) return;
  if (::setgroups(0, nullptr) != 0 || ::setgid(entry->pw_gid) != 0 || ::setuid(entry->pw_uid) != 0) ::_exit(126);
}

[[noreturn]] void run_it(const ProgramStart& what, const std::string& library, int input, int output, pid_t parent) {
  ::setpgid(0, 0);  // its children go with it
  if (what.processor >= 0) (void)pin_this_thread(what.processor);
  become(what.user);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // after the change of user, which clears it
  if (::getppid() != parent) ::_exit(0);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  if (what.silent) ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
  if (library.empty())
    ::unsetenv("LD_PRELOAD");
  else
    ::setenv("LD_PRELOAD", library.c_str(), 1);
  std::vector<std::string> words = what.words;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (::chdir(what.folder.c_str()) == 0) ::execvp(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

Result<ChildProgram> ChildProgram::start(const ProgramStart& what) {
  std::string library;
  if (what.accelerated) {
    VIADUCT_TRY(library, find_preload_library());
  }
  VIADUCT_TRY(FdPair input, make_pipe());
  VIADUCT_TRY(FdPair output, make_pipe());
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno(fmt::format("start {}", what.words[0]));
  if (child == 0) run_it(what, library, input.first.get(), output.second.get(), parent);
  ::setpgid(child, child);
  return ChildProgram(child, what.words[0], what.end_signal, std::move(input.second), std::move(output.first));
}

ChildProgram::ChildProgram(pid_t pid, std::string name, int end_signal, Fd input, Fd output)
    : pid_(pid),
      name_(std::move(name)),
      end_signal_(end_signal),
      input_(std::move(input)),
      output_(std::move(output)) {}

ChildProgram::ChildProgram(ChildProgram&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      name_(std::move(other.name_)),
      end_signal_(other.end_signal_),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      said_(std::move(other.said_)) {}

ChildProgram::~ChildProgram() {
  if (pid_ <= 0) return;
  if (end_signal_ != 0) {
    ::kill(pid_, end_signal_);
    while (read_more(milliseconds(3000))) {  // its output closes when the last of its processes is gone
    }
  }
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool ChildProgram::runs() const {
  siginfo_t info{};
  return pid_ > 0 && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

void ChildProgram::tell(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(input_.get(), whole.data(), whole.size()) != static_cast<ssize_t>(whole.size()))
    give_up(fmt::format("{} does not listen any more", name_));
}

bool ChildProgram::read_more(milliseconds limit) {
  pollfd wait{output_.get(), POLLIN, 0};
  int ready;
  do ready = ::poll(&wait, 1, static_cast<int>(limit.count()));
  while (ready < 0 && errno == EINTR);
  char piece[4096];
  const ssize_t n = ready > 0 ? ::read(output_.get(), piece, sizeof piece) : 0;
  if (n > 0) said_.append(piece, static_cast<std::size_t>(n));
  return n > 0;
}

std::string ChildProgram::hear() {
  std::size_t end;
  while ((end = said_.find('\n')) == std::string::npos)
    if (!read_more(std::chrono::seconds(30))) give_up(fmt::format("{} {}", name_, runs() ? "hangs" : "ended"));
  const std::string line = said_.substr(0, end);
  said_.erase(0, end + 1);
  return line;
}

double ChildProgram::hear_number() {
  return std::strtod(hear().c_str(), nullptr);
}

Result<std::string> ChildProgram::finish(milliseconds limit) {
  input_.reset();
  while (read_more(limit)) {
  }
  for (int look = 0; look < 200 && runs(); ++look) ::usleep(10'000);  // between closing its output and being gone
  if (runs()) return Error(ETIMEDOUT, fmt::format("{} hangs", name_));
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return Error(ENOENT, fmt::format("{} cannot be run", name_));
  if (status != 0) return Error(ECHILD, fmt::format("{} failed (status {:#x}): {}", name_, status, said_));
  return std::move(said_);
}

void ChildProgram::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

}  // namespace viaduct::bench
