// The adapter's side of an endpoint's memory. The user may be another process, and hostile: it can lose its own frames,
// nothing else.
//
// The receiving half is under `receive_lock`: where endpoints are steered to queues, one processor takes it; in round
// robin all of them do. The sending half is under `send_lock`, which the processor that sends takes. Opening and
// closing take both. A port is never freed while its adapter lives, so that whoever finds one may lock it.
#pragma once

#include <viaduct/nic_endpoint.hpp>

#include <vector>

#include "base/spin_lock.hpp"
#include "nic/endpoint/memory.hpp"

namespace viaduct::nic {

class Port {
 public:
  static constexpr std::uint32_t kSendBatch = 32;  // of one endpoint, then it is the next one's turn

  struct Opening {
    std::uint16_t id = 0;
    bool listens = false;
    EndpointGeometry geometry{};
    Segment segment{};
    int bell = -1;  // where its user sleeps; not ours
    MessageEnd message_end{};
    bool is_socket = false;  // the bell: a byte is sent; else an eventfd
  };

  // Both locks are held.
  void open(Opening opening);
  Segment close();                                    // what it had, to be unmapped without the locks
  const EndpointView& view() const { return view_; }  // while it is open
  bool is_open() const { return open_.load(std::memory_order_relaxed); }
  std::uint16_t id() const { return id_.load(std::memory_order_relaxed); }
  bool listens() const { return listens_.load(std::memory_order_relaxed); }

  // Receiving half. False: the user holds as much as it may; counted.
  bool deliver(const Frame& frame, unsigned queue);
  void count_over_limit() { view_.memory->over_limit.store(++over_limit_, std::memory_order_relaxed); }
  // After the last of a batch, if there is one in it to ring for.
  void ring_user() {
    if (!rings_) return;
    rings_ = false;
    ring();
  }

  // Sending half. How many frames the MAC took, their bytes added up; `waiting`: it took less than there are.
  std::size_t send(Mac& mac, std::uint64_t& bytes, bool& waiting);
  // The processor that sends is about to sleep. False: there is something to send.
  bool arm();
  void publish(const MacCounters& counters, Link link, std::uint32_t max_frame);

  SpinLock receive_lock, send_lock;

  // Of the processor that sorts frames: where the last one went, so that an endpoint which is moved to another queue
  // keeps its order.
  unsigned queue = 0;
  std::uint64_t last_ticket = 0;

 private:
  void take_free();
  bool is_half_out();
  void ring();
  bool ends_message(const Frame& frame) const {
    return message_end_.mask == 0 ||
           (message_end_.offset < frame.length &&
            (std::to_integer<unsigned>(frame.data[message_end_.offset]) & message_end_.mask) == message_end_.mask);
  }

  std::atomic<bool> open_{false}, listens_{false};
  std::atomic<std::uint16_t> id_{0};
  Segment segment_;
  EndpointView view_;
  int bell_ = -1;
  bool is_socket_ = false;
  // Receiving half.
  alignas(64) std::uint32_t producer_ = 0;
  std::uint32_t free_consumer_ = 0;
  std::uint64_t over_limit_ = 0;
  MessageEnd message_end_;
  bool rings_ = false;
  std::vector<std::uint32_t> free_;      // a stack: the buffer used last is in a cache
  std::vector<std::uint8_t> with_user_;  // per buffer
  // Sending half.
  alignas(64) std::uint32_t send_consumer_ = 0;
};

}  // namespace viaduct::nic
