#include "base/processes.hpp"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace viaduct {

std::vector<int> all_processes() {
  std::vector<int> pids;
  DIR* const listing = ::opendir("/proc");
  if (listing == nullptr) return pids;
  while (const dirent* entry = ::readdir(listing)) {
    int pid = 0;
    const std::string_view name = entry->d_name;
    const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (fault == std::errc{} && end == name.data() + name.size()) pids.push_back(pid);
  }
  ::closedir(listing);
  std::sort(pids.begin(), pids.end());
  return pids;
}

}  // namespace viaduct
