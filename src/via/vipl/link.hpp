// What a VI is, what carries its connection, and what has broken it: known to all its parts.
//
// The VI owns it, and its lock guards it.
#pragma once

#include <viaduct/vipl.h>
#include <viaduct/via.hpp>

#include <memory>
#include <utility>

#include "via/port/net_reach.hpp"
#include "via/port/shm_reach.hpp"
#include "via/vipl/adapter.hpp"

namespace viaduct::vipl {

class Link {
 public:
  Link(std::shared_ptr<Adapter> owner, const VIP_VI_ATTRIBUTES& given, std::uint64_t under, std::uint32_t place)
      : adapter(std::move(owner)),
        registrations(adapter->registrations()),
        attributes(given),
        tag(under),
        slot(place) {}

  // ---- the VI

  const std::shared_ptr<Adapter> adapter;
  Registrations& registrations;  // the adapter's
  VIP_VI_HANDLE handle = nullptr;
  VIP_VI_STATE state = VIP_STATE_IDLE;
  VIP_VI_ATTRIBUTES attributes;
  std::uint64_t tag;
  const std::uint32_t slot;  // of its words in the table of registrations

  bool reliable() const { return attributes.ReliabilityLevel != VIP_SERVICE_UNRELIABLE; }
  bool acknowledged() const { return attributes.ReliabilityLevel == VIP_SERVICE_RELIABLE_RECEPTION; }
  ConnectionWords& words() const { return registrations.view().words(slot); }

  // ---- its connection

  std::unique_ptr<via::Channel> channel;
  std::unique_ptr<via::Reach> reach;
  via::ShmReach* shared = nullptr;  // the reach, if the peer is on this host
  via::NetReach* far = nullptr;     // the reach, if it is not
  VIP_VI_ATTRIBUTES peer{};         // what the other VI said about itself

  void connect(via::Connection connection, const VIP_VI_ATTRIBUTES& other) {
    channel = std::move(connection.channel);
    reach = std::move(connection.reach);
    shared = connection.shared;
    far = connection.far;
    peer = other;
    state = VIP_STATE_CONNECTED;
    intact_ = true;
  }
  via::Connection disconnect() {
    shared = nullptr;
    far = nullptr;
    return {std::move(channel), std::move(reach)};
  }

  // ---- what breaks it. A part that finds a fault says so, and the VI ends the connection as soon as the part returns.

  enum class Tell { nothing, reason, our_descriptor };  // the peer; the last: a receive descriptor of ours is to blame
  struct Fault {
    VIP_ERROR_CODE code{};
    Tell tell = Tell::nothing;
    VIP_DESCRIPTOR* descriptor = nullptr;
    std::uint32_t operation = 0;
    bool lost = false;  // the peer is gone, or talks nonsense
  };

  bool intact() const { return intact_; }  // connected, and nothing has broken it
  bool is_broken() const { return broken_; }
  void fail(VIP_ERROR_CODE code, Tell tell, VIP_DESCRIPTOR* descriptor = nullptr, std::uint32_t operation = 0) {
    break_by({code, tell, descriptor, operation, false});
  }
  void lost(VIP_ERROR_CODE code) { break_by({.code = code, .lost = true}); }
  Fault take_fault() {
    broken_ = false;
    return fault_;
  }
  void leave(VIP_VI_STATE next) {  // being connected
    state = next;
    intact_ = broken_ = false;
  }

 private:
  void break_by(const Fault& fault) {
    if (!intact_) return;  // the first one counts
    fault_ = fault;
    intact_ = false;
    broken_ = true;
  }

  bool intact_ = false;
  bool broken_ = false;
  Fault fault_;
};

}  // namespace viaduct::vipl
