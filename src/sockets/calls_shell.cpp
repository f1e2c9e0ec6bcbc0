// system() and popen(): libc starts their shell with the environment of the process, which has to say what it inherits.
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "sockets/brief_lock.hpp"
#include "sockets/export.hpp"
#include "sockets/inherit.hpp"
#include "sockets/kernel.hpp"

extern char** environ;

namespace viaduct::sockets {

using kernel::libc;

namespace {

constexpr char kShell[] = "/bin/sh";

// While a shell is waited for, this process ignores the keys that are meant for it: for as long as any thread waits.
class KeysIgnored {
 public:
  KeysIgnored() {
    const BriefLock::Hold hold(lock);
    if (waiting++ != 0) return;
    struct sigaction ignored {};
    ignored.sa_handler = SIG_IGN;
    for (std::size_t i = 0; i < kKeys; ++i) ::sigaction(keys[i], &ignored, &before[i]);
  }
  ~KeysIgnored() {
    const BriefLock::Hold hold(lock);
    if (--waiting != 0) return;
    for (std::size_t i = 0; i < kKeys; ++i) ::sigaction(keys[i], &before[i], nullptr);
  }
  KeysIgnored(const KeysIgnored&) = delete;
  KeysIgnored& operator=(const KeysIgnored&) = delete;

  static void after_fork() { lock.reset(); }

  // Those that the shell is to take as ever.
  static sigset_t taken() {
    const BriefLock::Hold hold(lock);
    sigset_t set;
    ::sigemptyset(&set);
    for (std::size_t i = 0; i < kKeys; ++i)
      if (before[i].sa_handler != SIG_IGN) ::sigaddset(&set, keys[i]);
    return set;
  }

 private:
  static constexpr std::size_t kKeys = 2;
  static constexpr int keys[kKeys] = {SIGINT, SIGQUIT};
  static inline constinit BriefLock lock;
  static inline constinit int waiting = 0;
  static inline struct sigaction before[kKeys];
};

// Nobody else's handler may wait for the shell in our place.
class ChildSignalBlocked {
 public:
  ChildSignalBlocked() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGCHLD);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~ChildSignalBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  ChildSignalBlocked(const ChildSignalBlocked&) = delete;
  ChildSignalBlocked& operator=(const ChildSignalBlocked&) = delete;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

// A thread that is cancelled meanwhile takes it along.
class Shell {
 public:
  Shell(const char* command, char* const* environment, const sigset_t& mask) {
    const sigset_t taken = KeysIgnored::taken();
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setsigmask(&attributes, &mask);
    ::posix_spawnattr_setsigdefault(&attributes, &taken);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    const char* const words[] = {"sh", "-c", command, nullptr};
    if (libc().posix_spawn(&pid_, kShell, nullptr, &attributes, const_cast<char* const*>(words), environment) != 0)
      pid_ = -1;
    ::posix_spawnattr_destroy(&attributes);
  }
  ~Shell() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    (void)wait();
  }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  int wait() {
    constexpr int kNoShell = 127 << 8;  // as if it had said so itself
    if (pid_ <= 0) return kNoShell;
    int status = -1;
    while (::waitpid(pid_, &status, 0) < 0)
      if (errno != EINTR) {
        status = -1;
        break;
      }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

int run_shell(const char* command, std::optional<Departure>& departure) {
  const KeysIgnored keys;
  const ChildSignalBlocked blocked;
  Shell shell(command, departure->environment(), blocked.before());
  departure.reset();  // it has started
  return shell.wait();
}

// The environment of the process is another for a moment. Threads may be reading either: the memory stays for good, and
// is used the next time.
class OtherEnvironment {
 public:
  // Under `lock`, of which there is one.
  explicit OtherEnvironment(char* const* list) : kept_(environ) {
    if (char** const copy = copy_of(list)) environ = copy;
  }
  ~OtherEnvironment() {
    if (environ == memory)
      environ = changed(kept_);
    else if (environ != kept_)
      ::unsetenv(kInheritVariable);  // somebody has changed something meanwhile, and has made a copy
  }
  OtherEnvironment(const OtherEnvironment&) = delete;
  OtherEnvironment& operator=(const OtherEnvironment&) = delete;
  static inline constinit BriefLock lock;

 private:
  // Its last entry is ours, and goes when this call ends: copied, text and all.
  static char** copy_of(char* const* list) {
    std::size_t count = 0;
    while (list[count] != nullptr) ++count;
    const std::size_t text = std::strlen(list[count - 1]) + 1;
    const std::size_t pointers = (count + 1) * sizeof(char*);
    if (pointers + text > size && !grow(pointers + text)) return nullptr;
    std::memcpy(memory, list, pointers);
    memory[count - 1] = reinterpret_cast<char*>(memory) + size - text;
    std::memcpy(memory[count - 1], list[count - 1], text);
    return memory;
  }
  // With what somebody has set or unset meanwhile.
  static char** changed(char** list) {
    char** to = list;
    for (char** from = memory; *from != nullptr; ++from)
      if (*from < reinterpret_cast<char*>(memory) || *from >= reinterpret_cast<char*>(memory) + size) *to++ = *from;
    *to = nullptr;
    return list;
  }
  static bool grow(std::size_t least) {
    const std::size_t larger = std::max(least * 2, std::size_t{4096});
    void* const fresh = ::mmap(nullptr, larger, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return false;
    memory = static_cast<char**>(fresh);
    size = larger;
    return true;
  }

  static inline constinit char** memory = nullptr;
  static inline constinit std::size_t size = 0;
  char** kept_;
};

}  // namespace

void shells_after_fork() {
  KeysIgnored::after_fork();
  OtherEnvironment::lock.reset();
}

extern "C" {

VIADUCT_EXPORT int system(const char* command) {
  if (command == nullptr) return libc().system(command);
  std::optional<Departure> departure(std::in_place, kShell, environ, false);
  return departure->passes_on() ? run_shell(command, departure) : libc().system(command);
}

VIADUCT_EXPORT FILE* popen(const char* command, const char* mode) {
  const BriefLock::Hold hold(OtherEnvironment::lock);
  const Departure departure(kShell, environ, false);
  if (!departure.passes_on()) return libc().popen(command, mode);
  const OtherEnvironment environment(departure.environment());
  return libc().popen(command, mode);
}

}  // extern "C"

}  // namespace viaduct::sockets
