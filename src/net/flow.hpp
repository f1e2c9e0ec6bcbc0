// One flow of a session: both directions, and how far each has come. Owned by its session.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "net/incoming_items.hpp"
#include "net/outgoing_items.hpp"
#include "net/session_types.hpp"

namespace viaduct::net {

struct Flow {
  enum class State : std::uint8_t {
    opening,  // asked for here, no answer yet
    open,
    lingering,  // closed here: what was taken is still being delivered
    gone,       // the peer closed it: what has come can be read
  };

  Flow(std::uint32_t number, const FlowLimits& limits, std::uint32_t first_sequence)
      : id(number), user(number), incoming(first_sequence, limits.slots, limits.slot_size) {}

  void connect(std::uint32_t first_sequence, const FlowLimits& peers) {
    outgoing.emplace(first_sequence, peers.slots, peers.slot_size);
    state = State::open;
  }
  // All that was to be delivered has been.
  bool all_delivered() const { return !outgoing || (outgoing->all_acknowledged() && (!finished || end_acknowledged)); }

  const std::uint32_t id;
  std::uint64_t user;  // by which registered memory knows the flow
  State state = State::opening;
  IncomingItems incoming;
  std::optional<OutgoingItems> outgoing;  // once the peer has accepted
  bool queued = false;                    // stands among those that have something to send
  bool finished = false;                  // sends no more items
  bool end_due = false;
  bool end_acknowledged = false;
  bool refused_full = false;   // an event `writable` is owed
  bool readable_told = false;  // an event `readable` is on its way, or the program looks
  bool ended_told = false;
  bool credit_due = false;            // again, because a frame that told it was lost
  std::deque<std::uint32_t> pulling;  // the offers at the head of incoming: their transfers; 0: done
  std::uint32_t results_owed = 0;     // of the peer's transfers: not yet acknowledged
  std::uint32_t peers_gets = 0;       // under way
  std::uint64_t delivered = 0;        // items, when the peer closed the flow
  std::uint64_t tell_delivered_at = UINT64_MAX;
};

}  // namespace viaduct::net
