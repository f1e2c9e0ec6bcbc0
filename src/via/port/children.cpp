#include "via/port/children.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace viaduct::via {

namespace {

std::mutex descriptors_mutex;

std::vector<int>& descriptors() {
  static auto* const list = new std::vector<int>;  // lives as long as any thread
  return *list;
}

void in_child() {
  for (const int fd : descriptors()) ::close(fd);
  descriptors().clear();
  descriptors_mutex.unlock();
}

void hook_fork() {
  static const int hooked =
      ::pthread_atfork([] { descriptors_mutex.lock(); }, [] { descriptors_mutex.unlock(); }, in_child);
  (void)hooked;
}

}  // namespace

void close_in_children(int fd) {
  hook_fork();
  const std::lock_guard lock(descriptors_mutex);
  descriptors().push_back(fd);
}

void keep_in_children(int fd) {
  const std::lock_guard lock(descriptors_mutex);
  std::erase(descriptors(), fd);
}

}  // namespace viaduct::via
