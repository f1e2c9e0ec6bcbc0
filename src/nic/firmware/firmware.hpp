// The firmware's state, and its nine handlers.
//
// A handler is called with its event's processor, does what there is to do up to a batch, runs to completion, and says
// how many items it did. What is left over it raises again.
//
//              driver                                           MAC
//                | mailbox                                       | frame
//            [Mailbox] --------------------+                 [Receive Complete] --DMA write: frame, return descriptor
//                |                         |                     |
//   [Send Buffer Descriptor Ready]  [Receive Buffer              |  count or time
//                |                   Descriptor Ready]           v
//                | DMA read                | DMA read    [Update Receive Return Producer] --DMA write: index
//                v                         v
//            [DMA Read Complete] <---------+             [DMA Write Complete] --> interrupt; MAC buffer free
//                |           |
//                v           | count or time
//     [Send Data Ready]      +--> [Update Send Consumer] --> index to the driver, interrupt
//                | DMA read: fragments; MAC transmit
//
// State is grouped by who writes it (partition.hpp). Exactly three variables cross groups; each has one writer, and
// reading an old value only means doing the rest later:
//   R1  Mailbox stores driver_send_producer; pairs with A1 in Send Buffer Descriptor Ready.
//   R2  Mailbox stores driver_receive_producer; pairs with A2 in Receive Buffer Descriptor Ready.
//   R3  DMA Read Complete stores receive_producer, publishing descriptors; pairs with A3 in Receive Complete.
// (The receive side has two rings, standard and mini, so two of these are pairs. A setting, the steering table, crosses
// too: Mailbox stores it on a command and nothing is ordered by it.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "nic/firmware/steering_table.hpp"
#include "nic/hardware.hpp"
#include "nic/partition.hpp"

namespace viaduct::nic {

// Fixed for an adapter's life, the same for all processors.
struct FirmwareSettings {
  HostAddress rings = 0;  // where HostRings is
  unsigned queues = 1;
  Coalescing coalescing;
  std::optional<Steering> steering;
  std::uint32_t max_frame = kStandardFrame;
  std::uint32_t most_mini = 0;        // frames up to this length go to the mini ring; 0: none do
  bool direct_send_consumer = false;  // the driver reads the index from a register instead of host memory
  bool hold_when_empty = false;
  unsigned batch = 64;  // items per call of a handler
};

template <Hardware H>
struct Firmware {
  Firmware(H& hardware, const FirmwareSettings& fixed, StatisticsBlock& block)
      : hw(hardware),
        settings(fixed),
        statistics(block),
        steering(fixed.queues),
        returned(new ReturnDescriptor[std::size_t{fixed.queues} * kReturnRing]()) {}

  H& hw;
  const FirmwareSettings settings;
  StatisticsBlock& statistics;

  // The shared variables.
  alignas(64) std::atomic<std::uint32_t> driver_send_producer{0};           // written by Mailbox
  std::atomic<std::uint32_t> driver_receive_producer[kBufferRings]{};       // written by Mailbox
  alignas(64) std::atomic<std::uint32_t> receive_producer[kBufferRings]{};  // written by DMA Read Complete
  SteeringTable steering;  // written by Mailbox on a command, read by Receive Complete

  // Group mailbox.
  struct alignas(64) {
    std::uint32_t command_consumer = 0;
  } mailbox;

  // Group read.
  struct alignas(64) {
    std::uint32_t fetched = 0;   // descriptors whose transfer has been enqueued
    std::uint32_t producer = 0;  // descriptors that have arrived
    std::uint32_t cursor = 0;    // those of packets whose data has been enqueued
    std::uint32_t consumer = 0;  // those of packets that have arrived in the transmit buffer
    std::uint32_t reported = 0;  // consumer, as the driver knows it
    std::uint32_t packets = 0;   // done since the last report
    bool held_back = false;      // the driver produced more than there was room for
    bool skipping = false;       // in the middle of a packet with too many fragments
    Events stalled = 0;          // wait for room on the read channel
  } send;
  std::uint32_t receive_fetched[kBufferRings] = {};
  SendDescriptor send_ring[kSendRing] = {};  // the adapter's own copy

  // Group write.
  struct alignas(64) {
    std::uint32_t consumer[kBufferRings] = {};
    std::uint32_t producer[kMostQueues] = {};     // of each return ring
    std::uint32_t reported[kMostQueues] = {};     // as enqueued for the driver
    std::uint32_t interrupted[kMostQueues] = {};  // as covered by an interrupt
    Events stalled = 0;                           // wait for room on the write channel
  } receive;
  std::unique_ptr<ReturnDescriptor[]> returned;  // the adapter's own copy, queue after queue

  // The adapter's own copies, written by transfers of the read group's channel, read by Receive Complete.
  alignas(64) ReceiveDescriptor receive_ring[kReceiveRing] = {};
  ReceiveDescriptor mini_ring[kMiniRing] = {};

  ReceiveDescriptor* ring(unsigned which) { return which == 0 ? receive_ring : mini_ring; }
  HostAddress send_ring_at(std::uint32_t index) const {
    return settings.rings + offsetof(HostRings, send) + index % kSendRing * sizeof(SendDescriptor);
  }
  HostAddress receive_ring_at(unsigned which, std::uint32_t index) const {
    return settings.rings + (which == 0 ? offsetof(HostRings, receive) : offsetof(HostRings, mini)) +
           slot_of(which, index) * sizeof(ReceiveDescriptor);
  }
  HostAddress return_ring_at(unsigned queue, std::uint32_t index) const {
    return settings.rings + offsetof(HostRings, returned) +
           (std::size_t{queue} * kReturnRing + index % kReturnRing) * sizeof(ReturnDescriptor);
  }
};

}  // namespace viaduct::nic
