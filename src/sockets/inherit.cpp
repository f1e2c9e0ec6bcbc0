#include "sockets/inherit.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/brief_lock.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/kernel.hpp"
#include "sockets/program_loader.hpp"
#include "sockets/rendezvous.hpp"
#include "sockets/table.hpp"

namespace viaduct::sockets {

namespace {

constexpr int kEntryText = 80;  // "inode:memfd:side:nodelay:cork:low water,"
constexpr int kLookAtInherited = 1024;
constexpr int kMayCome = 64;  // connections of other threads that are accelerated just now

bool survives(int fd, bool everything) {
  const int flags = kernel::libc().fcntl(fd, F_GETFD);
  return flags >= 0 && (everything || (flags & FD_CLOEXEC) == 0);
}

bool is_variable(const char* text, const char* name) {
  const std::size_t length = std::strlen(name);
  return std::strncmp(text, name, length) == 0 && text[length] == '=';
}

const char* variable(char* const* environment, const char* name) {
  for (; environment != nullptr && *environment != nullptr; ++environment)
    if (is_variable(*environment, name)) return *environment + std::strlen(name) + 1;
  return nullptr;
}

constexpr char kPreloadVariable[] = "LD_PRELOAD";

bool is_preloaded(char* const* environment) {
  const char* const libraries = variable(environment, kPreloadVariable);
  return libraries != nullptr && std::strstr(libraries, kLibraryName) != nullptr;
}

bool is_switched_off(char* const* environment) {
  const char* const wanted = variable(environment, "VIADUCT_SOCKETS");
  return wanted != nullptr && std::strcmp(wanted, "on") != 0 && std::strcmp(wanted, "1") != 0;
}

unsigned long inode_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
}

int socket_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return kernel::libc().getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

// Every attached connection that the new program will have, with a descriptor of it: use(fd, connection). In a vfork
// child the descriptors are its own by now, the table is still its parent's.
template <class Use>
void each_staying(bool everything, Use&& use) {
  if (!in_borrowed_memory()) {
    connections.each([&](int fd, Connection* connection) {
      if (connection->attached() && survives(fd, everything)) use(fd, *connection);
    });
    return;
  }
  for (int fd = 0; fd < kLookAtInherited; ++fd) {
    const unsigned long inode = survives(fd, false) ? inode_of(fd) : 0;
    if (inode == 0) continue;
    Connection* found = nullptr;
    connections.each([&](int, Connection* connection) {
      if (connection->attached() && connection->inode == inode) found = connection;
    });
    if (found != nullptr) use(fd, *found);
  }
}

// Other threads may close it meanwhile, and get another connection in its place.
template <class Use>
void if_still_open(int fd, Connection& connection, Use&& use) {
  const BriefLock::Hold hold(connection.upgrade_lock);
  if (connection.attached() && (in_borrowed_memory() || find_connection(fd) == &connection)) use();
}

// Threads that start programs at the same time: the memory stays open for as long as one of them does.
constinit BriefLock departures_lock;
constinit int departures = 0;

void keep_open(bool open) {
  connections.each([open](int, Connection* connection) {
    if (connection->attached() && connection->memory.fd >= 0)
      kernel::libc().fcntl(connection->memory.fd, F_SETFD, open ? 0 : FD_CLOEXEC);
  });
}

// A vfork child has descriptors of its own, and nobody beside it; it must not count in its parent's memory.
void begin_departure() {
  if (in_borrowed_memory()) return keep_open(true);
  const BriefLock::Hold hold(departures_lock);
  ++departures;
  keep_open(true);
}
void end_departure() {
  if (in_borrowed_memory()) return keep_open(false);
  const BriefLock::Hold hold(departures_lock);
  if (--departures == 0) keep_open(false);
}

}  // namespace

bool while_no_program_starts(const std::function<void()>& use) {
  const BriefLock::Hold hold(departures_lock);
  if (departures != 0) return false;
  use();
  return true;
}

void departures_after_fork() {
  departures_lock.reset();
  departures = 0;
}

