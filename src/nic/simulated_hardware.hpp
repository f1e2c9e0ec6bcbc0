// SimulatedHardware: the Hardware of the deterministic simulation. Time is a mock clock, every transfer takes a time of
// its own drawn from the seed, queues are short so that they fill, and a round may end after any event. One seed, one
// run.
//
// Bytes move when a transfer completes, not when it is enqueued: a handler that reuses memory too early is found out.
// Rules that a handler must keep are checked: enqueueing without room, releasing more frames than were taken, or
// reaching outside the registered memory stops the program.
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "nic/hardware.hpp"
#include "nic/host_memory.hpp"
#include "nic/partition.hpp"

namespace viaduct::nic {

class SimulatedHardware {
 public:
  struct Options {
    Assignment processor_of{};
    std::uint64_t seed = 1;
    std::uint64_t longest_transfer_ns = 2000;
    std::uint32_t entries = 64;  // of each DMA queue; more than one packet's fragments
    std::uint32_t frames = 16;   // of the transmit queue
  };

  SimulatedHardware(Registers& registers, const HostMemory& memory, Mac& mac, const MockClock& clock,
                    const Options& options)
      : registers_(registers), memory_(memory), mac_(mac), clock_(clock), options_(options), random_(options.seed) {}

  void begin_round(Processor& cpu) {
    cpu.position = 0;
    advance(cpu);
    cpu.raised |= registered_[cpu.id];
    registered_[cpu.id] = 0;
  }
  int next_event(Processor& cpu) {
    const Events left = cpu.raised >> cpu.position << cpu.position;
    if (left == 0 || (cpu.position != 0 && random_.chance(0.25))) return -1;
    cpu.position = static_cast<unsigned>(std::countr_zero(left)) + 1;
    cpu.raised &= ~(Events{1} << (cpu.position - 1));
    return static_cast<int>(cpu.position - 1);
  }
  void end_event(Processor&, Event, unsigned) {}
  void raise(Processor&, Event event) { raise(event); }

  bool reachable(HostAddress address, std::uint32_t length) const { return memory_.at(address, length) != nullptr; }
  std::uint32_t read_space() const { return space(read_); }
  void read(Processor&, const DmaDescriptor& descriptor) { enqueue(read_, descriptor); }
  bool next_read_completion(DmaCompletion& completion) { return next(read_, completion); }
  std::uint32_t write_space() const { return space(write_); }
  void write(Processor&, const DmaDescriptor& descriptor) { enqueue(write_, descriptor); }
  bool next_write_completion(DmaCompletion& completion) { return next(write_, completion); }

  std::byte* transmit_buffer(std::uint32_t length) {
    if (transmit_.size() >= options_.frames) {
      starved_ = true;
      return nullptr;
    }
    transmit_.push_back({std::vector<std::byte>(length), UINT64_MAX});
    return transmit_.back().bytes.data();
  }
  void transmit(Processor&, const std::byte* data, std::uint32_t length) {
    demand(data == transmit_.back().bytes.data() && length == transmit_.back().bytes.size());
    transmit_.back().after = read_.enqueued;
  }

  bool peek_frame(Frame& frame) {
    if (!have_frame_ && mac_.receive({&frame_, 1}) == 1) have_frame_ = true;
    if (have_frame_) frame = frame_;
    return have_frame_;
  }
  FrameFate frame_fate() const { return FrameFate::to_host; }
  void take_frame() {
    demand(have_frame_);
    have_frame_ = false;
    ++taken_;
  }
  void release_frame() {
    demand(taken_ != 0);
    --taken_;
    mac_.release(1);
  }

  std::uint32_t mailbox(Mailbox which) const { return registers_.read_mailbox(which); }
  std::uint64_t command(std::uint32_t slot) const { return registers_.commands[slot].load(std::memory_order_relaxed); }
  void commands_consumed(std::uint32_t index) { registers_.command_consumer.store(index, std::memory_order_release); }
  void publish_send_consumer(std::uint32_t index) { registers_.send_consumer.store(index, std::memory_order_release); }
  void arm(Processor&, Event event, std::uint64_t delay_ns) {
    std::uint64_t& timer = timers_[static_cast<unsigned>(event)];
    if (timer == 0) timer = clock_.now_ns() + delay_ns;
  }
  void disarm(Event event) { timers_[static_cast<unsigned>(event)] = 0; }
  void interrupt(Processor&, unsigned line) { ++interrupts_[line]; }

  void charge(Processor&, Event, Work, unsigned) {}
  void touch(Processor&, Memory, unsigned) {}

