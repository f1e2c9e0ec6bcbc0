// A host that costs next to nothing, for measuring the firmware alone: it writes all descriptors once, and from then on
// only moves indices. Sends the same frame for ever; gives every buffer back the moment it is returned.
#pragma once

#include "nic/driver.hpp"

namespace viaduct::nic {

class NullHost {
 public:
  // `rings` is as the driver left it: every receive descriptor posted. There is no mini ring.
  NullHost(const NullTraffic& traffic, Registers& registers, HostRings& rings, HostAddress frame, bool direct)
      : sends_(traffic.send_length != 0), registers_(registers), rings_(rings), direct_(direct) {
    for (SendDescriptor& descriptor : rings.send) descriptor = {frame, traffic.send_length, SendDescriptor::kEnd, 0};
  }

  // On the processor that handles mailboxes, each turn.
  void turn() {
    if (sends_) {
      const std::uint32_t consumer = direct_
                                         ? registers_.send_consumer.load(std::memory_order_acquire)
                                         : std::atomic_ref(rings_.send_consumer.value).load(std::memory_order_acquire);
      move(Mailbox::send_producer, sent_, consumer + kSendRing, kSendRing / 4);
    }
    const std::uint32_t returned = std::atomic_ref(rings_.return_producer[0].value).load(std::memory_order_acquire);
    move(Mailbox::receive_producer, posted_, returned + kReceiveRing, kReceiveRing / 4);
  }

 private:
  // A driver, too, tells the adapter of many at a time.
  void move(Mailbox mailbox, std::uint32_t& from, std::uint32_t to, std::uint32_t least) {
    if (to - from < least) return;
    from = to;
    registers_.write_mailbox(mailbox, to);
  }

  const bool sends_;
  Registers& registers_;
  HostRings& rings_;
  const bool direct_;
  std::uint32_t sent_ = 0;
  std::uint32_t posted_ = kReceiveRing;
};

}  // namespace viaduct::nic
