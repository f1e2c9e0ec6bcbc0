// What handlers see of the machine they run on. Handlers are templates over a class of this shape; there are
//
//   LiveHardware       real time: event registers are words, DMA is copying, the MAC is a Mac
//   SimulatedHardware  virtual time and chance: every transfer takes its time, one seed, one run
//
// and a timing model has the same shape. Two DMA channels and two MAC channels each have a queue of descriptors. A
// channel keeps order: its transfers happen, and complete, as they were enqueued. What a handler enqueues must have
// room; it asks first, and where there is none leaves itself in a stalled set of the firmware, which the handler of the
// completions raises again.
//
// Who may call what follows from the partition (partition.hpp): the handlers that use a channel run on one processor,
// or under one claim.
#pragma once

#include <concepts>
#include <cstdint>

#include "nic/processor.hpp"
#include "nic/registers.hpp"
#include "nic/rings.hpp"

namespace viaduct::nic {

// What a transfer was for: tells the handler of its completion what to do.
enum class Transfer : std::uint8_t {
  // DMA read channel
  send_descriptors,     // argument: the send ring's producer index after them
  receive_descriptors,  // queue: BufferRing; argument: its producer index after them
  fragment,             // a packet's, not the last
  packet,               // a packet's last fragment; argument: the send consumer index after it
  bad_packet,           // nothing is moved; argument as above
  // DMA write channel
  frame,          // a received frame; its MAC buffer is free afterwards
  dropped_frame,  // nothing is moved; the same
  return_descriptor,
  return_producer,  // queue; argument: the index
  send_consumer,    // argument: the index
};

// `local` null: the transfer is the 32-bit argument itself, or nothing where length is 0.
struct DmaDescriptor {
  HostAddress host = 0;
  void* local = nullptr;
  std::uint32_t length = 0;
  Transfer what{};
  std::uint8_t queue = 0;
  std::uint32_t argument = 0;
};

struct DmaCompletion {
  Transfer what{};
  std::uint8_t queue = 0;
  std::uint32_t argument = 0;
};

// For a timing model: what a handler has just done, in units whose cost the model knows.
enum class Work : std::uint8_t { call, item, fragment, enqueue_dma, enqueue_mac, raise };
// And which memory it touched. Private data can live in a processor's scratch pad, shared data cannot.
enum class Memory : std::uint8_t { private_data, shared_data, ring, hardware_register };

template <class H>
concept Hardware = requires(H& hw, Processor& cpu, Event event, DmaDescriptor dma, DmaCompletion& done, Frame& frame) {
  // Event registers. A round: begin, then events until there are none, each ended.
  hw.begin_round(cpu);
  { hw.next_event(cpu) } -> std::same_as<int>;  // an Event, or -1
  hw.end_event(cpu, event, unsigned{});         // with the items its handler did
  hw.raise(cpu, event);

  // DMA channels.
  { hw.reachable(HostAddress{}, std::uint32_t{}) } -> std::same_as<bool>;
  { hw.read_space() } -> std::convertible_to<std::uint32_t>;
  hw.read(cpu, dma);
  { hw.next_read_completion(done) } -> std::same_as<bool>;
  { hw.write_space() } -> std::convertible_to<std::uint32_t>;
  hw.write(cpu, dma);
  { hw.next_write_completion(done) } -> std::same_as<bool>;

  // MAC transmit channel: space for a frame, then the frame itself, which goes out once every transfer that was
  // enqueued on the read channel before is complete. Null: no space; Send Data Ready is raised when there is.
  { hw.transmit_buffer(std::uint32_t{}) } -> std::same_as<std::byte*>;
  hw.transmit(cpu, static_cast<const std::byte*>(nullptr), std::uint32_t{});

  // MAC receive channel: the frame at its head, taking it, and giving the oldest taken one back to the MAC.
  { hw.peek_frame(frame) } -> std::same_as<bool>;
  { hw.frame_fate() } -> std::same_as<FrameFate>;  // what filter, handler and endpoints made of it
  hw.take_frame();
  hw.release_frame();

  // Registers, timers, interrupts. A timer raises its event; arming one that is armed changes nothing.
  { hw.mailbox(Mailbox::send_producer) } -> std::same_as<std::uint32_t>;
  { hw.command(std::uint32_t{}) } -> std::same_as<std::uint64_t>;
  hw.commands_consumed(std::uint32_t{});
  hw.publish_send_consumer(std::uint32_t{});
  hw.arm(cpu, event, std::uint64_t{});
  hw.disarm(event);
  hw.interrupt(cpu, unsigned{});

  // Nothing in live builds.
  hw.charge(cpu, event, Work::call, unsigned{});
  hw.touch(cpu, Memory::ring, unsigned{});
};

}  // namespace viaduct::nic
