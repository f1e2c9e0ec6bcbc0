// exec and spawn, in all their forms.
#include <alloca.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/export.hpp"
#include "sockets/inherit.hpp"
#include "sockets/kernel.hpp"

extern char** environ;

namespace viaduct::sockets {

using kernel::libc;

namespace {

// Where execvp and posix_spawnp would find it.
const char* search(const char* file, char (&found)[PATH_MAX]) {
  if (std::strchr(file, '/') != nullptr) return file;
  const char* path = std::getenv("PATH");
  for (path = path != nullptr ? path : "/bin:/usr/bin"; *path != '\0';) {
    const std::size_t length = std::strcspn(path, ":");
    std::snprintf(found, sizeof found, "%.*s/%s", static_cast<int>(length), path, file);
    if (::access(found, X_OK) == 0) return found;
    path += length;
    if (*path == ':') ++path;
  }
  return file;
}

// For libc's own spawning, which takes the environment of the process.
class WithEnvironment {
 public:
  explicit WithEnvironment(char* const* list) : kept_(environ) { environ = const_cast<char**>(list); }
  ~WithEnvironment() { environ = kept_; }
  WithEnvironment(const WithEnvironment&) = delete;
  WithEnvironment& operator=(const WithEnvironment&) = delete;

 private:
  char** kept_;
};

constexpr char kShell[] = "/bin/sh";

// File actions that close all descriptors from one on, and so ours: nothing but their address tells them apart. One
// that has been forgotten, or was never destroyed, costs a hand-back.
constexpr unsigned kRemembered = 64;
constinit std::atomic<const void*> closing_actions[kRemembered] = {};
constinit std::atomic<unsigned> next_closing{0};

bool closes_all(const posix_spawn_file_actions_t* actions) {
  for (const auto& known : closing_actions)
    if (actions != nullptr && known.load(std::memory_order_relaxed) == actions) return true;
  return false;
}

}  // namespace

// The arguments of a variadic exec as an array, and what follows their end.
#define VIADUCT_COLLECT(first, list, count, argv)                               \
  std::size_t count = 1;                                                        \
  va_start(list, first);                                                        \
  while (va_arg(list, char*) != nullptr) ++count;                               \
  va_end(list);                                                                 \
  auto** const argv = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  argv[0] = const_cast<char*>(first);                                           \
  va_start(list, first);                                                        \
  for (std::size_t i = 1; i <= count; ++i) argv[i] = va_arg(list, char*)

extern "C" {

VIADUCT_EXPORT int execve(const char* path, char* const* argv, char* const* environment) noexcept {
  const Departure departure(path, environment, false);
  return libc().execve(path, argv, departure.environment());
}

VIADUCT_EXPORT int execv(const char* path, char* const* argv) noexcept {
  return execve(path, argv, environ);
}

VIADUCT_EXPORT int execvpe(const char* file, char* const* argv, char* const* environment) noexcept {
  char found[PATH_MAX];
  const Departure departure(search(file, found), environment, false);
  return libc().execvpe(file, argv, departure.environment());
}

VIADUCT_EXPORT int execvp(const char* file, char* const* argv) noexcept {
  return execvpe(file, argv, environ);
}

VIADUCT_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  va_list list;
  VIADUCT_COLLECT(first, list, count, argv);
  va_end(list);
  return execve(path, argv, environ);
}

VIADUCT_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  va_list list;
  VIADUCT_COLLECT(first, list, count, argv);
  va_end(list);
  return execvpe(file, argv, environ);
}

VIADUCT_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  va_list list;
  VIADUCT_COLLECT(first, list, count, argv);
  char* const* const environment = va_arg(list, char* const*);
  va_end(list);
  return execve(path, argv, environment);
}

VIADUCT_EXPORT int fexecve(int fd, char* const* argv, char* const* environment) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const Departure departure(path, environment, false);
  return libc().fexecve(fd, argv, departure.environment());
}

VIADUCT_EXPORT int posix_spawn_file_actions_init(posix_spawn_file_actions_t* actions) noexcept {
  for (auto& known : closing_actions) {
    const void* self = actions;
    known.compare_exchange_strong(self, nullptr);
  }
  return libc().posix_spawn_file_actions_init(actions);
}

VIADUCT_EXPORT int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int from) noexcept {
  closing_actions[next_closing.fetch_add(1) % kRemembered].store(actions);
  return libc().posix_spawn_file_actions_addclosefrom_np(actions, from);
}

VIADUCT_EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, char* const* argv,
                               char* const* environment) noexcept {
  const Departure departure(path, environment, actions != nullptr, !closes_all(actions));
  return libc().posix_spawn(pid, path, actions, attributes, argv, departure.environment());
}

VIADUCT_EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                                const posix_spawnattr_t* attributes, char* const* argv,
                                char* const* environment) noexcept {
  char found[PATH_MAX];
  const Departure departure(search(file, found), environment, actions != nullptr, !closes_all(actions));
  return libc().posix_spawnp(pid, file, actions, attributes, argv, departure.environment());
}

VIADUCT_EXPORT int system(const char* command) {
  if (command == nullptr) return libc().system(command);
  const Departure departure(kShell, environ, false);
  const WithEnvironment environment(departure.environment());
  return libc().system(command);
}

VIADUCT_EXPORT FILE* popen(const char* command, const char* mode) {
  const Departure departure(kShell, environ, false);
  const WithEnvironment environment(departure.environment());
  return libc().popen(command, mode);
}

}  // extern "C"

}  // namespace viaduct::sockets
