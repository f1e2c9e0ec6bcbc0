// Mailbox: the driver wrote a producer index or a command.
#pragma once

#include "nic/firmware/firmware.hpp"

namespace viaduct::nic {

// Takes an index over, if it is not further than the ring is long; a bad one changes nothing.
template <Hardware H>
bool take_index(Firmware<H>& nic, Mailbox which, std::atomic<std::uint32_t>& known, std::uint32_t ring) {
  const std::uint32_t written = nic.hw.mailbox(which);
  const std::uint32_t ahead = written - known.load(std::memory_order_relaxed);
  if (ahead == 0) return false;
  if (ahead > ring) {
    bump(nic.statistics.mailbox.bad_indices);
    return false;
  }
  known.store(written, std::memory_order_release);  // R1, R2
  return true;
}

template <Hardware H>
unsigned run_commands(Firmware<H>& nic, Processor& cpu) {
  std::uint32_t& consumer = nic.mailbox.command_consumer;
  const std::uint32_t producer = nic.hw.mailbox(Mailbox::command_producer);
  if (producer == consumer) return 0;
  if (producer - consumer > kCommandRing) {
    bump(nic.statistics.mailbox.bad_indices);
    return 0;
  }
  unsigned done = 0;
  for (; consumer != producer; ++consumer, ++done) {
    const std::uint64_t word = nic.hw.command(consumer % kCommandRing);
    const auto argument = static_cast<std::uint32_t>(word);
    switch (static_cast<Command>(word >> 32 & 0xff)) {
      case Command::set_queues:
        if (argument >= 1 && argument <= nic.settings.queues)
          nic.steering.spread(argument);
        else
          bump(nic.statistics.mailbox.bad_commands);
        break;
      case Command::steer:
        if (argument >> 16 == 0 && argument >> 8 < nic.settings.queues)
          nic.steering.set(argument & 0xff, argument >> 8);
        else
          bump(nic.statistics.mailbox.bad_commands);
        break;
      case Command::flush:
        nic.hw.raise(cpu, Event::update_send_consumer);
        nic.hw.raise(cpu, Event::update_receive_return_producer);
        break;
      default:
        bump(nic.statistics.mailbox.bad_commands);
    }
  }
  nic.hw.commands_consumed(consumer);
  return done;
}

template <Hardware H>
unsigned mailbox(Firmware<H>& nic, Processor& cpu) {
  nic.hw.touch(cpu, Memory::hardware_register, kMailboxes);
  unsigned done = 0;
  if (take_index(nic, Mailbox::send_producer, nic.driver_send_producer, kSendRing)) {
    nic.hw.touch(cpu, Memory::shared_data, 1);
    nic.hw.raise(cpu, Event::send_descriptors_ready);
    ++done;
  }
  bool posted = take_index(nic, Mailbox::receive_producer, nic.driver_receive_producer[0], kReceiveRing);
  posted |= take_index(nic, Mailbox::mini_producer, nic.driver_receive_producer[1], kMiniRing);
  if (posted) {
    nic.hw.touch(cpu, Memory::shared_data, 1);
    nic.hw.raise(cpu, Event::receive_descriptors_ready);
    ++done;
  }
  return done + run_commands(nic, cpu);
}

}  // namespace viaduct::nic
