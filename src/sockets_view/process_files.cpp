#include "sockets_view/process_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>

namespace viaduct::sockets_view {

namespace {

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The entries of a folder that are numbers.
std::optional<std::vector<int>> numbers_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), &::closedir);
  if (!listing) return std::nullopt;
  std::vector<int> numbers;
  while (const dirent* entry = ::readdir(listing.get()))
    if (const auto value = number(entry->d_name)) numbers.push_back(*value);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string descriptor_path(int pid, int fd) {
  return fmt::format("/proc/{}/fd/{}", pid, fd);
}

std::string target_of(const std::string& link) {
  char target[128];
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  return length < 0 ? "" : std::string(target, static_cast<std::size_t>(length));
}

std::string link_of_memfd(const std::string& name) {
  return fmt::format("/memfd:{} (deleted)", name);
}

}  // namespace

std::string command_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

int own_number_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("NSpid:")) continue;
    return number(std::string_view(line).substr(line.find_last_of(" \t") + 1)).value_or(0);
  }
  return 0;
}

unsigned long socket_inode(int pid, int fd) {
  const std::string target = target_of(descriptor_path(pid, fd));
  unsigned long inode = 0;
  constexpr std::string_view kBefore = "socket:[";
  if (target.starts_with(kBefore))
    (void)std::from_chars(target.data() + kBefore.size(), target.data() + target.size(), inode);
  return inode;
}

bool maps_file_named(int pid, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(file, line);)
    if (line.ends_with("/" + name)) return true;
  return false;
}

std::vector<int> process_numbers() {
  return numbers_in("/proc").value_or(std::vector<int>{});
}

Result<std::vector<int>> memfds_named(int pid, const std::string& name) {
  const auto descriptors = numbers_in(fmt::format("/proc/{}/fd", pid));
  if (!descriptors) return Error::from_code(errno == ENOENT ? ESRCH : errno, fmt::format("look at process {}", pid));
  std::vector<int> found;
  const std::string wanted = link_of_memfd(name);
  for (const int fd : *descriptors)
    if (target_of(descriptor_path(pid, fd)) == wanted) found.push_back(fd);
  return found;
}

Result<Fd> open_memfd(int pid, int fd, const std::string& name, int flags) {
  const std::string path = descriptor_path(pid, fd);
  if (target_of(path) != link_of_memfd(name))
    return Error(ENOENT, fmt::format("process {} has no {} at descriptor {}", pid, name, fd));
  Fd opened(::open(path.c_str(), flags | O_CLOEXEC));
  if (!opened) return Error::from_errno(fmt::format("open descriptor {} of process {}", fd, pid));
  return opened;
}

}  // namespace viaduct::sockets_view
