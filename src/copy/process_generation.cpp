#include "copy/process_generation.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace viaduct::copy {

namespace {

std::atomic<std::uint32_t> generation{1};
std::mutex descriptors_mutex;

std::vector<int>& descriptors() {
  static auto* const list = new std::vector<int>;  // lives as long as any thread
  return *list;
}

void in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
  for (const int fd : descriptors()) ::close(fd);
  descriptors().clear();
  descriptors_mutex.unlock();
}

}  // namespace

std::uint32_t process_generation() {
  static const int hooked =
      ::pthread_atfork([] { descriptors_mutex.lock(); }, [] { descriptors_mutex.unlock(); }, in_child);
  (void)hooked;
  return generation.load(std::memory_order_relaxed);
}

void close_in_children(int fd) {
  (void)process_generation();  // hooks fork
  const std::lock_guard lock(descriptors_mutex);
  descriptors().push_back(fd);
}

void keep_in_children(int fd) {
  const std::lock_guard lock(descriptors_mutex);
  std::erase(descriptors(), fd);
}

}  // namespace viaduct::copy
