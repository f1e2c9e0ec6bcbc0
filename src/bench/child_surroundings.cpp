// Where the programs of child_program.hpp are, and what they need around them.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/clock.hpp"
#include "bench/child_program.hpp"

namespace viaduct::bench {

namespace fs = std::filesystem;

namespace {

fs::path own_folder() {
  std::error_code fault;
  return fs::read_symlink("/proc/self/exe", fault).parent_path();
}

sockaddr_in loopback(int port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  return name;
}

}  // namespace

Result<std::string> find_preload_library() {
  const fs::path prefix = own_folder().parent_path();
  std::error_code fault;
  for (const char* folder : {VIADUCT_LIBDIR, "lib"})
    if (const fs::path file = prefix / folder / "libviaduct-sockets.so"; fs::exists(file, fault)) return file.string();
  return Error(ENOENT, fmt::format("there is no libviaduct-sockets.so below {}", prefix.string()));
}

std::string plain_sockets_program() {
  constexpr const char* kName = "viaduct-plain-sockets";
  const fs::path installed = own_folder().parent_path() / VIADUCT_OWN_FOLDER / kName;
  std::error_code fault;
  return (fs::exists(installed, fault) ? installed : own_folder() / kName).string();  // built: beside the command
}

Result<std::string> find_server_program(const std::string& name, const std::string& package) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders((path != nullptr ? std::string(path) : std::string()) +
                             ":/usr/local/sbin:/usr/sbin:/sbin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string file = folder + "/" + name; !folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  return Error(ENOENT, fmt::format("there is no {} here (Debian package {})", name, package));
}

Result<std::string> find_postgres_programs() {
  std::error_code fault;
  std::string newest;
  for (const auto& each : fs::directory_iterator("/usr/lib/postgresql", fault))
    if (::access((each.path() / "bin/initdb").c_str(), X_OK) == 0 && each.path().string() > newest)
      newest = each.path().string();
  if (newest.empty()) return Error(ENOENT, "there is no initdb here (Debian package postgresql)");
  if (::access((newest + "/bin/pgbench").c_str(), X_OK) != 0)
    return Error(ENOENT, "there is no pgbench here (Debian package postgresql-contrib)");
  return newest + "/bin/";
}

namespace {

// Nothing but system calls: other threads of the process it was forked from may have held any lock.
[[noreturn]] void remove_when_closed(int pipe, const char* folder) {
  ::setsid();  // an interrupt from the terminal is not for this one
  const int null = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  ::dup2(pipe, 3);
  ::syscall(SYS_close_range, 4U, ~0U, 0U);
  char byte;
  while (::read(3, &byte, 1) > 0 || errno == EINTR) errno = 0;
  ::execl("/bin/rm", "rm", "-rf", folder, nullptr);
  ::_exit(1);
}

}  // namespace

Result<ScratchFolder> ScratchFolder::make() {
  std::error_code fault;
  const fs::path where = fs::is_directory("/dev/shm", fault) ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string name = (where / "viaduct-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return Error::from_errno("make a folder");
  fs::permissions(name, fs::perms(0755), fault);  // servers that become another user read it
  VIADUCT_TRY(FdPair alive, make_pipe());
  const pid_t remover = ::fork();
  if (remover < 0) return Error::from_errno("fork");
  if (remover == 0) remove_when_closed(alive.first.get(), name.c_str());
  return ScratchFolder(name, remover, std::move(alive.second));
}

ScratchFolder::~ScratchFolder() {
  if (remover_ <= 0) return;
  alive_.reset();
  ::waitpid(remover_, nullptr, 0);
}

Status ScratchFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream file(path_ + "/" + name);
  if (!(file << text).flush()) return Error(EIO, fmt::format("write {}/{}", path_, name));
  return {};
}

Status ScratchFolder::give_to(const char* user) const {
  if (::geteuid() != 0) return {};
  const passwd* const entry = ::getpwnam(user);
  if (entry == nullptr) return Error(ENOENT, fmt::format("there is no user {}", user));
  if (::chown(path_.c_str(), entry->pw_uid, entry->pw_gid) != 0) return Error::from_errno("chown");
  return {};
}

Result<int> free_port() {
  const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = loopback(0);
  socklen_t size = sizeof name;
  auto* const any = reinterpret_cast<sockaddr*>(&name);
  if (!probe || ::bind(probe.get(), any, size) != 0 || ::getsockname(probe.get(), any, &size) != 0)
    return Error::from_errno("find a free port");
  return static_cast<int>(ntohs(name.sin_port));
}

Status wait_until_it_listens(const ChildProgram& server, int port) {
  const std::uint64_t until = Clock::steady().now_ns() + 10'000'000'000;
  while (Clock::steady().now_ns() < until && server.runs()) {
    const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name = loopback(port);
    if (::connect(probe.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0) return {};
    ::usleep(2000);
  }
  return Error(ETIMEDOUT, fmt::format("the server {} on port {}",
                                      server.runs() ? "does not listen" : "ended before it listened", port));
}

}  // namespace viaduct::bench
