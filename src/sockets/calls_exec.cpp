// exec and spawn, in all their forms.
#include <alloca.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "sockets/export.hpp"
#include "sockets/inherit.hpp"
#include "sockets/kernel.hpp"
#include "sockets/table.hpp"

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

// What file actions do that matters here; nothing but their address tells them apart. Those that were never destroyed,
// or of which there were too many, make no more than this difference: a hand-back, or a child that counts itself a
// little later.
struct Action {
  std::atomic<const void*> actions;
  std::atomic<int> from;  // a descriptor that is duplicated; kAll: all from some number on are closed, and so ours
};
constexpr int kAll = -1;
constexpr unsigned kRemembered = 64;
constinit Action known_actions[kRemembered] = {};
constinit std::atomic<unsigned> next_action{0};

void remember(const posix_spawn_file_actions_t* actions, int from) {
  Action& one = known_actions[next_action.fetch_add(1) % kRemembered];
  one.actions.store(nullptr);
  one.from.store(from);
  one.actions.store(actions);
}

bool is_known(const posix_spawn_file_actions_t* actions, int from) {
  if (actions == nullptr) return false;
  return std::any_of(std::begin(known_actions), std::end(known_actions),
                     [&](const Action& one) { return one.actions.load() == actions && one.from.load() == from; });
}

// `call` returns only where it fails.
template <class Call>
int leave_for(Call&& call) {
  table_before_exec();
  const int result = call();
  const int failed = errno;
  table_after_failed_exec();
  errno = failed;
  return result;
}

int spawned(const Departure& departure, const posix_spawn_file_actions_t* actions, pid_t child, pid_t* told,
            int failed) {
  if (failed != 0) return failed;
  departure.started(child, [actions](int fd) { return is_known(actions, fd); });
  if (told != nullptr) *told = child;
  return 0;
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
  return leave_for([&] { return libc().execve(path, argv, departure.environment()); });
}

VIADUCT_EXPORT int execv(const char* path, char* const* argv) noexcept {
  return execve(path, argv, environ);
}

VIADUCT_EXPORT int execvpe(const char* file, char* const* argv, char* const* environment) noexcept {
  char found[PATH_MAX];
  const Departure departure(search(file, found), environment, false);
  return leave_for([&] { return libc().execvpe(file, argv, departure.environment()); });
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
  return leave_for([&] { return libc().fexecve(fd, argv, departure.environment()); });
}

VIADUCT_EXPORT int execveat(int folder, const char* path, char* const* argv, char* const* environment,
                            int flags) noexcept {
  char found[PATH_MAX];
  const bool itself = path != nullptr && *path == '\0' && (flags & AT_EMPTY_PATH) != 0;
  if (path == nullptr || path[0] == '/' || (folder == AT_FDCWD && !itself))
    std::snprintf(found, sizeof found, "%s", path != nullptr ? path : "");
  else
    std::snprintf(found, sizeof found, "/proc/self/fd/%d%s%s", folder, itself ? "" : "/", path);
  const Departure departure(found, environment, false);
  return leave_for([&] { return libc().execveat(folder, path, argv, departure.environment(), flags); });
}

VIADUCT_EXPORT int posix_spawn_file_actions_init(posix_spawn_file_actions_t* actions) noexcept {
  for (Action& known : known_actions) {
    const void* self = actions;
    known.actions.compare_exchange_strong(self, nullptr);
  }
  return libc().posix_spawn_file_actions_init(actions);
}

VIADUCT_EXPORT int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int from) noexcept {
  remember(actions, kAll);
  return libc().posix_spawn_file_actions_addclosefrom_np(actions, from);
}

VIADUCT_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t* actions, int from, int to) noexcept {
  if (const Connection* const connection = find_connection(from); connection != nullptr && connection->attached())
    remember(actions, from);
  return libc().posix_spawn_file_actions_adddup2(actions, from, to);
}

VIADUCT_EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, char* const* argv,
                               char* const* environment) noexcept {
  const Departure departure(path, environment, actions != nullptr, !is_known(actions, kAll));
  pid_t child = 0;
  const int failed = libc().posix_spawn(&child, path, actions, attributes, argv, departure.environment());
  return spawned(departure, actions, child, pid, failed);
}

VIADUCT_EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                                const posix_spawnattr_t* attributes, char* const* argv,
                                char* const* environment) noexcept {
  char found[PATH_MAX];
  const Departure departure(search(file, found), environment, actions != nullptr, !is_known(actions, kAll));
  pid_t child = 0;
  const int failed = libc().posix_spawnp(&child, file, actions, attributes, argv, departure.environment());
  return spawned(departure, actions, child, pid, failed);
}

}  // extern "C"

}  // namespace viaduct::sockets
