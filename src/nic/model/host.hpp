// The host of the model: a driver that moves indices and descriptors, and the peer at the other end of the link.
//
// Sending is evenly spaced: a packet is posted when one has left the card, so many being on their way. The peer sends
// when the card has room (its MAC pauses it) or at a given rate; with every frame that comes, one buffer that has been
// read is posted again. Where both directions go on, neither runs ahead of the other.
// Every frame carries its number, so that what comes out is known to be what went in.
#pragma once

#include <vector>

#include "nic/model/model_hardware.hpp"

namespace viaduct::nic::model {

class ModelHost {
 public:
  ModelHost(const Card& card, const Traffic& traffic, bool direct_send_consumer, HostMemory& memory,
            Registers& registers, Calendar& calendar, ModelHardware& hardware);

  HostAddress rings() const { return rings_at_; }
  void start();

  // From the calendar.
  void interrupted();
  void may_send();
  void packet_left(std::uint64_t tag);
  void frame_arrives();  // its last bit is here
  void offer_frame();    // let the next one come, if it may

  // Counts.
  std::uint64_t posted = 0, transmitted = 0, sent_out_of_order = 0;
  std::uint64_t arrived = 0, delivered = 0, lost = 0, delivered_out_of_order = 0;
  double ping_us_sum = 0;
  std::uint64_t pings = 0;

 private:
  static constexpr Time kSettled = 2000 * kMicrosecond;  // the card has all receive descriptors: traffic may begin
  static constexpr std::uint32_t kWindow = 32;           // packets on their way through the card
  static constexpr std::uint32_t kBuffers = 256;         // receive buffers with the card
  static constexpr std::uint32_t kBufferBytes = 1536;

  Time packet_time() const { return seconds_to_time(card_.host_packet_us * 1e-6); }
  void post_buffer(std::uint32_t buffer);
  void write_receive_mailbox(Time at);
  void give_back_buffer(Time at);
  void post_packet(Time at);
  std::uint32_t send_consumer() const;
  bool peer_may_send() const;

  const Card& card_;
  const Traffic& traffic_;
  const bool direct_;
  Registers& registers_;
  Calendar& calendar_;
  ModelHardware& hardware_;

  std::vector<std::byte> ring_memory_;
  std::vector<std::byte> buffers_;  // receive buffers, then one send buffer for each slot of the send ring
  HostRings* rings_;
  HostAddress rings_at_, buffers_at_;

  Time busy_until_ = 0;  // one processor drives everything
  std::uint32_t send_producer_ = 0, send_rung_ = 0;
  std::uint32_t receive_producer_ = 0, receive_rung_ = 0;
  std::uint32_t return_consumer_ = 0;
  std::deque<std::uint32_t> read_buffers_;  // the host is done with them
  std::uint64_t next_sent_ = 0, next_delivered_ = 0;
  std::uint64_t frames_started_ = 0;
  bool frame_on_wire_ = false;
  Time ping_started_ = 0;
};

}  // namespace viaduct::nic::model
