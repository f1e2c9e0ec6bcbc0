// Event registers of the live adapter.
//
// Fixed partition: one register per processor. What a processor raises for itself it keeps in a plain word; others set
// bits in an atomic one. Dynamic partition: one register for all, and a word of claims, one bit per group.
//   R1  raise() by another processor publishes what the handler will read; pairs with A1 in collect().
//   R2  release of a claim publishes the group's state; pairs with A2 in claim().
#pragma once

#include <array>
#include <atomic>

#include "nic/partition.hpp"

namespace viaduct::nic {

class EventRegisters {
 public:
  EventRegisters(const Assignment& processor_of, bool dynamic) : processor_of_(processor_of), dynamic_(dynamic) {}

  bool dynamic() const { return dynamic_; }
  unsigned processor_of(Event event) const { return processor_of_[static_cast<unsigned>(event)]; }

  // True: another processor has to handle it.
  bool raise(Processor& cpu, Event event) {
    if (dynamic_) {
      all_.fetch_or(bit(event), std::memory_order_release);
      return false;
    }
    const unsigned owner = processor_of(event);
    if (owner == cpu.id) {
      cpu.raised |= bit(event);
      return false;
    }
    remote_[owner].word.fetch_or(bit(event), std::memory_order_release);  // R1
    return true;
  }

  // Fixed partition: what others raised for this processor.
  void collect(Processor& cpu) {
    std::atomic<Events>& word = remote_[cpu.id].word;
    if (word.load(std::memory_order_relaxed) != 0) cpu.raised |= word.exchange(0, std::memory_order_acquire);  // A1
  }

  // Dynamic partition.
  bool is_raised(Event event) const { return (all_.load(std::memory_order_relaxed) & bit(event)) != 0; }
  bool lower(Event event) { return (all_.fetch_and(~bit(event), std::memory_order_acquire) & bit(event)) != 0; }
  bool claim(Group group) {
    std::atomic<std::uint32_t>& word = claims_[static_cast<unsigned>(group)].word;
    return word.load(std::memory_order_relaxed) == 0 && word.exchange(1, std::memory_order_acquire) == 0;  // A2
  }
  void release(Group group) { claims_[static_cast<unsigned>(group)].word.store(0, std::memory_order_release); }  // R2

 private:
  struct alignas(64) Line {
    std::atomic<Events> word{0};
  };
  const Assignment processor_of_;
  const bool dynamic_;
  std::array<Line, kMostProcessors> remote_;
  alignas(64) std::atomic<Events> all_{0};
  std::array<Line, 3> claims_;
};

}  // namespace viaduct::nic
