// DMA Read Complete: descriptors or packet data have arrived from the host.
#pragma once

#include "nic/firmware/firmware.hpp"

namespace viaduct::nic {

// Packets are done: report by count, else by time.
template <Hardware H>
void coalesce_send(Firmware<H>& nic, Processor& cpu) {
  const Coalescing& coalescing = nic.settings.coalescing;
  if (nic.send.consumer == nic.send.reported) return;
  if (nic.send.packets >= coalescing.send_count)
    nic.hw.raise(cpu, Event::update_send_consumer);
  else
    nic.hw.arm(cpu, Event::update_send_consumer, coalescing.send_ns);
}

template <Hardware H>
unsigned dma_read_complete(Firmware<H>& nic, Processor& cpu) {
  auto& send = nic.send;
  unsigned done = 0;
  DmaCompletion completion;
  for (; done < nic.settings.batch && nic.hw.next_read_completion(completion); ++done) {
    switch (completion.what) {
      case Transfer::send_descriptors:
        send.producer = completion.argument;
        nic.hw.raise(cpu, Event::send_data_ready);
        break;
      case Transfer::receive_descriptors:
        nic.receive_producer[completion.queue].store(completion.argument, std::memory_order_release);  // R3
        nic.hw.touch(cpu, Memory::shared_data, 1);
        break;
      case Transfer::packet:
      case Transfer::bad_packet:
        send.consumer = completion.argument;
        ++send.packets;
        break;
      default:
        break;  // a fragment: its packet's last one counts
    }
  }
  nic.hw.charge(cpu, Event::dma_read_complete, Work::item, done);
  coalesce_send(nic, cpu);
  if (done == nic.settings.batch) nic.hw.raise(cpu, Event::dma_read_complete);
  if (send.stalled != 0 && done != 0) {
    for (const Event event : {Event::send_descriptors_ready, Event::send_data_ready, Event::receive_descriptors_ready})
      if ((send.stalled & bit(event)) != 0) nic.hw.raise(cpu, event);
    send.stalled = 0;
  }
  if (send.held_back) nic.hw.raise(cpu, Event::send_descriptors_ready);
  return done;
}

}  // namespace viaduct::nic
