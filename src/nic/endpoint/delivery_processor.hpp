// A processor that moves frames to endpoints: one of a receive queue. Whoever sorts frames hands them over in a ring;
// the frame stays in its MAC until it has been moved.
//
//   R1  sorter's release store of `producer_` publishes entries; pairs with A1 in run().
//   R2  processor's release store of `done_` says that frames may go back to the MAC; pairs with A2 in done().
#pragma once

#include <viaduct/nic_mac.hpp>

#include <array>
#include <atomic>
#include <thread>

#include "base/wait_word.hpp"
#include "nic/endpoint/port.hpp"

namespace viaduct::nic {

class DeliveryProcessor {
 public:
  static constexpr std::uint32_t kFrames = 512;  // as many as the MAC lets out: it does not fill up

  DeliveryProcessor(unsigned queue, int core, std::uint64_t spin_us) : queue_(queue), core_(core), spin_us_(spin_us) {}
  ~DeliveryProcessor();
  DeliveryProcessor(const DeliveryProcessor&) = delete;
  DeliveryProcessor& operator=(const DeliveryProcessor&) = delete;

  void start();

  // The sorter's. False: there is no room.
  bool hand_over(const Frame& frame, Port& port, std::uint16_t id) {
    if (written_ - done_.load(std::memory_order_acquire) == kFrames) return false;
    entries_[written_++ % kFrames] = {frame, &port, id};
    return true;
  }
  void publish();  // what was handed over since
  std::uint32_t written() const { return written_; }
  std::uint32_t done() const { return done_.load(std::memory_order_acquire); }  // A2

 private:
  struct Entry {
    Frame frame;
    Port* port;
    std::uint16_t id;
  };
  void run();
  void move(std::uint32_t from, std::uint32_t to);

  const unsigned queue_;
  const int core_;
  const std::uint64_t spin_us_;
  std::array<Entry, kFrames> entries_{};
  std::uint32_t written_ = 0;  // the sorter's
  alignas(64) std::atomic<std::uint32_t> producer_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};
  WaitWord word_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace viaduct::nic
