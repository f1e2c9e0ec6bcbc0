// The dispatch loop: one round gives every raised event its turn, in the order of priority.
#pragma once

#include "nic/firmware/dma_read_complete.hpp"
#include "nic/firmware/dma_write_complete.hpp"
#include "nic/firmware/mailbox.hpp"
#include "nic/firmware/receive_complete.hpp"
#include "nic/firmware/receive_descriptors_ready.hpp"
#include "nic/firmware/send_data_ready.hpp"
#include "nic/firmware/send_descriptors_ready.hpp"
#include "nic/firmware/update_receive_return_producer.hpp"
#include "nic/firmware/update_send_consumer.hpp"

namespace viaduct::nic {

template <Hardware H>
unsigned handle(Firmware<H>& nic, Processor& cpu, Event event) {
  switch (event) {
    case Event::mailbox:
      return mailbox(nic, cpu);
    case Event::dma_read_complete:
      return dma_read_complete(nic, cpu);
    case Event::dma_write_complete:
      return dma_write_complete(nic, cpu);
    case Event::receive_complete:
      return receive_complete(nic, cpu);
    case Event::send_descriptors_ready:
      return send_descriptors_ready(nic, cpu);
    case Event::send_data_ready:
      return send_data_ready(nic, cpu);
    case Event::update_send_consumer:
      return update_send_consumer(nic, cpu);
    case Event::receive_descriptors_ready:
      return receive_descriptors_ready(nic, cpu);
    case Event::update_receive_return_producer:
      return update_receive_return_producer(nic, cpu);
  }
  return 0;
}

// Items done: 0 means that the processor is idle.
template <Hardware H>
unsigned dispatch(Firmware<H>& nic, Processor& cpu) {
  unsigned done = 0;
  nic.hw.begin_round(cpu);
  for (int next; (next = nic.hw.next_event(cpu)) >= 0;) {
    const auto event = static_cast<Event>(next);
    nic.hw.charge(cpu, event, Work::call, 1);
    const unsigned items = handle(nic, cpu, event);
    HandlerStatistics& counted = cpu.statistics->handlers[next];
    bump(counted.calls);
    bump(counted.items, items);
    nic.hw.end_event(cpu, event, items);
    done += items;
  }
  return done;
}

}  // namespace viaduct::nic
