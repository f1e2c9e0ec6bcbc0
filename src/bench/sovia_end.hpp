// SoviaEnd: one end of a stream of bytes over VIPL, by the protocol of the SOVIA paper, its parts chosen by
// SoviaOptions.
//
// An end may send w messages (packets of up to 32 KB) that are not acknowledged. So that each finds a receive, the
// other end keeps w + w/t receives posted, w for data and w/t for acknowledgements, and two more for FIN and FINACK. A
// message that arrives is queued in its buffer, a spare buffer is posted in its place, and the message counts as
// acknowledged. There are w spares; without one the receive is owed, and the acknowledgement with it, until recv() has
// emptied a buffer. Acknowledgements travel with data, or by themselves when t of them have gathered.
//
// One thread at a time calls send, recv, flush and close. A handler thread, a notify function and the timer of
// combining share the end with it, under the mutex; without any of them there is no locking. The reliable VI breaks
// when a message finds no receive, so that a mistake in this account ends the program instead of losing bytes.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "bench/sovia_memory.hpp"
#include "bench/sovia_options.hpp"
#include "bench/sovia_packet.hpp"

namespace viaduct::bench {

class SoviaEnd {
 public:
  explicit SoviaEnd(const SoviaOptions& options);
  SoviaEnd(const SoviaEnd&) = delete;
  ~SoviaEnd();

  void connect(Conduit::Side side, const std::string& name);
  void send(std::span<const std::byte> data);   // all of it
  std::size_t recv(std::span<std::byte> into);  // at least one byte; 0: the other end has closed, and all was read
  void flush();                                 // what was combined leaves now
  // Sends FIN and waits for the other end's; what still comes is thrown away.
  void close();

  // What was sent so far, for tests: to be asked while nobody sends.
  struct Counts {
    std::uint64_t data = 0;  // packets
    std::uint64_t acks = 0;
    std::uint64_t requests = 0;
    std::uint64_t copied = 0;  // messages
    std::uint64_t registered = 0;
    std::uint64_t combined = 0;
  };
  Counts counts();

 private:
  using Kind = SoviaPacket::Kind;
  using Lock = std::unique_lock<std::mutex>;
  struct Source {  // of a packet's data
    std::span<const std::byte> bytes;
    VIP_MEM_HANDLE handle = 0;
    std::byte* chunk = nullptr;  // to give back when it is sent
    bool registered = false;     // to be ended then
  };

  // sovia_end.cpp: beginning, ending, waiting
  bool two_way() const { return options_.synchronisation == SoviaOptions::Synchronisation::two_way; }
  Lock guard() { return locking_ ? Lock(mutex_) : Lock(mutex_, std::defer_lock); }
  void post_first_receives();
  void start_handling(Conduit::Side side);
  void run_handler(int processor);
  void ask_for_notice();
  static void on_notice(VIP_PVOID self, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR* descriptor);
  bool finished() const { return fin_here_ && finack_here_; }
  void take_packet(Lock& lock);
  template <class Condition>
  void await(Lock& lock, Condition&& condition) {
    while (!condition()) take_packet(lock);
  }
  void polled_in_vain();

  // sovia_receive.cpp: packets that come in
  void post_receive(VIP_DESCRIPTOR* descriptor);
  void handle(VIP_DESCRIPTOR* descriptor);
  void queue_data(VIP_DESCRIPTOR* descriptor);
  void take_end(Kind kind, VIP_DESCRIPTOR* descriptor);
  void replace_receive();
  void release(VIP_DESCRIPTOR* descriptor);
  void acknowledge();
  std::size_t read_queued(std::span<std::byte> into);

  // sovia_send.cpp: packets that go out
  void send_packet(Kind kind, const Source& source, std::uint32_t amount);
  void send_control(Kind kind, std::uint32_t amount = 0) { send_packet(kind, {}, amount); }
  void send_message(std::span<const std::byte> part, Lock& lock);
  std::byte* take_chunk();
  void reap(std::uint32_t most_under_way);
  void reap_completed();
  void retire();
  bool is_small(std::size_t size) const { return size <= options_.copy_limit; }

  // sovia_combine.cpp
  void append(std::span<const std::byte> part, Lock& lock);
  void flush(Lock& lock);
  void send_combined();
  void run_timer();
  void flush_if_possible();

  // sovia_three_way.cpp
  void send_three_way(std::span<const std::byte> data, Lock& lock);
  std::size_t recv_three_way(std::span<std::byte> into, Lock& lock);
  void handle_three_way(VIP_DESCRIPTOR* descriptor, const SoviaPacket& packet);

  const SoviaOptions options_;
  const bool locking_;
  ViplAdapter adapter_;
  VIP_CQ_HANDLE cq_ = nullptr;
  VIP_VI_HANDLE vi_ = nullptr;
  std::optional<SoviaMemory> memory_;
  Registrations registrations_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread handler_;
  bool fin_here_ = false;
  bool finack_here_ = false;
  bool closing_ = false;
  std::uint32_t vain_polls_ = 0;

  // Receiving. Descriptors 0 .. receives_ + spares - 1, each with its buffer.
  const std::uint32_t receives_;
  std::vector<VIP_DESCRIPTOR*> spares_;
  std::vector<VIP_DESCRIPTOR*> queued_;  // a ring of data that has arrived
  std::size_t first_queued_ = 0;
  std::size_t queued_count_ = 0;
  std::size_t read_of_first_ = 0;
  std::uint32_t owed_ = 0;
  std::uint32_t delayed_ = 0;  // d: acknowledgements that wait for data to go with

  // Sending. A ring of descriptors behind those of receiving; `under_way_` of them before next_send_.
  const std::uint32_t sends_;
  std::vector<Source> sources_;
  std::uint32_t next_send_ = 0;
  std::uint32_t under_way_ = 0;
  std::uint32_t window_;  // messages that may be sent now
  Counts counts_;

  // Combining.
  std::byte* filling_ = nullptr;
  std::size_t filled_ = 0;
  std::uint64_t combined_packets_ = 0;
  std::thread timer_;
  std::condition_variable timer_changed_;
  bool timer_asleep_ = false;
  bool timer_ends_ = false;

  // Three-way. One receive is posted for control packets, a second one from close() on.
  std::uint32_t asked_ = 0;               // REQ: so much wants to come
  std::optional<std::uint32_t> granted_;  // ACK: so much may go
  std::optional<std::uint32_t> landed_;   // DATA: so much has come
};

}  // namespace viaduct::bench
