#include "bench/processor_time.hpp"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace viaduct::bench {

double own_processor_time_ns(pid_t process) {
  clockid_t clock;
  timespec used{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) * 1e9 + static_cast<double>(used.tv_nsec);
}

namespace {

struct Process {
  pid_t pid, parent;
  double ended_children_ns;
};

// Field by field: proc(5). The name, in parentheses, may hold anything.
bool read_process(pid_t pid, Process& process) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const std::size_t behind_name = line.rfind(')');
  if (behind_name == std::string::npos) return false;
  std::istringstream fields(line.substr(behind_name + 1));
  std::string state, skipped;
  pid_t parent = 0;
  fields >> state >> parent;
  constexpr int kBeforeChildren = 11;  // fields 5 to 15; cutime is 16
  for (int i = 0; i < kBeforeChildren; ++i) fields >> skipped;
  double user_ticks = 0, system_ticks = 0;
  if (!(fields >> user_ticks >> system_ticks)) return false;
  process = {pid, parent, (user_ticks + system_ticks) * 1e9 / static_cast<double>(::sysconf(_SC_CLK_TCK))};
  return true;
}

std::vector<Process> all_processes() {
  std::vector<Process> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (folder == nullptr) return found;
  while (const dirent* const entry = ::readdir(folder.get())) {
    char* end = nullptr;
    const long pid = std::strtol(entry->d_name, &end, 10);
    Process process{};
    if (pid > 0 && *end == '\0' && read_process(static_cast<pid_t>(pid), process)) found.push_back(process);
  }
  return found;
}

double time_below_ns(const std::vector<Process>& all, const Process& top) {
  double sum = own_processor_time_ns(top.pid) + top.ended_children_ns;
  for (const Process& each : all)
    if (each.parent == top.pid) sum += time_below_ns(all, each);
  return sum;
}

}  // namespace

double processor_time_ns(pid_t program) {
  const std::vector<Process> all = all_processes();
  for (const Process& each : all)
    if (each.pid == program) return time_below_ns(all, each);
  return 0;
}

double processor_time_of_ended_ns() {
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto ns = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_usec) * 1e3;
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

}  // namespace viaduct::bench
