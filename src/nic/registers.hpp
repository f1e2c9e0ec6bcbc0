// The adapter's registers, as the driver sees them: mailboxes it writes, the command ring, the send consumer index it
// may read directly, and the interrupt lines.
//
// Ordering edges:
//   R1  driver's release store of a mailbox publishes the descriptors behind it; pairs with A1 in mailbox().
//   R2  firmware's release store of the send consumer says "done reading"; pairs with A2 in the driver.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/wait_word.hpp"
#include "nic/rings.hpp"

namespace viaduct::nic {

enum class Mailbox : std::uint8_t { send_producer, receive_producer, mini_producer, command_producer };
constexpr unsigned kMailboxes = 4;

struct Registers {
  alignas(64) std::atomic<std::uint32_t> mailbox[kMailboxes]{};  // written by the driver
  std::atomic<std::uint64_t> commands[kCommandRing]{};           // by the driver: code in bits 32..39, argument below
  alignas(64) std::atomic<std::uint32_t> send_consumer{0};       // by the firmware, where the driver reads it directly
  alignas(64) std::atomic<std::uint32_t> command_consumer{0};    // by the firmware
  WaitWord interrupt[kMostQueues];                               // the line of each queue; the send side is on line 0
  WaitWord doorbell;                                             // on which an idle processor sleeps

  std::uint32_t read_mailbox(Mailbox which) const {
    return mailbox[static_cast<unsigned>(which)].load(std::memory_order_acquire);  // A1
  }
  void write_mailbox(Mailbox which, std::uint32_t value) {
    mailbox[static_cast<unsigned>(which)].store(value, std::memory_order_release);  // R1
  }
};

}  // namespace viaduct::nic