namespace {

std::size_t count_of(char* const* environment) {
  std::size_t variables = 0;
  while (environment != nullptr && environment[variables] != nullptr) ++variables;
  return variables;
}

// By a vfork child that has become another program, in the memory of its parent, whose thread goes on only then.
struct Mapping {
  void* start;
  std::size_t size;
};
constinit thread_local Mapping left_by_child [[gnu::tls_model("initial-exec")]]{};

}  // namespace

bool Departure::map(std::size_t size) {
  if (left_by_child.start != nullptr) ::munmap(left_by_child.start, left_by_child.size);
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memory_ = memory != MAP_FAILED ? memory : nullptr;
  size_ = size;
  left_by_child = in_borrowed_memory() && memory_ != nullptr ? Mapping{memory_, size_} : Mapping{};
  return memory_ != nullptr;
}

void Departure::leave_library_out() {
  const std::size_t list = (count_of(environment_) + 1) * sizeof(char*);
  const char* const libraries = variable(environment_, kPreloadVariable);
  const std::size_t text = sizeof kPreloadVariable + std::strlen(libraries) + 1;
  if (!map(list + text)) return;
  auto** to = static_cast<char**>(memory_);
  char* const changed = static_cast<char*>(memory_) + list;
  std::snprintf(changed, text, "%s=%s", kPreloadVariable, libraries);
  const bool others = sockets::leave_library_out(changed + sizeof kPreloadVariable);
  if (others) *to++ = changed;
  for (char* const* from = environment_; *from != nullptr; ++from)
    if (!is_variable(*from, kPreloadVariable)) *to++ = *from;
  environment_ = static_cast<char**>(memory_);
}

Departure::Departure(const char* path, char* const* environment, bool everything, bool memory_stays)
    : environment_(environment) {
  const Uncancelled here(Uncancelled::Sleeps::too);
  const int kept = errno;
  int staying = 0;
  each_staying(everything, [&](int, Connection& connection) {
    ++staying;
    connection.shared.store(true);
    connection.lent.store(true);
  });
  const bool found = ::faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
  const bool from_another_folder = everything && path[0] != '/';  // perhaps: file actions can change it
  const Loading loading = found && is_preloaded(environment) ? loading_of(path) : Loading::ignores;
  if (loading == Loading::chokes_on) leave_library_out();
  if (staying == 0 || (!found && !from_another_folder)) {
    errno = kept;
    return;
  }
  const std::size_t variables = count_of(environment);
  const std::size_t list = (variables + 2) * sizeof(char*);
  const bool takes_over = loading == Loading::takes && memory_stays && !is_switched_off(environment);
  if (!takes_over ||
      !map(list + sizeof kInheritVariable + 1 + static_cast<std::size_t>(staying + kMayCome) * kEntryText)) {
    each_staying(everything, [](int fd, Connection& connection) {
      if_still_open(fd, connection, [&] { make_plain(connection, fd, Why::handed_back); });
    });
    errno = kept;
    return;
  }
  auto** const copy = static_cast<char**>(memory_);
  // Without one that another thread's popen() has put there for a moment.
  char** const end = std::remove_copy_if(environment, environment + variables, copy,
                                         [](const char* text) { return is_variable(text, kInheritVariable); });
  char* const text = static_cast<char*>(memory_) + list;
  *end = text;
  begin_departure();
  int at = std::sprintf(text, "%s=", kInheritVariable);
  each_staying(everything, [&](int fd, Connection& connection) {
    if_still_open(fd, connection, [&] {
      // Closed by a vfork child, past this library; or a number that nobody looks at afterwards.
      const bool there = connection.memory.fd >= 0 && kernel::libc().fcntl(connection.memory.fd, F_GETFD) >= 0;
      const bool fits = static_cast<std::size_t>(at) + kEntryText <= size_ - list;
      if (!there || !fits || fd >= kLookAtInherited) return make_plain(connection, fd, Why::no_descriptors);
      if (in_borrowed_memory()) join_family(connection.own().holders, ::getpid());  // its parent may close meanwhile
      at += std::sprintf(text + at, "%lu:%d:%d:%d:%d:%d,", connection.inode, connection.memory.fd, connection.side,
                         connection.nodelay.load(), connection.cork.load(), connection.low_water.load());
    });
  });
  keep_open(true);  // those that came meanwhile
  passed_ = true;
  environment_ = copy;
  errno = kept;
}

