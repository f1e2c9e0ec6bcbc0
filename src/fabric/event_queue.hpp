// Event queues: fi_eq_*. Of this provider's own only addresses that were inserted with FI_EVENT; programs write theirs.
#pragma once

#include <rdma/fi_eq.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace viaduct::fabric {

class EventQueue final : public fid_eq {
 public:
  static int open(const fi_eq_attr& attributes, void* context, fid_eq** queue);
  static EventQueue& of(fid_t handle) { return static_cast<EventQueue&>(*reinterpret_cast<fid_eq*>(handle)); }

  void write(std::uint32_t event, const void* bytes, std::size_t length);

 private:
  explicit EventQueue(void* context);
  ssize_t read(std::uint32_t* event, void* bytes, std::size_t length, int timeout_ms, std::uint64_t flags);
  static fi_ops kOps;
  static fi_ops_eq kQueueOps;
  friend struct EventQueueCalls;

  struct Event {
    std::uint32_t kind;
    std::vector<std::byte> bytes;
  };
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Event> events_;
};

}  // namespace viaduct::fabric
