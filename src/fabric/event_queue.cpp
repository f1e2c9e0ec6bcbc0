#include "fabric/event_queue.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "fabric/none.hpp"

namespace viaduct::fabric {

EventQueue::EventQueue(void* context) : fid_eq{} {
  fid = {FI_CLASS_EQ, context, &kOps};
  ops = &kQueueOps;
}

int EventQueue::open(const fi_eq_attr& attributes, void* context, fid_eq** queue) {
  const bool waits = attributes.wait_obj == FI_WAIT_NONE || attributes.wait_obj == FI_WAIT_UNSPEC ||
                     attributes.wait_obj == FI_WAIT_YIELD;
  if (!waits) return -FI_ENOSYS;
  *queue = new (std::nothrow) EventQueue(context);
  return *queue == nullptr ? -FI_ENOMEM : 0;
}

void EventQueue::write(std::uint32_t event, const void* bytes, std::size_t length) {
  const auto* const from = static_cast<const std::byte*>(bytes);
  {
    const std::lock_guard lock(mutex_);
    events_.push_back({event, {from, from + length}});
  }
  came_.notify_one();
}

ssize_t EventQueue::read(std::uint32_t* event, void* bytes, std::size_t length, int timeout_ms, std::uint64_t flags) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return !events_.empty(); };
  if (timeout_ms < 0)
    came_.wait(lock, there);
  else
    (void)came_.wait_for(lock, std::chrono::milliseconds(timeout_ms), there);
  if (events_.empty()) return -FI_EAGAIN;
  const Event& first = events_.front();
  if (length < first.bytes.size()) return -FI_ETOOSMALL;
  const auto size = static_cast<ssize_t>(first.bytes.size());
  if (event != nullptr) *event = first.kind;
  std::memcpy(bytes, first.bytes.data(), first.bytes.size());
  if ((flags & FI_PEEK) == 0) events_.pop_front();
  return size;
}

struct EventQueueCalls {
  static EventQueue& self(fid_eq* queue) { return static_cast<EventQueue&>(*queue); }

  static int close(fid_t fid) { return delete &EventQueue::of(fid), 0; }
  static ssize_t read(fid_eq* queue, std::uint32_t* event, void* bytes, std::size_t length, std::uint64_t flags) {
    return self(queue).read(event, bytes, length, 0, flags);
  }
  static ssize_t sread(fid_eq* queue, std::uint32_t* event, void* bytes, std::size_t length, int timeout_ms,
                       std::uint64_t flags) {
    return self(queue).read(event, bytes, length, timeout_ms, flags);
  }
  static ssize_t readerr(fid_eq*, fi_eq_err_entry*, std::uint64_t) { return -FI_EAGAIN; }  // there are none
  static ssize_t write(fid_eq* queue, std::uint32_t event, const void* bytes, std::size_t length, std::uint64_t) {
    self(queue).write(event, bytes, length);
    return static_cast<ssize_t>(length);
  }
  static const char* strerror(fid_eq*, int number, const void*, char*, std::size_t) { return ::fi_strerror(number); }
};

fi_ops EventQueue::kOps = {
    .size = sizeof(fi_ops),
    .close = EventQueueCalls::close,
    .bind = VIADUCT_NONE(fi_ops, bind),
    .control = VIADUCT_NONE(fi_ops, control),
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};
fi_ops_eq EventQueue::kQueueOps = {
    .size = sizeof(fi_ops_eq),
    .read = EventQueueCalls::read,
    .readerr = EventQueueCalls::readerr,
    .write = EventQueueCalls::write,
    .sread = EventQueueCalls::sread,
    .strerror = EventQueueCalls::strerror,
};

}  // namespace viaduct::fabric
