#include "via/vipl_fork.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "via/connection.hpp"
#include "via/vipl_nic.hpp"

namespace viaduct::vipl {

namespace {

std::mutex descriptors_mutex;

std::vector<int>& descriptors() {
  static auto* const list = new std::vector<int>;  // lives as long as any thread
  return *list;
}

// Which objects the locks of the tables order before fork; the objects' own locks are lost with their threads.
template <class Body>
void for_each_table(Body body) {
  body(nics()), body(vis()), body(cqs()), body(ptags()), body(connections());
}

void before_fork() {
  for_each_table([](auto& table) { table.lock_for_fork(); });
  descriptors_mutex.lock();
}

void in_parent() {
  descriptors_mutex.unlock();
  for_each_table([](auto& table) { table.unlock_after_fork(); });
}

void in_child() {
  for (const int fd : descriptors()) ::close(fd);
  descriptors().clear();
  descriptors_mutex.unlock();
  for_each_table([](auto& table) { table.forget_all_in_child(); });
}

}  // namespace

void close_in_children(int fd) {
  const std::lock_guard lock(descriptors_mutex);
  descriptors().push_back(fd);
}

void keep_in_children(int fd) {
  const std::lock_guard lock(descriptors_mutex);
  std::erase(descriptors(), fd);
}

void hook_fork() {
  static const int hooked = ::pthread_atfork(before_fork, in_parent, in_child);
  (void)hooked;
}

constinit Everlasting<Nics> nic_table;
constinit Everlasting<Vis> vi_table;
constinit Everlasting<Cqs> cq_table;
constinit Everlasting<Ptags> ptag_table;
constinit Everlasting<Connections> connection_table;

}  // namespace viaduct::vipl
