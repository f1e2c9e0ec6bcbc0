#include "fabric/completion_queue.hpp"

#include <rdma/fi_errno.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include "fabric/domain.hpp"
#include "fabric/none.hpp"

namespace viaduct::fabric {

namespace {

constexpr unsigned kLooksBeforeYield = 500;

// An entry of each format is the beginning of the longest.
std::size_t size_of(fi_cq_format format) {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    default:
      return sizeof(fi_cq_tagged_entry);
  }
}

}  // namespace

CompletionQueue::CompletionQueue(Domain& domain, const fi_cq_attr& attributes, void* context)
    : fid_cq{}, domain_(domain), format_(attributes.format), wait_(attributes.wait_obj) {
  fid = {FI_CLASS_CQ, context, &kOps};
  ops = &kQueueOps;
  domain_.users.fetch_add(1);
}

int CompletionQueue::open(Domain& domain, const fi_cq_attr& attributes, void* context, fid_cq** queue) {
  const bool waits = attributes.wait_obj == FI_WAIT_NONE || attributes.wait_obj == FI_WAIT_UNSPEC ||
                     attributes.wait_obj == FI_WAIT_YIELD;
  if (!waits || attributes.wait_cond != FI_CQ_COND_NONE) return -FI_ENOSYS;
  *queue = new (std::nothrow) CompletionQueue(domain, attributes, context);
  return *queue == nullptr ? -FI_ENOMEM : 0;
}

void CompletionQueue::write(const Completed& completed) {
  const std::lock_guard lock(lock_);
  entries_.push_back(completed);
  count_.fetch_add(1, std::memory_order_release);
}

ssize_t CompletionQueue::take(std::byte* buffer, std::size_t count, fi_addr_t* sources) {
  const std::lock_guard lock(lock_);
  const std::size_t size = size_of(format_);
  std::size_t taken = 0;
  for (; taken < count && !entries_.empty(); ++taken) {
    const Completed& first = entries_.front();
    if (first.error != 0) return taken == 0 ? -FI_EAVAIL : static_cast<ssize_t>(taken);
    std::memcpy(buffer + taken * size, &first.entry, size);
    if (sources != nullptr) sources[taken] = first.source;
    entries_.pop_front();
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
  return taken == 0 ? -FI_EAGAIN : static_cast<ssize_t>(taken);
}

ssize_t CompletionQueue::read(void* buffer, std::size_t count, fi_addr_t* sources) {
  if (!has_any()) {
    sleeper_.progress();
    if (!has_any()) {
      // Programs ask again and again. Whoever they wait for may need this very processor.
      if (vain_looks_.fetch_add(1, std::memory_order_relaxed) >= kLooksBeforeYield) ::sched_yield();
      return -FI_EAGAIN;
    }
  }
  vain_looks_.store(0, std::memory_order_relaxed);
  return count == 0 ? 0 : take(static_cast<std::byte*>(buffer), count, sources);
}

ssize_t CompletionQueue::read_error(fi_cq_err_entry& entry) {
  const std::lock_guard lock(lock_);
  if (entries_.empty() || entries_.front().error == 0) return -FI_EAGAIN;
  const Completed& first = entries_.front();
  entry.op_context = first.entry.op_context;
  entry.flags = first.entry.flags;
  entry.len = first.entry.len;
  entry.buf = first.entry.buf;
  entry.data = first.entry.data;
  entry.tag = first.entry.tag;
  entry.olen = first.left_out;
  entry.err = first.error;
  entry.prov_errno = first.error;
  entry.err_data = nullptr;
  entry.err_data_size = 0;
  entries_.pop_front();
  count_.fetch_sub(1, std::memory_order_relaxed);
  return 1;
}

ssize_t CompletionQueue::read_sleeping(void* buffer, std::size_t count, fi_addr_t* sources, int timeout_ms) {
  if (wait_ == FI_WAIT_NONE) return -FI_ENOSYS;
  const ssize_t at_once = read(buffer, count, sources);
  if (at_once != -FI_EAGAIN) return at_once;
  (void)sleeper_.wait(timeout_ms, [&] { return has_any() || signalled_.load(std::memory_order_acquire); });
  signalled_.store(false, std::memory_order_relaxed);
  return has_any() ? take(static_cast<std::byte*>(buffer), count, sources) : -FI_EAGAIN;
}

// ---- the exported forms

struct CompletionQueueCalls {
  static CompletionQueue& self(fid_cq* queue) { return static_cast<CompletionQueue&>(*queue); }

  static int close(fid_t fid) {
    CompletionQueue& queue = CompletionQueue::of(fid);
    if (queue.users.load() != 0) return -FI_EBUSY;
    queue.domain_.users.fetch_sub(1);
    delete &queue;
    return 0;
  }
  static int control(fid_t fid, int command, void* argument) {
    if (command != FI_GETWAITOBJ) return -FI_ENOSYS;
    *static_cast<fi_wait_obj*>(argument) = CompletionQueue::of(fid).wait_;
    return 0;
  }
  static ssize_t read(fid_cq* queue, void* buffer, std::size_t count) {
    return self(queue).read(buffer, count, nullptr);
  }
  static ssize_t readfrom(fid_cq* queue, void* buffer, std::size_t count, fi_addr_t* sources) {
    return self(queue).read(buffer, count, sources);
  }
  static ssize_t readerr(fid_cq* queue, fi_cq_err_entry* entry, std::uint64_t) {
    return self(queue).read_error(*entry);
  }
  static ssize_t sread(fid_cq* queue, void* buffer, std::size_t count, const void*, int timeout_ms) {
    return self(queue).read_sleeping(buffer, count, nullptr, timeout_ms);
  }
  static ssize_t sreadfrom(fid_cq* queue, void* buffer, std::size_t count, fi_addr_t* sources, const void*,
                           int timeout_ms) {
    return self(queue).read_sleeping(buffer, count, sources, timeout_ms);
  }
  static int signal(fid_cq* queue) {
    self(queue).signalled_.store(true, std::memory_order_release);
    self(queue).sleeper_.wake();
    return 0;
  }
  static const char* strerror(fid_cq*, int number, const void*, char* buffer, std::size_t length) {
    const char* const text = ::fi_strerror(number);
    if (buffer != nullptr && length != 0) {
      std::strncpy(buffer, text, length - 1);
      buffer[length - 1] = 0;
    }
    return text;
  }
};

fi_ops CompletionQueue::kOps = {
    .size = sizeof(fi_ops),
    .close = CompletionQueueCalls::close,
    .bind = VIADUCT_NONE(fi_ops, bind),
    .control = CompletionQueueCalls::control,
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};
fi_ops_cq CompletionQueue::kQueueOps = {
    .size = sizeof(fi_ops_cq),
    .read = CompletionQueueCalls::read,
    .readfrom = CompletionQueueCalls::readfrom,
    .readerr = CompletionQueueCalls::readerr,
    .sread = CompletionQueueCalls::sread,
    .sreadfrom = CompletionQueueCalls::sreadfrom,
    .signal = CompletionQueueCalls::signal,
    .strerror = CompletionQueueCalls::strerror,
};

}  // namespace viaduct::fabric
