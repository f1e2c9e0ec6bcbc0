// Send Buffer Descriptor Ready: the driver produced send descriptors; fetch them into the adapter's own ring.
#pragma once

#include <algorithm>

#include "nic/firmware/firmware.hpp"

namespace viaduct::nic {

template <Hardware H>
unsigned send_descriptors_ready(Firmware<H>& nic, Processor& cpu) {
  auto& send = nic.send;
  const std::uint32_t produced = nic.driver_send_producer.load(std::memory_order_acquire);  // A1
  nic.hw.touch(cpu, Memory::shared_data, 1);
  // Whatever the driver claims, descriptors that are not consumed yet are not overwritten.
  const std::uint32_t room = kSendRing - (send.fetched - send.consumer);
  std::uint32_t left = std::min(produced - send.fetched, room);
  send.held_back = left != produced - send.fetched;
  unsigned done = 0;
  while (left != 0) {
    if (nic.hw.read_space() == 0) {
      send.stalled |= bit(Event::send_descriptors_ready);
      break;
    }
    const std::uint32_t slot = send.fetched % kSendRing;
    const std::uint32_t run = std::min(left, kSendRing - slot);
    send.fetched += run;
    nic.hw.read(cpu, {nic.send_ring_at(slot), &nic.send_ring[slot], run * std::uint32_t{sizeof(SendDescriptor)},
                      Transfer::send_descriptors, 0, send.fetched});
    nic.hw.charge(cpu, Event::send_descriptors_ready, Work::enqueue_dma, 1);
    left -= run;
    done += run;
  }
  nic.hw.charge(cpu, Event::send_descriptors_ready, Work::item, done);
  nic.statistics.send.waiting.store(produced - send.consumer, std::memory_order_relaxed);
  return done;
}

}  // namespace viaduct::nic
