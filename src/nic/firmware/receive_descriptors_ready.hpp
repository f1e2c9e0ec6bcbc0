// Receive Buffer Descriptor Ready: the driver posted receive buffers; fetch their descriptors.
//
// The adapter's own rings are as long as the driver's, which never posts more than its ring holds, so what is fetched
// cannot overwrite what Receive Complete has not used: no consumer index is shared. A driver that lies spoils its own
// buffers; each descriptor is checked when it is used.
#pragma once

#include <algorithm>

#include "nic/firmware/firmware.hpp"

namespace viaduct::nic {

template <Hardware H>
unsigned receive_descriptors_ready(Firmware<H>& nic, Processor& cpu) {
  unsigned done = 0;
  for (unsigned ring = 0; ring < kBufferRings; ++ring) {
    std::uint32_t& fetched = nic.receive_fetched[ring];
    const std::uint32_t produced = nic.driver_receive_producer[ring].load(std::memory_order_acquire);  // A2
    nic.hw.touch(cpu, Memory::shared_data, 1);
    while (fetched != produced) {
      if (nic.hw.read_space() == 0) {
        nic.send.stalled |= bit(Event::receive_descriptors_ready);
        return done;
      }
      const std::uint32_t size = size_of(ring), slot = slot_of(ring, fetched);
      const std::uint32_t run = std::min(produced - fetched, size - slot);
      fetched += run;
      nic.hw.read(
          cpu, {nic.receive_ring_at(ring, slot), nic.ring(ring) + slot, run * std::uint32_t{sizeof(ReceiveDescriptor)},
                Transfer::receive_descriptors, static_cast<std::uint8_t>(ring), fetched});
      nic.hw.charge(cpu, Event::receive_descriptors_ready, Work::enqueue_dma, 1);
      done += run;
    }
  }
  nic.hw.charge(cpu, Event::receive_descriptors_ready, Work::item, done);
  return done;
}

}  // namespace viaduct::nic
