// LiveHardware: the Hardware of a running adapter. Its parts are in files of their own; this puts them together and
// says when each is looked at.
//
// A processor looks only at the parts whose events it handles, at the beginning of a round: mailboxes, completions,
// frames that arrived, timers. What Send Data Ready queued for the MAC goes out when that handler ends.
//
// Where the caller's thread is the processor (prompt), a packet is to leave within the round that finds its mailbox
// written. Then that round looks at nothing else, unless the one before did so too; and after its descriptors have been
// fetched, which here takes no time, the round goes back to DMA Read Complete, once.
#pragma once

#include "base/waiter.hpp"
#include "nic/dma_channel.hpp"
#include "nic/doze.hpp"
#include "nic/event_registers.hpp"
#include "nic/receive_channel.hpp"
#include "nic/ticks.hpp"
#include "nic/transmit_channel.hpp"

namespace viaduct::nic {

class LiveHardware {
 public:
  struct Options {
    Assignment processor_of{};
    bool dynamic = false;
    bool prompt = false;
    std::uint32_t max_frame = kStandardFrame;
    Filter* filter = nullptr;
    bool measure_time = true;
    bool trace = true;
    const Clock* clock = nullptr;
    int bell = -1;  // an eventfd that whoever waits for an interrupt sleeps on; -1: they sleep on the line's futex
  };

  LiveHardware(Registers& registers, const HostMemory& memory, Mac& mac, Doze* doze, const Options& options)
      : registers_(registers),
        memory_(memory),
        mac_(mac),
        doze_(doze),
        watch_(options.measure_time || options.trace),
        trace_(options.trace),
        prompt_(options.prompt),
        bell_(options.bell),
        ticks_(options.clock),
        events_(options.processor_of, options.dynamic),
        read_(Direction::read, memory, options.dynamic ? kShareFrom : DmaChannel::kNeverShare),
        transmit_(mac, options.max_frame),
        write_(Direction::write, memory, options.dynamic ? kShareFrom : DmaChannel::kNeverShare),
        receive_(mac, options.filter) {}

  // Before the first round.
  void set_endpoints(EndpointSwitch* endpoints, HandlerPort* handler, SendTotals& counts) {
    endpoints_ = endpoints, handler_ = handler, counts_ = &counts;
    receive_.set_endpoints(endpoints);
    receive_.set_handler(handler);
  }
  // What endpoints and a handler send: on the processor that sends, after its round.
  std::size_t send_for_endpoints(Processor& cpu);
  // The same for one who is the only processor now.
  std::size_t send_now(std::span<const Frame> frames);
  bool mac_is_full() const { return mac_is_full_.load(std::memory_order_relaxed); }  // for them

  void begin_round(Processor& cpu) {
    cpu.position = 0;
    if (watch_) cpu.started_ns = 0;
    if ((++cpu.rounds & kTimersEvery) == 0) fire_timers(cpu);
    if (events_.dynamic()) return;
    events_.collect(cpu);
    Events found = 0;
    if ((cpu.mine & bit(Event::mailbox)) != 0 && mailbox_written()) {
      found |= bit(Event::mailbox);
      if (prompt_ && !cpu.hurried) {
        cpu.raised |= found;
        cpu.hurried = cpu.may_go_back = true;
        return;
      }
    }
    cpu.hurried = cpu.may_go_back = false;
    if ((cpu.mine & bit(Event::dma_read_complete)) != 0 && look_at_read_channel(cpu))
      found |= bit(Event::dma_read_complete);
    if ((cpu.mine & bit(Event::dma_write_complete)) != 0 && write_.has_completions())
      found |= bit(Event::dma_write_complete);
    if ((cpu.mine & bit(Event::receive_complete)) != 0 && receive_.fill()) found |= bit(Event::receive_complete);
    cpu.raised |= found;
  }

  int next_event(Processor& cpu) {
    if (events_.dynamic()) return next_claimed_event(cpu);
    const Events left = cpu.raised >> cpu.position << cpu.position;
    if (left == 0) return -1;
    const auto event = static_cast<unsigned>(std::countr_zero(left));
    cpu.raised &= ~(Events{1} << event);
    cpu.position = event + 1;
    if (watch_ && cpu.started_ns == 0) cpu.started_ns = ticks_.now_ns();
    return static_cast<int>(event);
  }

  void end_event(Processor& cpu, Event event, unsigned items) {
    if (event == Event::send_data_ready) flush(cpu);
    if (event == Event::dma_write_complete) receive_.give_back();
    if (event == Event::send_descriptors_ready && cpu.may_go_back && read_.has_completions()) {
      cpu.may_go_back = false;
      cpu.raised |= bit(Event::dma_read_complete);
      cpu.position = static_cast<unsigned>(Event::dma_read_complete);
    }
    if (watch_) watch(cpu, event, items);
    if (events_.dynamic()) events_.release(group_of(event));
  }

  void raise(Processor& cpu, Event event) {
    if (events_.raise(cpu, event) && doze_ != nullptr) doze_->wake(events_.processor_of(event));
  }

