// The shared-memory transport of a channel: two rings and a control block in one sealed segment, and a UNIX socket that
// both sides hold, which is the doorbell for a sleeping receiver and tells when the peer has gone.
//
// One thread may send while another receives. Only the receiving side reads the socket empty: a doorbell in it is for
// whoever waits for data (wait_to_receive, poll, a ready queue), and stays until that one has seen it. A sender that
// waits for space sleeps on the futex instead.
#pragma once

#include <viaduct/via.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fd.hpp"
#include "base/hint_queue.hpp"
#include "base/result.hpp"
#include "base/segment.hpp"
#include "base/waiter.hpp"
#include "via/channel/channel_format.hpp"

namespace viaduct::via {

class ShmChannel final : public Channel, public SharedEnd {
 public:
  // `side` 0 made the segment, 1 joined it. The socket stays with the channel.
  static Result<std::unique_ptr<ShmChannel>> attach(Segment segment, ChannelGeometry geometry, int side, Fd socket);
  ~ShmChannel() override;

  Sent try_send(std::span<const iovec> pieces, std::uint32_t immediate, bool more) override;
  std::size_t largest_fragment() const override { return geometry_.largest_fragment(); }
  std::size_t credits(std::size_t length) override;
  std::uint64_t delivered() const override { return fragments_sent_.get(); }  // the ring is the peer's as well
  std::uint64_t taken() const override { return fragments_sent_.get(); }
  void tell_when_delivered(std::uint64_t) override {}
  Got peek(Fragment& fragment) override;
  void consume() override;
  void finish_sending() override;
  CloseReason close_reason() const override;
  std::error_code wait_to_receive(int timeout_ms) override;
  std::error_code wait_to_send(std::size_t length, int timeout_ms) override;
  bool progress() override { return false; }  // memory needs nobody's help
  Statistics statistics() const override;
  std::error_code enter(ReadyEntrance& entrance, std::uint64_t tag) override;
  void leave(ReadyEntrance& entrance) override;

  SharedEnd* shared() override { return this; }
  int descriptor() const override { return socket_.get(); }
  bool arm_to_receive() override;
  void disarm() override;
  std::byte* words(Whose whose) const override {
    return segment_.as<ChannelControl>()->words[whose == Whose::ours ? side_ : 1 - side_];
  }

  // For the ready queue that the channel is in, all by the receiving thread. has_news(): peek() would not say
  // `nothing`.
  bool has_news();
  Status join_queue(const Segment& queue, HintQueue& hints, std::uint32_t number);
  void leave_queue();
  bool arm_for_queue();  // false: there is something already
  // Whoever sends next gives a hint, and nobody has sent since.
  bool is_armed_and_quiet() { return in_.shared().data.is_armed() && !has_news() && !peer_gone(); }
  // Takes the doorbells off the socket, and notices the peer's ready queue and its end.
  void drain_socket();
  bool peer_gone() const { return peer_gone_.load(std::memory_order_acquire); }

 private:
  class SocketSleeper;
  class SpaceSleeper;

  // Written by one thread, read by any.
  class Count {
   public:
    void add(std::uint64_t by) { value_.store(value_.load(std::memory_order_relaxed) + by, std::memory_order_relaxed); }
    std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
  };

  ShmChannel(Segment segment, ChannelGeometry geometry, int side, Fd socket, SlotProducer out, SlotConsumer in);

  std::byte* bulk(int direction) const { return segment_.payload().data() + geometry_.bulk_offset(direction); }
  bool sending_is_over() const { return sending_over_.load(std::memory_order_relaxed); }
  void note_broken();
  void note_peer_gone();
  std::size_t slots_free();
  std::uint64_t place_for(std::size_t length) const;
  bool bulk_fits(std::uint64_t position, std::size_t length);
  Sent refused();
  void publish(std::uint16_t kind, std::uint16_t length);
  void wake_receiver();
  void ring_doorbell();
  bool give_hint(QueuePlace place);

  Got nothing_in_ring(SlotConsumer::Message& message);
  Got ended(CloseReason reason);
  void look_for_end();
  void step_out_of_queue();
  void step_back_into_queue();

  bool read_socket(std::size_t most, int flags);
  void find_peer_queue(std::uint32_t queue);
  void take_peer_queue(Fd fd, std::uint32_t queue);

  SideStatus& mine() const { return segment_.as<ChannelControl>()->side[side_]; }
  SideStatus& theirs() const { return segment_.as<ChannelControl>()->side[1 - side_]; }

  Segment segment_;
  ChannelGeometry geometry_;
  int side_;
  Fd socket_;

  // Sending.
  SlotProducer out_;
  std::uint64_t bulk_tail_ = 0;
  std::uint64_t bulk_head_ = 0;
  std::vector<std::uint64_t> bulk_tail_after_;  // by slot: the bulk tail once that slot is given back
  std::atomic<bool> finished_sending_{false};
  Waiter send_waiter_;
  Count fragments_sent_, bytes_sent_, data_wakes_, refused_full_;

  // Receiving.
  SlotConsumer in_;
  struct {
    bool valid = false;
    bool in_bulk = false;
    std::size_t length = 0;
  } peeked_;
  std::uint32_t empty_looks_ = 0;
  Waiter receive_waiter_;
  HintQueue* own_queue_ = nullptr;  // the ready queue this end is in
  QueuePlace own_place_{0, 0};
  std::uint32_t queues_announced_ = 0;
  Count fragments_received_, bytes_received_, space_wakes_;

  // The peer's ready queue, under the mutex: the sending thread needs it, the receiving one may come across it.
  std::mutex socket_mutex_;
  Segment peer_queue_segment_;
  std::unique_ptr<HintQueue> peer_queue_;
  std::uint32_t peer_queue_taken_ = 0;  // which of those announced it is
  std::uint32_t peer_queues_read_ = 0;  // announcements that are off the socket
  bool peer_queue_fault_logged_ = false;

  // What either thread may notice.
  std::atomic<CloseReason> received_end_{CloseReason::open};  // why peek() says `end`
  std::atomic<bool> peer_gone_{false};                        // its end of the socket is closed, or it says so
  std::atomic<bool> sending_over_{false};                     // finished here, peer gone, or broken
};

}  // namespace viaduct::via