  std::uint64_t interrupts(unsigned line) const { return interrupts_[line]; }
  bool quiet() const {  // nothing is under way inside the adapter
    return read_.queue.empty() && read_.completions.empty() && write_.queue.empty() && write_.completions.empty() &&
           transmit_.empty() && taken_ == 0 && !have_frame_;
  }

 private:
  struct Channel {
    struct Entry {
      DmaDescriptor descriptor;
      std::uint64_t due_ns;
    };
    std::deque<Entry> queue;
    std::deque<DmaCompletion> completions;
    std::uint64_t enqueued = 0, settled = 0;
    std::uint64_t last_due_ns = 0;
  };
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::uint64_t after;
  };

  static void demand(bool kept) {
    if (!kept) std::abort();
  }
  std::uint32_t space(const Channel& channel) const {
    return options_.entries - static_cast<std::uint32_t>(channel.queue.size() + channel.completions.size());
  }
  void raise(Event event) { registered_[options_.processor_of[static_cast<unsigned>(event)]] |= bit(event); }

  void enqueue(Channel& channel, const DmaDescriptor& descriptor) {
    demand(space(channel) != 0);
    const std::uint64_t due = clock_.now_ns() + random_.below(options_.longest_transfer_ns + 1);
    channel.last_due_ns = std::max(channel.last_due_ns, due);
    channel.queue.push_back({descriptor, channel.last_due_ns});
    ++channel.enqueued;
  }
  static bool next(Channel& channel, DmaCompletion& completion) {
    if (channel.completions.empty()) return false;
    completion = channel.completions.front();
    channel.completions.pop_front();
    return true;
  }
  void settle(Channel& channel, bool to_host) {
    for (; !channel.queue.empty() && channel.queue.front().due_ns <= clock_.now_ns(); channel.queue.pop_front()) {
      const DmaDescriptor& descriptor = channel.queue.front().descriptor;
      if (descriptor.length != 0) {
        std::byte* const host = memory_.at(descriptor.host, descriptor.length);
        demand(host != nullptr);
        const void* const value = descriptor.local != nullptr ? descriptor.local : &descriptor.argument;
        if (to_host)
          std::memcpy(host, value, descriptor.length);
        else
          std::memcpy(descriptor.local, host, descriptor.length);
      }
      channel.completions.push_back({descriptor.what, descriptor.queue, descriptor.argument});
      ++channel.settled;
    }
  }
  void send_frames() {
    while (!transmit_.empty() && transmit_.front().after <= read_.settled) {
      const Outgoing& frame = transmit_.front();
      const Frame offered{frame.bytes.data(), static_cast<std::uint32_t>(frame.bytes.size())};
      if (mac_.transmit({&offered, 1}) == 0) return;
      transmit_.pop_front();
      if (std::exchange(starved_, false)) raise(Event::send_data_ready);
    }
  }
  // What hardware did until now, for the events that this processor handles.
  void advance(Processor& cpu) {
    settle(read_, false);
    settle(write_, true);
    send_frames();
    if (!read_.completions.empty()) raise(Event::dma_read_complete);
    if (!write_.completions.empty()) raise(Event::dma_write_complete);
    Frame frame;
    if ((cpu.mine & bit(Event::receive_complete)) != 0 && peek_frame(frame)) raise(Event::receive_complete);
    for (unsigned i = 0; i < kMailboxes; ++i) {
      const std::uint32_t value = registers_.mailbox[i].load(std::memory_order_acquire);
      if (value != seen_[i]) raise(Event::mailbox);
      seen_[i] = value;
    }
    for (unsigned i = 0; i < kEvents; ++i)
      if (timers_[i] != 0 && timers_[i] <= clock_.now_ns()) {
        timers_[i] = 0;
        raise(static_cast<Event>(i));
      }
  }

  Registers& registers_;
  const HostMemory& memory_;
  Mac& mac_;
  const MockClock& clock_;
  const Options options_;
  Random random_;
  std::array<Events, kMostProcessors> registered_{};
  Channel read_, write_;
  std::deque<Outgoing> transmit_;
  bool starved_ = false;
  Frame frame_;
  bool have_frame_ = false;
  std::uint64_t taken_ = 0;
  std::array<std::uint32_t, kMailboxes> seen_{};
  std::array<std::uint64_t, kEvents> timers_{};
  std::array<std::uint64_t, kMostQueues> interrupts_{};
};

static_assert(Hardware<SimulatedHardware>);

}  // namespace viaduct::nic
