// Who handles which event.
//
// Handlers that use a DMA channel, and the data that goes with it, form a group; the members of a group never run at
// the same time. In a fixed partition a group lives on one processor; in the dynamic one a processor claims the group
// of an event for as long as its handler runs.
//
//   group    events                                                            also owns
//   mailbox  Mailbox                                                           command ring
//   read     DMA Read Complete, Send Buffer Descriptor Ready,                  send ring, MAC transmit channel
//            Send Data Ready, Receive Buffer Descriptor Ready,
//            Update Send Consumer (written directly)
//   write    DMA Write Complete, Receive Complete,                             receive rings, MAC receive channel
//            Update Receive Return Producer
//
// Between groups there are three shared variables (firmware.hpp), each with one writer, and no locks. On one processor
// Update Send Consumer goes by DMA on the write channel instead, as in the released firmware.
#pragma once

#include <array>

#include "nic/processor.hpp"

namespace viaduct::nic {

enum class Group : std::uint8_t { mailbox, read, write };

constexpr Group group_of(Event event) {
  switch (event) {
    case Event::mailbox:
      return Group::mailbox;
    case Event::dma_write_complete:
    case Event::receive_complete:
    case Event::update_receive_return_producer:
      return Group::write;
    default:
      return Group::read;
  }
}

constexpr Events events_of(Group group) {
  Events events = 0;
  for (unsigned i = 0; i < kEvents; ++i)
    if (group_of(static_cast<Event>(i)) == group) events |= Events{1} << i;
  return events;
}

std::string_view name_of(Partition partition);

}  // namespace viaduct::nic
