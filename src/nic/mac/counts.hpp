// The counters of a MAC: each written by one half, read by anybody.
#pragma once

#include <viaduct/nic_mac.hpp>

#include <atomic>

namespace viaduct::nic {

class MacCounts {
 public:
  void sent(std::uint64_t by) { add(sent_, by); }
  void refused(std::uint64_t by) { add(refused_, by); }
  void received(std::uint64_t by) { add(received_, by); }
  void lost(std::uint64_t by) { add(lost_, by); }

  MacCounters read() const {
    const auto get = [](const std::atomic<std::uint64_t>& count) { return count.load(std::memory_order_relaxed); };
    return {get(sent_), get(received_), get(refused_), get(lost_)};
  }

 private:
  static void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {
    count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  alignas(64) std::atomic<std::uint64_t> sent_{0}, refused_{0};   // the transmit half's
  alignas(64) std::atomic<std::uint64_t> received_{0}, lost_{0};  // the receive half's
};

}  // namespace viaduct::nic