  bool reachable(HostAddress address, std::uint32_t length) const { return memory_.at(address, length) != nullptr; }
  std::uint32_t read_space() const { return read_.space(); }
  void read(Processor&, const DmaDescriptor& descriptor) { read_.enqueue(descriptor); }
  bool next_read_completion(DmaCompletion& completion) { return read_.next_completion(completion); }
  std::uint32_t write_space() const { return write_.space(); }
  void write(Processor&, const DmaDescriptor& descriptor) { write_.enqueue(descriptor); }
  bool next_write_completion(DmaCompletion& completion) { return write_.next_completion(completion); }

  std::byte* transmit_buffer(std::uint32_t length) {
    std::byte* const buffer = transmit_.allocate(length);
    if (buffer == nullptr) starved_ = true;
    return buffer;
  }
  void transmit(Processor&, const std::byte* data, std::uint32_t length) {
    transmit_.enqueue(data, length, read_.enqueued());
  }

  bool peek_frame(Frame& frame) { return receive_.peek(frame); }
  FrameFate frame_fate() const { return receive_.fate(); }
  void take_frame() { receive_.take(); }
  void release_frame() { receive_.release(); }

  std::uint32_t mailbox(Mailbox which) const { return registers_.read_mailbox(which); }
  std::uint64_t command(std::uint32_t slot) const { return registers_.commands[slot].load(std::memory_order_relaxed); }
  void commands_consumed(std::uint32_t index) { registers_.command_consumer.store(index, std::memory_order_release); }
  void publish_send_consumer(std::uint32_t index) {
    registers_.send_consumer.store(index, std::memory_order_release);  // R2 in registers.hpp
  }
  void arm(Processor&, Event event, std::uint64_t delay_ns) {
    std::atomic<std::uint64_t>& timer = timer_of(event);
    if (timer.load(std::memory_order_relaxed) == 0)
      timer.store(ticks_.now_ns() + delay_ns + 1, std::memory_order_relaxed);
  }
  void disarm(Event event) { timer_of(event).store(0, std::memory_order_relaxed); }
  void interrupt(Processor&, unsigned line) {
    if (!registers_.interrupt[line].must_wake()) return;
    if (bell_ < 0)
      registers_.interrupt[line].wake_sleepers();
    else
      wake_eventfd(bell_);
  }

  void charge(Processor&, Event, Work, unsigned) {}
  void touch(Processor&, Memory, unsigned) {}

  // Dynamic partition: copies for others. False: there was nothing to copy.
  bool help() { return read_.help() || write_.help(); }
  std::uint64_t now_ns() const { return ticks_.now_ns(); }
  // When the next timer of any processor is due; UINT64_MAX: none is.
  std::uint64_t next_timer_ns() const;

 private:
  static constexpr std::uint32_t kShareFrom = 512;   // sharing costs two lines; a shorter copy costs less
  static constexpr std::uint32_t kTimersEvery = 15;  // rounds between looks at the clock, a mask

  bool mailbox_written() {
    std::uint32_t changed = 0;
#pragma GCC unroll 4
    for (unsigned i = 0; i < kMailboxes; ++i) {
      const std::uint32_t value = registers_.mailbox[i].load(std::memory_order_relaxed);
      changed |= value ^ seen_[i];
      seen_[i] = value;
    }
    return changed != 0;
  }
  bool look_at_read_channel(Processor& cpu) {
    const bool completed = read_.has_completions();
    if (!transmit_.empty()) flush(cpu);
    return completed;
  }
  void flush(Processor& cpu) {
    if (read_.settled() != read_.enqueued()) (void)read_.has_completions();
    if (transmit_.flush(read_.settled()) != 0 && starved_) {
      starved_ = false;
      raise(cpu, Event::send_data_ready);
    }
  }
  std::atomic<std::uint64_t>& timer_of(Event event) {
    return timers_[event == Event::update_send_consumer ? 0 : 1].due_ns;
  }
  void fire_timers(Processor& cpu);
  int next_claimed_event(Processor& cpu);
  bool found_under_claim(Processor& cpu, Event event);

  void watch(Processor& cpu, Event event, unsigned items) {
    const std::uint64_t now = ticks_.now_ns();
    bump(cpu.statistics->handlers[static_cast<unsigned>(event)].ns, now - cpu.started_ns);
    cpu.started_ns = now;
    if (trace_) nic::trace(*cpu.statistics, now, event, items);
  }

  struct alignas(64) Timer {
    std::atomic<std::uint64_t> due_ns{0};  // 0: not armed
  };

  Registers& registers_;
  const HostMemory& memory_;
  Mac& mac_;
  Doze* const doze_;
  const bool watch_, trace_, prompt_;
  const int bell_;
  const Ticks ticks_;
  EventRegisters events_;
  Timer timers_[2];
  // Group mailbox.
  alignas(64) std::uint32_t seen_[kMailboxes] = {};
  // Group read.
  alignas(64) DmaChannel read_;
  TransmitChannel transmit_;
  bool starved_ = false;  // Send Data Ready waits for room in the transmit buffer
  EndpointSwitch* endpoints_ = nullptr;
  HandlerPort* handler_ = nullptr;
  SendTotals* counts_ = nullptr;
  std::atomic<bool> mac_is_full_{false};
  // Group write.
  alignas(64) DmaChannel write_;
  ReceiveChannel receive_;
};

static_assert(Hardware<LiveHardware>);

}  // namespace viaduct::nic
