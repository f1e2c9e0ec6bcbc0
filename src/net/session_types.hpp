// What a session is told and what it tells, beside the types of the door: options, events, counters.
#pragma once

#include <viaduct/net.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/seal.hpp"
#include "net/session_counters.hpp"
#include "net/wire.hpp"

namespace viaduct::net {

// Why a session is over.
enum class Over : std::uint8_t {
  no,
  finished_here,
  finished_there,  // the peer said so
  timed_out,       // the peer was silent for too long
  broken,          // the peer said something impossible
  forgotten,       // the peer knows nothing of the session: it was started again
};

struct Event {
  enum class Kind : std::uint8_t {
    asked,        // the peer opens a flow: accept() or refuse(); `bytes` is its request
    accepted,     // `bytes` is the answer
    refused,      // `reason`, `bytes`
    readable,     // peek() has something again
    writable,     // try_send() will be taken again
    delivered,    // as far as tell_when_delivered() was asked for
    ended,        // the peer sends nothing more on this flow, and everything was consumed
    closed,       // `reason`; what has come can still be read, then close()
    transferred,  // get() or put() with `cookie` is done, with `status`
    over,         // the session: see over(). The last event
  };
  Kind kind;
  std::uint32_t flow = 0;
  Reason reason = Reason::done;
  TransferStatus status = TransferStatus::done;
  std::uint64_t cookie = 0;
  std::vector<std::byte> bytes;
};

struct SessionOptions {
  bool connecting = true;                       // the side that said hello
  std::uint64_t peers_number = 0;               // the session number that the peer chose: it stands in each frame
  std::size_t frame_size = 1472;                // the largest frame that the path carries
  std::uint32_t most_flows = 4096;              // open or asked for by the peer, at a time
  std::uint32_t window = 256;                   // frames under way, at most
  std::uint64_t pull_bytes = 512 << 10;         // asked for and not yet there, at most
  std::uint64_t silence_ns = 30'000'000'000;    // after which a peer that owes an answer is dead
  std::uint64_t keepalive_ns = 10'000'000'000;  // of silence, after which a peer is asked whether it lives
  std::shared_ptr<Seal> seal{};                 // where the hosts have a key; of this session alone
  SessionCounters* counters = nullptr;          // where it counts, as long as it lives; null: in a place of its own
  // Where counting begins, for tests: the defaults are far from coming round.
  std::uint64_t first_number = 1;
  std::uint32_t first_sequence = 0;
  std::uint32_t first_transfer = 1;
};

}  // namespace viaduct::net