bool Departure::stays_open(int fd) {
  return survives(fd, false);
}

// Its memory stays for a while, also where another thread closes it just now.
void Departure::count_in(pid_t child, const Connection& connection) {
  const Uncancelled here(Uncancelled::Sleeps::too);
  const StreamMemory memory = connection.memory;
  if (memory.base == nullptr) return;
  Family& holders = memory.control().end[connection.side & 1].holders;
  join_family(holders, child);
  siginfo_t ended{};
  if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == child)
    leave_family(holders, child);
}

Departure::~Departure() {
  const Uncancelled here(Uncancelled::Sleeps::too);
  const int kept = errno;
  if (passed_ && in_borrowed_memory())
    each_staying(false, [](int, Connection& connection) { leave_family(connection.own().holders, ::getpid()); });
  if (passed_) end_departure();
  if (memory_ != nullptr) ::munmap(memory_, size_);
  if (left_by_child.start == memory_) left_by_child = {};
  errno = kept;
}

namespace {

struct Legacy {
  unsigned long inode;
  int memory;
  int side;
  int nodelay, cork, low_water;  // as the program had set them
};

// Reads the next entry of the variable; false: no more.
bool next_entry(const char*& text, Legacy& entry) {
  int used = 0;
  if (text == nullptr ||
      std::sscanf(text, "%lu:%d:%d:%d:%d:%d,%n", &entry.inode, &entry.memory, &entry.side, &entry.nodelay, &entry.cork,
                  &entry.low_water, &used) != 6 ||
      used == 0)
    return false;
  text += used;
  return true;
}

Result<Segment> memory_of(const Legacy& entry) {
  const int memory = kernel::libc().fcntl(entry.memory, F_DUPFD_CLOEXEC, 3);
  if (memory < 0 || entry.side < 0 || entry.side > 1) return Error(EBADF, "no such memory");
  VIADUCT_TRY(Segment segment, Segment::adopt(Fd(memory), kStreamLayout));
  if (segment.payload().size() < kLeastStreamBytes) return Error(EPROTO, "too small");
  return segment;
}

bool take_over(int fd) {
  const unsigned long inode = inode_of(fd);
  const char* text = std::getenv(kInheritVariable);
  for (Legacy entry{}; next_entry(text, entry);) {
    if (entry.inode != inode) continue;
    auto segment = memory_of(entry);
    if (!segment) return false;
    adopt(fd, (kernel::libc().fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    Connection* const connection = find_connection(fd);
    if (connection == nullptr) return false;
    connection->shared.store(true);
    attach(*connection, fd, std::move(*segment), entry.side);
    connection->nodelay.store(entry.nodelay);
    connection->cork.store(entry.cork);
    connection->low_water.store(entry.low_water > 0 ? entry.low_water : 1);
    if (is_standard(fd)) make_plain(*connection, fd, Why::stdio);
    return true;
  }
  return false;
}

}  // namespace

void adopt_inherited() {
  for (int fd = 0; fd < kLookAtInherited; ++fd) {
    if (fd >= 64 && std::getenv(kInheritVariable) == nullptr) break;
    if (find_connection(fd) != nullptr || socket_option(fd, SO_PROTOCOL) != IPPROTO_TCP) continue;
    if (take_over(fd)) continue;
    adopt(fd, (kernel::libc().fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    if (Connection* const connection = find_connection(fd))
      make_plain(*connection, fd, socket_option(fd, SO_ACCEPTCONN) == 1 ? Why::not_connected : Why::held_elsewhere);
  }
  const char* text = std::getenv(kInheritVariable);
  for (Legacy entry{}; next_entry(text, entry);) kernel::libc().close(entry.memory);
  ::unsetenv(kInheritVariable);
}

}  // namespace viaduct::sockets
