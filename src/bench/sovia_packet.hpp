// What travels in the 32 bits of immediate data with every packet of SOVIA.
//
//   bits 0..2    kind
//   bits 3..13   acks     messages of the other direction that are acknowledged by the way
//   bits 14..31  amount   three-way only: bytes that want to come (REQ), or may come (ACK); else 0
#pragma once

#include <cstdint>

namespace viaduct::bench {

struct SoviaPacket {
  // The paper's WAKEUP calls off the thread that closes connections in the background; here close() does that itself.
  enum class Kind : std::uint32_t { data, ack, fin, finack, request };
  static constexpr std::uint32_t kMostAcks = (1u << 11) - 1;
  static constexpr std::uint32_t kMostAmount = (1u << 18) - 1;

  Kind kind = Kind::data;
  std::uint32_t acks = 0;
  std::uint32_t amount = 0;

  std::uint32_t word() const { return static_cast<std::uint32_t>(kind) | acks << 3 | amount << 14; }
  static SoviaPacket from(std::uint32_t word) {
    return {static_cast<Kind>(word & 7), word >> 3 & kMostAcks, word >> 14};
  }
};

}  // namespace viaduct::bench
