#include "via/vipl/tables.hpp"

#include <pthread.h>

#include <mutex>

namespace viaduct::vipl {

namespace {

// Which objects the locks of the tables order before fork; the objects' own locks are lost with their threads.
template <class Body>
void for_each_table(Body body) {
  body(nics()), body(vis()), body(cqs()), body(ptags()), body(requests());
}

void before_fork() {
  for_each_table([](auto& table) { table.lock_for_fork(); });
}

void in_parent() {
  for_each_table([](auto& table) { table.unlock_after_fork(); });
}

void in_child() {
  for_each_table([](auto& table) { table.forget_all_in_child(); });
}

}  // namespace

void hook_fork() {
  static const int hooked = ::pthread_atfork(before_fork, in_parent, in_child);
  (void)hooked;
}

constinit Everlasting<Nics> nic_table;
constinit Everlasting<Vis> vi_table;
constinit Everlasting<Cqs> cq_table;
constinit Everlasting<Ptags> ptag_table;
constinit Everlasting<Requests> request_table;

}  // namespace viaduct::vipl
