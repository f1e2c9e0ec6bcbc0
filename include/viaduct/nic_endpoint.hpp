// nic_endpoint.hpp: where one user of a network sends and receives frames, whoever else uses the same adapter.
//
//   auto endpoint = nic::make_exclusive_endpoint(std::move(mac), {}, why);
//   endpoint->send(frames);
//   for (Packet& packet : first(packets, endpoint->receive(packets))) use(packet);
//   endpoint->give_back(packets);
//   ...
//   if (endpoint->arm()) poll(endpoint->descriptor());   // nothing was there: sleep
//   endpoint->disarm();
//
// An endpoint has receive buffers of its own: what it holds is no other endpoint's loss. It may stand on a MAC of its
// own (exclusive) or be one of many of an adapter (Adapter::open_endpoint); both behave alike, and pass the same test
// (tests/nic/endpoint_conformance_test.cpp).
//
// Threads: one at a time sends; one at a time receives, gives back, arms, disarms and sets the deadline; the two sides
// run at the same time. wake() and counters() may be called by any thread. Endpoints do not wait for each other.
#pragma once

#include <viaduct/nic.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace viaduct::nic {

struct EndpointCounters {
  std::uint64_t sent = 0;        // taken by send()
  std::uint64_t received = 0;    // handed out by receive()
  std::uint64_t over_limit = 0;  // arrived while the endpoint held as much as it may, and dropped
  std::uint64_t held = 0;        // handed out and not given back yet
};

class [[gnu::visibility("default")]] Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual std::uint16_t id() const = 0;  // by which frames find it; 0: all frames of its MAC
  virtual MacAddress address() const = 0;
  virtual std::uint32_t max_frame() const = 0;
  virtual int core() const {
    return -1;
  }                        // where its queue's processor runs; -1: none said
  virtual Mac& mac() = 0;  // to ask it things: capabilities(), link(), counters()

  // Takes frames from the front and says how many; fewer than all: full, offer the rest again. The bytes are no longer
  // looked at afterwards. They leave at once, or as soon as the processor that sends gets to them; where an adapter's
  // firmware runs inline and the MAC has no room, in a later call.
  virtual std::size_t send(std::span<const Frame> frames) = 0;

  // Packets that follow those received before. They stay as they are until they are given back, in any order; as many
  // as the limit may be out. One given back twice is given back once.
  virtual std::size_t receive(std::span<Packet> packets) = 0;
  virtual void give_back(std::span<const Packet> packets) = 0;

  // To sleep: arm(), look at whatever else other threads hand over before they call wake(), then poll() or epoll until
  // the descriptor is readable, then disarm(). False: there is something to do, and nothing is armed.
  //
  // An armed descriptor becomes readable when a packet comes, when the deadline passes, when there is room again after
  // a send that took less than all, or by wake(). It may be readable for nothing, and is while packets are held: some
  // kernel interfaces cannot tell new frames from those that somebody still holds.
  virtual int descriptor() const = 0;
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  // On CLOCK_MONOTONIC; UINT64_MAX: none.
  virtual void set_next_due(std::uint64_t ns) = 0;
  // Ends a sleep, or the one about to begin. What the sleeper is to see must be published before.
  virtual void wake() = 0;

  virtual EndpointCounters counters() const = 0;
};

// The shortest way: a MAC of one's own, without an adapter in between. Every call works in the caller's thread.
struct ExclusiveOptions {
  std::uint16_t id = 0;             // what a filter below the MAC lets through (PacketMacOptions::endpoint); only told
  std::uint32_t hold_limit = 1024;  // packets out at once; more stay in the MAC, which drops what it has no room for
};
VIADUCT_API std::unique_ptr<Endpoint> make_exclusive_endpoint(std::unique_ptr<Mac> mac, const ExclusiveOptions& options,
                                                              Failure& why);

}  // namespace viaduct::nic
