// One get or put under way, at either of its ends. Owned by its session.
#pragma once

#include <cstdint>

#include "net/byte_ranges.hpp"

namespace viaduct::net {

struct Transfer {
  enum class Role : std::uint8_t {
    our_get,    // pulls into `local`
    our_put,    // sends from `local`, or waits for the result of a small put
    peers_get,  // sends from registered memory
    peers_put,  // pulls into registered memory
  };
  bool ours() const { return role == Role::our_get || role == Role::our_put; }
  bool pulls() const { return role == Role::our_get || role == Role::peers_put; }

  std::uint32_t id = 0;
  std::uint32_t flow = 0;
  std::uint64_t user = 0;  // the flow's, at the end that owns the memory
  Role role = Role::our_get;
  std::uint64_t cookie = 0;    // ours
  std::byte* local = nullptr;  // ours
  std::uint64_t tag = 0;       // the peer's
  std::uint64_t address = 0;   // the peer's
  std::uint64_t length = 0;

  // The sending end.
  ByteRanges asked_for;  // by the puller, ever
  ByteRanges to_send;
  ByteRanges acknowledged;
  bool queued = false;  // among those that have something to send

  // The pulling end.
  ByteRanges came;
  std::uint64_t asked = 0;  // bytes from the start that were asked for
  bool waits_to_ask = false;
};

}  // namespace viaduct::net
