// DMA Write Complete: frames, return descriptors or indices have arrived in host memory. An index is followed by its
// interrupt; a frame's buffer in the MAC is free.
#pragma once

#include "nic/firmware/update_send_consumer.hpp"

namespace viaduct::nic {

template <Hardware H>
void interrupt_for_receive(Firmware<H>& nic, Processor& cpu, unsigned queue, std::uint32_t producer) {
  const std::uint32_t covered = producer - nic.receive.interrupted[queue];
  nic.receive.interrupted[queue] = producer;
  bump(nic.statistics.receive.interrupts);
  bump(nic.statistics.receive.interrupts_avoided, covered - 1);
  nic.hw.interrupt(cpu, queue);
}

template <Hardware H>
unsigned dma_write_complete(Firmware<H>& nic, Processor& cpu) {
  unsigned done = 0;
  DmaCompletion completion;
  for (; done < 2 * nic.settings.batch && nic.hw.next_write_completion(completion); ++done) {  // two per packet
    switch (completion.what) {
      case Transfer::frame:
      case Transfer::dropped_frame:
        nic.hw.release_frame();
        break;
      case Transfer::return_producer:
        interrupt_for_receive(nic, cpu, completion.queue, completion.argument);
        break;
      case Transfer::send_consumer:
        interrupt_for_send(nic, cpu);
        break;
      default:
        break;  // a return descriptor: its index tells the driver
    }
  }
  nic.hw.charge(cpu, Event::dma_write_complete, Work::item, done);
  if (done == 2 * nic.settings.batch) nic.hw.raise(cpu, Event::dma_write_complete);
  if (nic.receive.stalled != 0 && done != 0) {
    for (const Event event :
         {Event::receive_complete, Event::update_send_consumer, Event::update_receive_return_producer})
      if ((nic.receive.stalled & bit(event)) != 0) nic.hw.raise(cpu, event);
    nic.receive.stalled = 0;
  }
  return done;
}

}  // namespace viaduct::nic
