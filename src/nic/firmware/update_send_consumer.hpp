// Update Send Consumer: tell the driver how far its send ring is consumed.
//
// On one processor the index goes to host memory by DMA and the interrupt follows its completion. Where the handlers
// are spread over processors, the DMA write channel belongs to others: the index is only stored in a register, which
// the driver reads directly.
#pragma once

#include "nic/firmware/firmware.hpp"

namespace viaduct::nic {

// One interrupt for all packets since the last one.
template <Hardware H>
void interrupt_for_send(Firmware<H>& nic, Processor& cpu) {
  if (nic.send.packets == 0) return;
  bump(nic.statistics.send.interrupts);
  bump(nic.statistics.send.interrupts_avoided, nic.send.packets - 1);
  nic.send.packets = 0;
  nic.hw.interrupt(cpu, 0);
}

template <Hardware H>
unsigned update_send_consumer(Firmware<H>& nic, Processor& cpu) {
  auto& send = nic.send;
  nic.hw.disarm(Event::update_send_consumer);
  if (send.consumer == send.reported) return 0;
  if (nic.settings.direct_send_consumer) {
    nic.hw.publish_send_consumer(send.consumer);
    interrupt_for_send(nic, cpu);
  } else {
    if (nic.hw.write_space() == 0) {
      nic.receive.stalled |= bit(Event::update_send_consumer);
      return 0;
    }
    const HostAddress index = nic.settings.rings + offsetof(HostRings, send_consumer);
    nic.hw.write(cpu, {index, nullptr, sizeof(std::uint32_t), Transfer::send_consumer, 0, send.consumer});
    nic.hw.charge(cpu, Event::update_send_consumer, Work::enqueue_dma, 1);
  }
  send.reported = send.consumer;
  return 1;
}

}  // namespace viaduct::nic
