// A work queue: the descriptors a program has posted, in the order in which they complete and are handed back.
//
//        head          done          next          tail
//   -----|--completed---|--under way---|---waiting---|
//
// Positions only grow. `next` is used by send queues: what lies between `done` and `next` has been started and waits
// for an acknowledgement or a reply, or has finished behind one that does. In a receive queue it has been shown to the
// peer, or could not be.
//
// Under the VI's lock, except `waiters`.
#pragma once

#include <sys/uio.h>
#include <viaduct/vipl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

namespace viaduct::vipl {

constexpr std::uint32_t kMostDescriptors = 16384;
constexpr std::uint32_t kMostSegments = 252;

class Cq;

struct WorkItem {
  VIP_DESCRIPTOR* descriptor = nullptr;
  std::uint64_t sequence = 0;  // of reliable reception: which acknowledgement finishes it. Of an offer: its receive
  std::uint64_t offer = 0;     // its number; 0: none
  VIP_MEM_HANDLE memory = 0;   // that the descriptor itself lies in
  std::uint32_t length = 0;    // of all its data segments
  std::uint32_t usable = 0;    // of a receive: so many bytes from the first on are in registered memory
  std::uint32_t version = 0;   // of the registrations when it was last checked
  std::uint32_t status = 0;    // VIP_STATUS_*, once finished
  std::uint32_t part = 0;      // of an offer: how many bytes are
  std::uint16_t segments = 0;  // data segments
  std::uint16_t control = 0;   // as posted: what the program writes there later does not matter
  bool finished = false;
  bool moved = false;           // the bytes are in place there; the word that says so may not have gone yet
  bool read_under_way = false;  // an RDMA read that waits for its reply
  bool by_reference = false;    // a send whose bytes the peer fetches
  bool left = false;            // an offer that is not taken back: the peer may have to fetch all of it
  bool under_way = false;       // its bytes are on their way to or from another host
  bool delivering = false;      // complete when the peer's side has it: `sequence` says how much that is
  std::uint32_t lent = 0;       // the key under which the peer on another host reads its bytes

  void finish(std::uint32_t with) {
    status = with | VIP_STATUS_DONE;
    finished = true;
  }
  std::uint16_t operation() const { return control & VIP_CONTROL_OP_MASK; }
  bool is_rdma() const { return operation() != VIP_CONTROL_OP_SENDRECV; }
  // Of a descriptor in a send queue, for its status.
  std::uint32_t send_operation() const {
    switch (operation()) {
      case VIP_CONTROL_OP_RDMAWRITE:
        return VIP_STATUS_OP_RDMA_WRITE;
      case VIP_CONTROL_OP_RDMAREAD:
        return VIP_STATUS_OP_RDMA_READ;
      default:
        return VIP_STATUS_OP_SEND;
    }
  }
  const VIP_ADDRESS_SEGMENT& remote() const { return descriptor->DS[0].Remote; }
  // Behind the address segment where there is one; more of them than the type says may lie there.
  const VIP_DATA_SEGMENT* data() const {
    const auto* const first = reinterpret_cast<const VIP_DATA_SEGMENT*>(descriptor + 1) - 2;
    return first + (is_rdma() ? 1 : 0);
  }
};

// The bytes [offset, offset + length) of some segments.
inline std::size_t gather(const VIP_DATA_SEGMENT* segments, std::size_t count, std::size_t offset, std::size_t length,
                          iovec* pieces) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < count && length > 0; ++i) {
    const std::size_t size = segments[i].Length;
    if (offset >= size) {
      offset -= size;
      continue;
    }
    const std::size_t part = std::min(size - offset, length);
    pieces[used++] = {static_cast<std::byte*>(segments[i].Data.Address) + offset, part};
    length -= part;
    offset = 0;
  }
  return used;
}

using QueueHandler = void (*)(VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR*);

class WorkQueue {
 public:
  struct Request {  // of VipSendNotify and VipRecvNotify
    VIP_PVOID context;
    QueueHandler handler;
  };

  WorkQueue() : items_(std::make_unique<WorkItem[]>(kFirstRoom)) {}

  bool empty() const { return head_ == tail_; }
  bool full() const { return tail_ - head_ == kMostDescriptors; }
  bool has_completed() const { return head_ != done_; }
  bool has_waiting() const { return next_ != tail_; }
  bool has_open() const { return done_ != tail_; }  // that are not complete
  bool has_only_one_waiting() const { return next_ + 1 == tail_; }
  bool has_only_one() const { return head_ + 1 == tail_; }

  WorkItem& push(const WorkItem& item) {
    if (tail_ - head_ > mask_) [[unlikely]]
      grow();
    return at(tail_++) = item;
  }
  VIP_DESCRIPTOR* pop() { return at(head_++).descriptor; }

  WorkItem& first_completed() { return at(head_); }
  WorkItem& first_open() { return at(done_); }
  WorkItem& first_waiting() { return at(next_); }
  void started() { ++next_; }
  void start_again() { next_ = done_; }
  std::uint64_t position_of_first_waiting() const { return next_; }
  // Started, and not complete; null: it is not.
  WorkItem* started_at(std::uint64_t position) {
    return position >= done_ && position < next_ ? &at(position) : nullptr;
  }
  WorkItem* last_started() { return next_ > done_ ? &at(next_ - 1) : nullptr; }
  void not_started() { --next_; }  // the one that was started last
  void completed() {
    ++done_;
    if (next_ < done_) next_ = done_;
  }

  // Those that have been started and are not complete, oldest first; `body` returns false to stop.
  template <class Body>
  void for_each_started(Body body) {
    for (std::uint64_t i = done_; i < next_; ++i)
      if (!body(at(i))) return;
  }
  template <class Body>
  void for_each_open(Body body) {
    for (std::uint64_t i = done_; i < tail_; ++i) body(at(i));
    next_ = tail_;
  }

  Cq* cq = nullptr;
  std::atomic<int> waiters{0};  // threads and notify requests that want to hear of a completion
  std::deque<Request> requests;

 private:
  static constexpr std::size_t kFirstRoom = 16;  // thousands of VIs: most have few descriptors

  WorkItem& at(std::uint64_t position) { return items_[position & mask_]; }
  void grow() {
    const std::uint64_t mask = 2 * mask_ + 1;
    auto more = std::make_unique<WorkItem[]>(mask + 1);
    for (std::uint64_t i = head_; i != tail_; ++i) more[i & mask] = at(i);
    items_ = std::move(more);
    mask_ = mask;
  }

  std::unique_ptr<WorkItem[]> items_;
  std::uint64_t mask_ = kFirstRoom - 1;
  std::uint64_t head_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace viaduct::vipl
