// Processes and limits for tests: a forked child that cannot outlive its test, and a deadline for what must never hang.
//
// A child never returns into GoogleTest: it reports by CHILD_EXPECT on standard error and by its exit code.
#pragma once

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace viaduct::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// A stress of that many rounds, fewer where a sanitizer makes each many times slower.
constexpr int rounds(int many) {
  return kSanitized ? many / 4 : many;
}

constexpr unsigned kHangSeconds = 60;

// Ends the whole program by SIGALRM when a wake-up was lost: the one fault that no assertion can report.
class HangGuard {
 public:
  HangGuard() { ::alarm(kHangSeconds); }
  ~HangGuard() { ::alarm(0); }
  HangGuard(const HangGuard&) = delete;
  HangGuard& operator=(const HangGuard&) = delete;
};

class Child {
 public:
  // `body` returns the exit code.
  template <class Body>
  explicit Child(Body body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(kHangSeconds);
    ::_exit(body());
  }
  ~Child() {
    if (pid_ > 0) kill(), (void)wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int pid() const { return pid_; }
  void kill() { ::kill(pid_, SIGKILL); }

  // The exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    if (pid_ <= 0 || ::waitpid(pid_, &status, 0) != pid_) return -1000;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

#define CHILD_EXPECT(condition)                                              \
  do {                                                                       \
    if (!(condition)) {                                                      \
      ::dprintf(2, "%s:%d: in child: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                              \
    }                                                                        \
  } while (false)

inline int open_descriptors() {
  DIR* const listing = ::opendir("/proc/self/fd");
  int count = -1;  // the listing's own
  while (const dirent* entry = ::readdir(listing)) count += entry->d_name[0] != '.';
  ::closedir(listing);
  return count;
}

// Lowers a limit to `value`; meant for a child, which takes it to its grave.
inline bool limit(int resource, rlim_t value) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &now) != 0) return false;
  now.rlim_cur = value;
  return ::setrlimit(static_cast<__rlimit_resource>(resource), &now) == 0;
}

// Leaves so many bytes of address space beyond what is in use: threads, heaps and drivers reserve any amount of it
// before, more where there are more processors.
inline bool limit_more_address_space(rlim_t bytes) {
  FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return false;
  unsigned long pages = 0;
  const bool known = std::fscanf(file, "%lu", &pages) == 1;
  std::fclose(file);
  return known && limit(RLIMIT_AS, pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes);
}

}  // namespace viaduct::testing
