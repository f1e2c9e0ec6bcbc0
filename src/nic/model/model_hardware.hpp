// ModelHardware: the card in virtual time, in the shape that handlers expect (hardware.hpp).
//
// A handler runs all at once when its processor takes its event; what it does costs cycles, which move that processor's
// own time ahead, and what it starts (a transfer, an event for another processor) starts at that time. So a handler's
// writes are seen by others up to one handler too early; the firmware is indifferent to when it sees an index.
//
// Hardware events (completions, frames) stay raised for as long as there is something to do. An idle processor notices
// an event at once.
#pragma once

#include <array>

#include "nic/model/link.hpp"
#include "nic/partition.hpp"

namespace viaduct::nic::model {

struct Accesses {
  double words = 0;  // of SRAM
  double registers = 0;
  Accesses operator+(const Accesses& more) const { return {words + more.words, registers + more.registers}; }
};

class ModelHardware {
 public:
  ModelHardware(const Card& card, const Variant& variant, const HostMemory& memory, Registers& registers,
                Calendar& calendar);

  // Event registers.
  void begin_round(Processor& cpu) { cpu.position = 0; }
  int next_event(Processor& cpu);
  void end_event(Processor& cpu, Event event, unsigned items);
  void raise(Processor& cpu, Event event);

  // DMA channels.
  bool reachable(HostAddress address, std::uint32_t length) const { return memory_.at(address, length) != nullptr; }
  std::uint32_t read_space() const { return bus.space(kRead); }
  std::uint32_t write_space() const { return bus.space(kWrite); }
  void read(Processor& cpu, const DmaDescriptor& descriptor);
  void write(Processor& cpu, const DmaDescriptor& descriptor);
  bool next_read_completion(DmaCompletion& completion) {
    return next_completion(kRead, Event::dma_read_complete, completion);
  }
  bool next_write_completion(DmaCompletion& completion) {
    return next_completion(kWrite, Event::dma_write_complete, completion);
  }

  // MAC channels.
  std::byte* transmit_buffer(std::uint32_t length);
  void transmit(Processor& cpu, const std::byte* frame, std::uint32_t length);
  bool peek_frame(Frame& frame);
  FrameFate frame_fate() const { return FrameFate::to_host; }
  void take_frame();
  void release_frame() { receive.release(); }

  // Registers, timers, interrupts.
  std::uint32_t mailbox(Mailbox which) const { return registers_.read_mailbox(which); }
  std::uint64_t command(std::uint32_t slot) const { return registers_.commands[slot].load(std::memory_order_relaxed); }
  void commands_consumed(std::uint32_t) {}
  void publish_send_consumer(std::uint32_t value) { registers_.send_consumer.store(value, std::memory_order_relaxed); }
  void arm(Processor& cpu, Event event, std::uint64_t ns);
  void disarm(Event event);
  void interrupt(Processor& cpu, unsigned) { calendar_.enter(time_of(cpu), What::host_interrupted); }

  // Costs.
  void charge(Processor& cpu, Event event, Work work, unsigned count);
  void touch(Processor& cpu, Memory memory, unsigned count) {
    const bool is_register = memory == Memory::hardware_register;
    spend(cpu, event_, 0, {is_register ? 0.0 : count, is_register ? count : 0.0});
  }

  // For the simulation around it.
  void start_event(Processor& cpu, Event event);  // from the calendar's now
  void set_raised(Event event);
  bool timer_rings(Event event, std::uint64_t arming);
  void transmit_may_have_space();
  Time time_of(const Processor& cpu) const { return state_[cpu.id].time; }
  Time claimed_until(Group group) const { return claimed_[static_cast<unsigned>(group)]; }
  unsigned owner_of(Event event) const;
  bool dynamic() const { return variant_.split == Split::dynamic || variant_.split == Split::packet_parallel; }
  Time busy_time(unsigned processor) const { return state_[processor].busy; }
  Time handler_time(Event event) const { return handler_time_[static_cast<unsigned>(event)]; }
  std::uint64_t handler_calls(Event event) const { return handler_calls_[static_cast<unsigned>(event)]; }

 private:
  struct ProcessorState {
    Time time = 0;
    Time busy = 0;
    Time started = 0;
  };

  bool is_raised(const Processor& cpu, Event event) const;
  bool next_completion(unsigned channel, Event event, DmaCompletion& completion);
  // Work in cycles, and what is in SRAM or a register whatever the variant.
  void spend(Processor& cpu, Event event, double cycles, Accesses accesses = {});
  bool code_in_sram(Event event) const;
  double cycle() const { return 1e12 / card_.clock_hz; }

  const Card& card_;
  const Variant& variant_;
  const HostMemory& memory_;
  Registers& registers_;
  Calendar& calendar_;

 public:
  Sram sram;
  Bus bus;
  TransmitChannel transmits;
  ReceiveChannel receive;

 private:
  std::array<ProcessorState, 64> state_{};
  Events raised_ = 0;             // of all processors: an event has one owner, or anybody
  unsigned common_position_ = 0;  // dynamic only
  Processor* running_ = nullptr;
  Event event_{};
  bool wants_transmit_space_ = false;
  struct Timer {
    bool armed = false;
    std::uint64_t arming = 0;
  };
  std::array<Timer, kEvents> timer_{};
  std::array<Time, 3> claimed_{};
  std::array<Time, kEvents> handler_time_{};
  std::array<std::uint64_t, kEvents> handler_calls_{};
};
static_assert(Hardware<ModelHardware>);

}  // namespace viaduct::nic::model
