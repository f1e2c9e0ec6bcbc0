// A completion queue: names of work queues that have completed a descriptor, of as many VIs as use it.
//
// Entries beyond the count it was made with are not lost: the queue grows, and counts that it had to.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <viaduct/vipl.h>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "base/spin_lock.hpp"

namespace viaduct::vipl {

class Adapter;

constexpr std::uint32_t kMostCqEntries = 1u << 20;
constexpr std::uint32_t kMostCqs = 16384;

using CqHandler = void (*)(VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_BOOLEAN);

class Cq {
 public:
  struct Entry {
    VIP_VI_HANDLE vi;
    bool receive;
  };
  struct Request {  // of VipCQNotify
    VIP_PVOID context;
    CqHandler handler;
  };

  Cq(std::shared_ptr<Adapter> adapter, std::size_t entries);

  Adapter& adapter() const { return *adapter_; }
  void push(Entry entry);
  bool pop(Entry& entry);
  bool resize(std::size_t entries);  // false: it holds more than that
  void forget(VIP_VI_HANDLE vi);     // entries of a VI that is destroyed

  void add_request(Request request);
  // A handler and the entry it is for, if there is one of each.
  bool take_request(Request& request, Entry& entry);
  bool has_requests();

  std::atomic<int> users{0};    // work queues
  std::atomic<int> waiters{0};  // threads and notify requests

 private:
  void push_locked(Entry entry);

  const std::shared_ptr<Adapter> adapter_;
  SpinLock lock_;
  std::atomic<std::uint64_t> count_{0};  // a look at an empty queue takes no lock
  std::vector<Entry> entries_;           // a ring; its size is a power of two
  std::uint64_t head_ = 0;
  std::size_t promised_;  // what the program asked for
  std::deque<Request> requests_;
};

}  // namespace viaduct::vipl
