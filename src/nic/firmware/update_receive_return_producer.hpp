// Update Receive Return Producer: tell the driver how far its receive-return rings are filled.
#pragma once

#include "nic/firmware/firmware.hpp"

namespace viaduct::nic {

template <Hardware H>
unsigned update_receive_return_producer(Firmware<H>& nic, Processor& cpu) {
  auto& receive = nic.receive;
  nic.hw.disarm(Event::update_receive_return_producer);
  unsigned done = 0;
  for (unsigned queue = 0; queue < nic.settings.queues; ++queue) {
    const std::uint32_t producer = receive.producer[queue];
    if (producer == receive.reported[queue]) continue;
    if (nic.hw.write_space() == 0) {
      receive.stalled |= bit(Event::update_receive_return_producer);
      break;
    }
    // The channel keeps order: the frames and descriptors that the index covers are in host memory before it.
    const HostAddress index = nic.settings.rings + offsetof(HostRings, return_producer) + queue * sizeof(IndexLine);
    nic.hw.write(cpu, {index, nullptr, sizeof(std::uint32_t), Transfer::return_producer,
                       static_cast<std::uint8_t>(queue), producer});
    receive.reported[queue] = producer;
    nic.statistics.receive.returned[queue].store(producer, std::memory_order_relaxed);
    ++done;
  }
  nic.hw.charge(cpu, Event::update_receive_return_producer, Work::enqueue_dma, done);
  return done;
}

}  // namespace viaduct::nic
