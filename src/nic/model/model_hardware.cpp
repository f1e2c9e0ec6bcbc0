#include "nic/model/model_hardware.hpp"

namespace viaduct::nic::model {

namespace {

// What the hardware's interface takes, counted in the object code of the released firmware (12.4.11, as the drivers of
// BSD systems carry it); of descriptors in rings, the words that matter.
constexpr Accesses kStartDma{8 + 3, 4};  // the descriptor, and the firmware's own note of it; indices of the queue
constexpr Accesses kCompleteDma{3, 2};   // the note and what the descriptor was for; index of the queue
constexpr Accesses kTransmit{2, 3};      // the MAC's descriptor; indices of the queue
constexpr Accesses kTakeFrame{2, 5};     // the same for a frame received
constexpr Accesses kEventBit{0, 5};      // set or cleared: semaphore taken, event register read, written, released
constexpr Accesses kReadDescriptor{4, 0}, kWriteReturnDescriptor{8, 0};  // of a ring
Accesses to_start(Transfer what) {
  switch (what) {
    case Transfer::packet:
    case Transfer::fragment:
    case Transfer::frame:
      return kStartDma + kReadDescriptor;
    case Transfer::return_descriptor:
      return kStartDma + kWriteReturnDescriptor;
    default:
      return kStartDma;
  }
}

// The instruction cache is one line of 64 bytes; the SRAM is 8 bytes wide.
constexpr double kInstructionsPerLine = 16, kWordsPerLine = 8;

// Of a handler that may run for several packets at once, the share that touches what they have in common.
double exclusive_share(Event event) {
  return event == Event::send_data_ready || event == Event::receive_complete ? 0.2 : 1;
}

constexpr Events kHardwareEvents =
    bit(Event::dma_read_complete) | bit(Event::dma_write_complete) | bit(Event::receive_complete);

// Firmware sets and clears the bits of its own events; those of the hardware's, the hardware.
Accesses of_event_bit(Event event) {
  return (bit(event) & (kHardwareEvents | bit(Event::mailbox))) != 0 ? Accesses{} : kEventBit;
}

}  // namespace

ModelHardware::ModelHardware(const Card& card, const Variant& variant, const HostMemory& memory, Registers& registers,
                             Calendar& calendar)
    : card_(card),
      variant_(variant),
      memory_(memory),
      registers_(registers),
      calendar_(calendar),
      sram(card.sram_bytes_per_s, card.sram_per_transfer),
      bus(card, memory, calendar, sram),
      transmits(card, calendar, sram),
      receive(sram) {}

unsigned ModelHardware::owner_of(Event event) const {
  return variant_.split == Split::parallel ? parallel_assignment()[static_cast<unsigned>(event)] : 0;
}

bool ModelHardware::is_raised(const Processor& cpu, Event event) const {
  if (!dynamic() && owner_of(event) != cpu.id) return false;
  if (dynamic() && claimed_until(group_of(event)) > calendar_.now()) return false;
  switch (event) {
    case Event::dma_read_complete:
      return bus.has_completion(kRead);
    case Event::dma_write_complete:
      return bus.has_completion(kWrite);
    case Event::receive_complete:
      return receive.waiting() && bus.space(kWrite) >= 2;
    default:
      return (raised_ & bit(event)) != 0;
  }
}

// Where anybody may take any event, the round is everybody's: with a round of its own, a processor that found
// everything claimed would begin at the highest priority again and again, and the lowest would starve.
int ModelHardware::next_event(Processor& cpu) {
  if (dynamic()) {
    for (unsigned i = 0; i < kEvents; ++i) {
      const unsigned next = (common_position_ + i) % kEvents;
      if (!is_raised(cpu, static_cast<Event>(next))) continue;
      const auto event = static_cast<Event>(next);
      common_position_ = event == Event::dma_read_complete || event == Event::dma_write_complete ? next : next + 1;
      raised_ &= ~(Events{1} << next);
      return static_cast<int>(next);
    }
    return -1;
  }
  for (unsigned next = cpu.position; next < kEvents; ++next) {
    if (!is_raised(cpu, static_cast<Event>(next))) continue;
    // Completions are drained before the round goes on: in one round, more transfers can be enqueued than one call of
    // their handler takes.
    const auto event = static_cast<Event>(next);
    cpu.position = event == Event::dma_read_complete || event == Event::dma_write_complete ? next : next + 1;
    raised_ &= ~bit(event);
    return static_cast<int>(next);
  }
  return -1;
}

void ModelHardware::start_event(Processor& cpu, Event event) {
  ProcessorState& state = state_[cpu.id];
  state.time = state.started = calendar_.now();
  running_ = &cpu;
  event_ = event;
  if (dynamic()) spend(cpu, event, card_.claim);
  spend(cpu, event, card_.handler[static_cast<unsigned>(event)].call, of_event_bit(event));
}

void ModelHardware::end_event(Processor& cpu, Event event, unsigned) {
  ProcessorState& state = state_[cpu.id];
  const Time duration = state.time - state.started;
  state.busy += duration;
  handler_time_[static_cast<unsigned>(event)] += duration;
  ++handler_calls_[static_cast<unsigned>(event)];
  if (dynamic()) {
    const double share = variant_.split == Split::packet_parallel ? exclusive_share(event) : 1;
    claimed_[static_cast<unsigned>(group_of(event))] =
        state.started + static_cast<Time>(share * static_cast<double>(duration));
  }
  running_ = nullptr;
}

void ModelHardware::set_raised(Event event) {
  raised_ |= bit(event) & ~kHardwareEvents;
}

void ModelHardware::raise(Processor& cpu, Event event) {
  spend(cpu, event_, 0, of_event_bit(event));
  if (!dynamic() && owner_of(event) == cpu.id)
    set_raised(event);
  else
    calendar_.enter(time_of(cpu), What::raised, static_cast<std::uint32_t>(event));
}

void ModelHardware::read(Processor& cpu, const DmaDescriptor& descriptor) {
  spend(cpu, event_, 0, to_start(descriptor.what));
  bus.enqueue(kRead, time_of(cpu), descriptor);
}

void ModelHardware::write(Processor& cpu, const DmaDescriptor& descriptor) {
  spend(cpu, event_, 0, to_start(descriptor.what));
  bus.enqueue(kWrite, time_of(cpu), descriptor);
}

bool ModelHardware::next_completion(unsigned channel, Event event, DmaCompletion& completion) {
  if (!bus.take_completion(channel, completion)) return false;
  spend(*running_, event, card_.handler[static_cast<unsigned>(event)].item, kCompleteDma);
  return true;
}

std::byte* ModelHardware::transmit_buffer(std::uint32_t) {
  std::byte* const buffer = transmits.buffer();
  if (buffer == nullptr)
    wants_transmit_space_ = true;
  else
    spend(*running_, Event::send_data_ready, card_.handler[static_cast<unsigned>(Event::send_data_ready)].item);
  return buffer;
}

void ModelHardware::transmit_may_have_space() {
  if (!wants_transmit_space_) return;
  wants_transmit_space_ = false;
  calendar_.enter(calendar_.now(), What::raised, static_cast<std::uint32_t>(Event::send_data_ready));
}

void ModelHardware::transmit(Processor& cpu, const std::byte*, std::uint32_t length) {
  spend(cpu, event_, 0, kTransmit);
  transmits.enqueue(time_of(cpu), length, bus.enqueued(kRead));
}

bool ModelHardware::peek_frame(Frame& frame) {
  if (!receive.waiting()) return false;
  frame = receive.head();
  return true;
}

void ModelHardware::take_frame() {
  receive.take();
  spend(*running_, Event::receive_complete, card_.handler[static_cast<unsigned>(Event::receive_complete)].item,
        kTakeFrame);
}

void ModelHardware::arm(Processor& cpu, Event event, std::uint64_t ns) {
  Timer& timer = timer_[static_cast<unsigned>(event)];
  if (timer.armed) return;
  timer.armed = true;
  calendar_.enter(time_of(cpu) + ns * 1000, What::timer, static_cast<std::uint32_t>(event), ++timer.arming);
}

void ModelHardware::disarm(Event event) {
  timer_[static_cast<unsigned>(event)].armed = false;
}

bool ModelHardware::timer_rings(Event event, std::uint64_t arming) {
  Timer& timer = timer_[static_cast<unsigned>(event)];
  if (!timer.armed || timer.arming != arming) return false;
  timer.armed = false;
  return true;
}

void ModelHardware::charge(Processor& cpu, Event event, Work work, unsigned count) {
  if (work == Work::fragment && count > 1) spend(cpu, event, card_.fragment * (count - 1));
  if (work == Work::item && (event == Event::send_descriptors_ready || event == Event::receive_descriptors_ready))
    spend(cpu, event, card_.handler[static_cast<unsigned>(event)].item * count);
}

// All handlers are 21 KB, the pad 16 KB: something of 5 KB stays out. In the object code Receive Complete is by far the
// longest, and without it the rest fits; that sending reaches the Ethernet limit and receiving never does says the
// same.
bool ModelHardware::code_in_sram(Event event) const {
  if (variant_.code == Code::pads) return false;
  return variant_.code == Code::sram || event == Event::receive_complete;
}

void ModelHardware::spend(Processor& cpu, Event event, double cycles, Accesses accesses) {
  ProcessorState& state = state_[cpu.id];
  if (!variant_.data_in_pads) accesses.words += cycles * card_.data_in_sram;
  const double lines = code_in_sram(event) ? cycles / kInstructionsPerLine : 0;
  const double waits = accesses.words + accesses.registers + lines;
  const double sram_time = sram.processor_time(state.time, cpu.id, accesses.words + lines * kWordsPerLine);
  state.time += static_cast<Time>((cycles + waits * card_.sram_latency) * cycle() + sram_time + 0.5);
}

}  // namespace viaduct::nic::model
