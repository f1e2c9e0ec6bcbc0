#include "torture.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/segment.hpp"

namespace viaduct::sockets::torture {

int complain(const char* what) {
  std::fprintf(stderr, "torture: %s: %s\n", what, std::strerror(errno));
  return 1;
}

int listen_somewhere(sockaddr_in& name) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  name = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  socklen_t size = sizeof name;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&name), size) != 0 || ::listen(listener, 128) != 0) return -1;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size);
  return listener;
}

int connect_to(const sockaddr_in& name) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 ? fd : -1;
}

Pair make_pair() {
  Pair pair;
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  socklen_t size = sizeof name;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&name), size) != 0 || ::listen(listener, 8) != 0) return pair;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size);
  pair.client = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(pair.client, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) return pair;
  pair.server = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  return pair;
}

std::pair<std::vector<int>, std::vector<int>> make_pairs(std::size_t count) {
  std::vector<int> clients, servers;
  for (std::size_t i = 0; i < count; ++i) {
    const Pair pair = make_pair();
    clients.push_back(pair.client);
    servers.push_back(pair.server);
  }
  return {clients, servers};
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

bool warm(int fd, bool first) {
  for (int i = 0; i < 40; ++i) {
    char byte = 'w';
    if (first && ::send(fd, &byte, 1, MSG_NOSIGNAL) != 1) return false;
    if (::recv(fd, &byte, 1, 0) != 1) return false;
    if (!first && ::send(fd, &byte, 1, MSG_NOSIGNAL) != 1) return false;
  }
  return true;
}

bool refuse(long call, int error, std::initializer_list<Argument> arguments) {
  const auto load = [](std::size_t offset) {
    return sock_filter(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
  };
  const auto unless = [&](int compare, std::uint32_t value, std::size_t tests_left) {
    const auto to_the_last = static_cast<std::uint8_t>(2 * tests_left + 1);
    return sock_filter(BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | compare | BPF_K), value, 0, to_the_last));
  };
  std::size_t left = arguments.size();
  std::vector<sock_filter> filter{load(offsetof(seccomp_data, nr)),
                                  unless(BPF_JEQ, static_cast<std::uint32_t>(call), left)};
  for (const Argument& argument : arguments) {
    filter.push_back(load(offsetof(seccomp_data, args) + static_cast<std::size_t>(argument.which) * 8));
    filter.push_back(unless(argument.among_others ? BPF_JSET : BPF_JEQ, argument.value, --left));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

StreamOf::StreamOf(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* const listing = ::opendir(folder.c_str());
  while (const dirent* entry = listing == nullptr ? nullptr : ::readdir(listing)) {
    const std::string path = folder + "/" + entry->d_name;
    char name[128] = {};
    if (::readlink(path.c_str(), name, sizeof name - 1) < 0 || std::strstr(name, "memfd:viaduct-stream") == nullptr)
      continue;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat info {};
    if (fd < 0 || ::fstat(fd, &info) != 0) continue;
    size_ = static_cast<std::size_t>(info.st_size);
    void* const memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory != MAP_FAILED)
      control_ = reinterpret_cast<StreamControl*>(static_cast<std::byte*>(memory) + kSegmentPayloadOffset);
    break;
  }
  if (listing != nullptr) ::closedir(listing);
}

unsigned char byte_at(int sender, std::uint64_t position) {
  const std::uint64_t mixed = (position + (static_cast<std::uint64_t>(sender) << 48)) * 0x9e3779b97f4a7c15;
  return static_cast<unsigned char>((mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9 >> 41);
}

StreamOf::~StreamOf() {
  if (control_ != nullptr) ::munmap(reinterpret_cast<std::byte*>(control_) - kSegmentPayloadOffset, size_);
}

}  // namespace viaduct::sockets::torture
