#include "cli/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <utility>

namespace viaduct::cli {

namespace {

constexpr std::size_t kLongestAnswer = 4096;

void become_a_quiet_child(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // it went before we asked
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (null >= 0) ::dup2(null, standard);
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::function<void(int answer)>& body) {
  VIADUCT_TRY(FdPair pipe, make_pipe());
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("start a child process");
  if (pid > 0) return ChildProcess(pid, std::move(pipe.first));
  become_a_quiet_child(parent);
  try {
    body(pipe.second.get());
  } catch (...) {  // no answer is an answer
  }
  ::_exit(0);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), answer_(std::move(other.answer_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> ChildProcess::read(std::size_t most, std::chrono::milliseconds limit) {
  using Steady = std::chrono::steady_clock;
  const auto deadline = Steady::now() + limit;
  std::string answer;
  while (answer.size() < most) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Steady::now()).count();
    pollfd waiting{answer_.get(), POLLIN, 0};
    const int ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready == 0) return Error(ETIMEDOUT, fmt::format("no answer within {} ms", limit.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return Error::from_errno("wait for a child process");
    char bytes[512];
    const ssize_t got = ::read(answer_.get(), bytes, std::min(sizeof bytes, most - answer.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    answer.append(bytes, static_cast<std::size_t>(got));
  }
  if (answer.empty()) return Error(ECHILD, "the attempt ended its process");
  return answer;
}

Result<std::string> ask_child(const std::function<std::string()>& question, std::chrono::milliseconds limit) {
  VIADUCT_TRY(ChildProcess child, ChildProcess::start([&](int answer) { write_all(answer, question()); }));
  return child.read(kLongestAnswer, limit);
}

int try_in_child(const std::function<int()>& attempt, std::chrono::milliseconds limit) {
  const auto answer = ask_child([&] { return std::to_string(attempt()); }, limit);
  if (!answer) return answer.error().code();
  int code = EPROTO;
  (void)std::from_chars(answer->data(), answer->data() + answer->size(), code);
  return code;
}

}  // namespace viaduct::cli
