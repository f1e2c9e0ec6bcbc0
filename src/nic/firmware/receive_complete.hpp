// Receive Complete: frames have arrived at the MAC. Move each into the next posted buffer, then its return descriptor
// into the receive-return ring of its queue.
//
// Frames are hostile: one of impossible length is counted and dropped. Receive descriptors are hostile too: one that
// cannot be used goes back to the driver marked as refused, and the next is tried.
#pragma once

#include "nic/firmware/firmware.hpp"

namespace viaduct::nic {

// The byte that picks the queue, where the frame has it.
template <Hardware H>
unsigned queue_of(const Firmware<H>& nic, const Frame& frame) {
  const auto& steering = nic.settings.steering;
  if (!steering || steering->offset >= frame.length) return 0;
  if (steering->ether_type != 0) {
    const unsigned type = std::to_integer<unsigned>(frame.data[12]) << 8 | std::to_integer<unsigned>(frame.data[13]);
    if (type != steering->ether_type) return 0;
  }
  return nic.steering.queue_of(std::to_integer<unsigned>(frame.data[steering->offset]));
}

template <Hardware H>
std::uint32_t available(const Firmware<H>& nic, unsigned ring) {
  return nic.receive_producer[ring].load(std::memory_order_acquire) - nic.receive.consumer[ring];  // A3
}

template <Hardware H>
void give_to_driver(Firmware<H>& nic, Processor& cpu, const ReceiveDescriptor& buffer, unsigned ring, unsigned queue,
                    std::uint32_t length, std::uint16_t flags) {
  const std::uint32_t index = nic.receive.producer[queue]++;
  ReturnDescriptor& entry = nic.returned[std::size_t{queue} * kReturnRing + index % kReturnRing];
  entry = {buffer.address,
           length,
           buffer.buffer,
           nic.receive.consumer[ring],
           flags,
           static_cast<std::uint8_t>(ring),
           static_cast<std::uint8_t>(queue),
           0};
  nic.hw.write(cpu, {nic.return_ring_at(queue, index), &entry, sizeof entry, Transfer::return_descriptor,
                     static_cast<std::uint8_t>(queue), 0});
}

// Nothing is moved to the host's rings: its turn to be released comes all the same.
template <Hardware H>
void pass_frame(Firmware<H>& nic, Processor& cpu) {
  nic.hw.take_frame();
  nic.hw.write(cpu, {0, nullptr, 0, Transfer::dropped_frame, 0, 0});
}

template <Hardware H>
void drop_frame(Firmware<H>& nic, Processor& cpu, Count& why) {
  bump(why);
  pass_frame(nic, cpu);
}

enum class Placed { yes, dropped, held, no_channel };

// Finds a buffer for the frame and moves it there.
template <Hardware H>
Placed place_frame(Firmware<H>& nic, Processor& cpu, const Frame& frame) {
  auto& counts = nic.statistics.receive;
  unsigned ring = frame.length <= nic.settings.most_mini && available(nic, 1) != 0 ? 1 : 0;
  for (;;) {
    if (nic.hw.write_space() < 2) return Placed::no_channel;
    if (available(nic, ring) == 0) {
      if (ring == 1) {
        ring = 0;
        continue;
      }
      if (nic.settings.hold_when_empty) return Placed::held;
      drop_frame(nic, cpu, counts.no_buffer);
      return Placed::dropped;
    }
    // A copy: a driver that posts more than its ring holds overwrites descriptors while they are looked at.
    const ReceiveDescriptor buffer = nic.ring(ring)[slot_of(ring, nic.receive.consumer[ring])];
    // The processor that fetched the descriptors may be another: have the next ones brought over meanwhile.
    __builtin_prefetch(&nic.ring(ring)[slot_of(ring, nic.receive.consumer[ring] + 16)]);
    if (buffer.length == 0 || !nic.hw.reachable(buffer.address, buffer.length)) {
      ++nic.receive.consumer[ring];
      bump(counts.bad_descriptors);
      give_to_driver(nic, cpu, buffer, ring, 0, 0, ReturnDescriptor::kRefused);
      continue;
    }
    if (buffer.length < frame.length) {
      if (ring == 1) {
        ring = 0;
        continue;
      }
      drop_frame(nic, cpu, counts.short_buffer);
      return Placed::dropped;
    }
    ++nic.receive.consumer[ring];
    nic.hw.take_frame();
    nic.hw.write(cpu, {buffer.address, const_cast<std::byte*>(frame.data), frame.length, Transfer::frame, 0, 0});
    give_to_driver(nic, cpu, buffer, ring, queue_of(nic, frame), frame.length, 0);
    return Placed::yes;
  }
}

// Packets are there: report by count, else by time.
template <Hardware H>
void coalesce_receive(Firmware<H>& nic, Processor& cpu) {
  const Coalescing& coalescing = nic.settings.coalescing;
  for (unsigned queue = 0; queue < nic.settings.queues; ++queue) {
    const std::uint32_t waiting = nic.receive.producer[queue] - nic.receive.reported[queue];
    if (waiting >= coalescing.receive_count)
      nic.hw.raise(cpu, Event::update_receive_return_producer);
    else if (waiting != 0)
      nic.hw.arm(cpu, Event::update_receive_return_producer, coalescing.receive_ns);
  }
}

template <Hardware H>
unsigned receive_complete(Firmware<H>& nic, Processor& cpu) {
  auto& counts = nic.statistics.receive;
  std::uint64_t packets = 0, bytes = 0;
  unsigned done = 0;
  Frame frame;
  while (done < nic.settings.batch && nic.hw.peek_frame(frame)) {
    if (nic.hw.write_space() < 2) {
      nic.receive.stalled |= bit(Event::receive_complete);
      break;
    }
    if (frame.length < kEthernetHeader || frame.length > nic.settings.max_frame) {
      drop_frame(nic, cpu, counts.bad_frames);
    } else if (const FrameFate fate = nic.hw.frame_fate(); fate == FrameFate::dropped) {
      drop_frame(nic, cpu, counts.filtered);
    } else if (fate == FrameFate::taken) {
      pass_frame(nic, cpu);
      ++packets, bytes += frame.length;
    } else {
      const Placed placed = place_frame(nic, cpu, frame);
      if (placed == Placed::held) break;
      if (placed == Placed::no_channel) {
        nic.receive.stalled |= bit(Event::receive_complete);
        break;
      }
      if (placed == Placed::yes) ++packets, bytes += frame.length;
    }
    ++done;
  }
  nic.hw.charge(cpu, Event::receive_complete, Work::item, done);
  bump(counts.packets, packets);
  bump(counts.bytes, bytes);
  for (unsigned ring = 0; ring < kBufferRings; ++ring)
    counts.available[ring].store(available(nic, ring), std::memory_order_relaxed);
  coalesce_receive(nic, cpu);
  return done;
}

}  // namespace viaduct::nic
