#include "bench/veth_lab.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "bench/whole_messages.hpp"

namespace viaduct::bench {

namespace {

// Answers 0 when ready, else the length of the reason and the reason; then a number for every question.
void serve(int questions, int answers, const std::function<Result<Lab::Measurements>()>& prepare) {
  auto made = prepare();
  const std::string fault = made ? "" : made.error().message();
  const std::uint64_t length = fault.size();
  if (!write_whole(answers, &length, sizeof length) || !write_whole(answers, fault.data(), fault.size()) || !made)
    return;
  std::uint64_t index = 0;
  while (read_whole(questions, &index, sizeof index)) {
    const double value = index < made->size() ? (*made)[index]() : 0;
    if (!write_whole(answers, &value, sizeof value)) return;
  }
}

void write_text(const char* path, const std::string& text) {
  std::ofstream(path) << text;
}

Status run(const std::string& command) {
  if (std::system((command + " >/dev/null 2>&1").c_str()) == 0) return {};
  return Error(EINVAL, fmt::format("'{}' does not work here (iproute2, and a kernel with veth)", command));
}

}  // namespace

Result<Lab> Lab::fork(const std::function<Result<Measurements>()>& prepare) {
  VIADUCT_TRY(FdPair questions, make_pipe());
  VIADUCT_TRY(FdPair answers, make_pipe());
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("fork a process that measures");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    questions.second.reset();
    answers.first.reset();
    serve(questions.first.get(), answers.second.get(), prepare);
    ::_exit(0);
  }
  Lab lab(child, std::move(questions.second), std::move(answers.first));
  answers.second.reset();
  std::uint64_t length = 0;
  if (!read_whole(lab.answers_.get(), &length, sizeof length)) return Error(ECHILD, "the process that measures ended");
  if (length == 0) return lab;
  std::string fault(length, ' ');
  (void)read_whole(lab.answers_.get(), fault.data(), fault.size());
  return Error(EPERM, fault);
}

Lab::Lab(pid_t child, Fd questions, Fd answers)
    : child_(child), questions_(std::move(questions)), answers_(std::move(answers)) {}

Lab::Lab(Lab&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      questions_(std::move(other.questions_)),
      answers_(std::move(other.answers_)) {}

Lab::~Lab() {
  if (child_ < 0) return;
  questions_.reset();
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

double Lab::measure(std::size_t index) {
  const std::uint64_t question = index;
  double value = 0;
  if (!write_whole(questions_.get(), &question, sizeof question) || !read_whole(answers_.get(), &value, sizeof value))
    return 0;
  return value;
}

Result<TwoNetworks> TwoNetworks::make() {
  const auto here = [] { return Fd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)); };
  TwoNetworks networks;
  if (::unshare(CLONE_NEWNET) != 0) {
    const uid_t user = ::getuid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
      return Error::from_errno("enter a network namespace of our own (unshare -Urn)");
    write_text("/proc/self/uid_map", fmt::format("0 {} 1", user));  // programs we start keep what root may
  }
  networks.left_ = here();
  if (::unshare(CLONE_NEWNET) != 0) return Error::from_errno("enter a second network namespace");
  networks.right_ = here();
  if (!networks.left_ || !networks.right_) return Error::from_errno("open our network namespaces");
  for (const bool left : {true, false}) {
    networks.enter(left);  // the kernel must not send frames of its own
    write_text("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    write_text("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
  }
  return networks;
}

Status TwoNetworks::add_cable(int number, unsigned mtu) {
  enter(true);
  VIADUCT_CHECK(run(fmt::format("ip link add name {} type veth peer name {} netns /proc/{}/fd/{}",
                                interface(number, true), interface(number, false), ::getpid(), right_.get())));
  for (const bool left : {true, false}) {
    enter(left);
    VIADUCT_CHECK(run(fmt::format("ip addr add {}/24 dev {}", address(number, left), interface(number, left))));
    VIADUCT_CHECK(run(fmt::format("ip link set {} mtu {} up", interface(number, left), mtu)));
  }
  return {};
}

void TwoNetworks::enter(bool left) const {
  (void)::setns((left ? left_ : right_).get(), CLONE_NEWNET);
}

}  // namespace viaduct::bench
