// nic_bridge.hpp: an adapter whose host is another MAC. With a tap there, the kernel's own stack is the host:
//
//   tap0 (an interface of the kernel) - rings - firmware - MAC - the network
//
// The host side has no thread of its own: the processor that handles mailboxes moves its frames, between two turns.
#pragma once

#include <viaduct/nic.hpp>

namespace viaduct::nic {

class [[gnu::visibility("default")]] Bridge {
 public:
  // `config.companion` and the coalescing of the receive side are the bridge's. Nothing: `why` says why not.
  static std::unique_ptr<Bridge> create(Config config, std::unique_ptr<Mac> host, std::unique_ptr<Mac> mac,
                                        Failure & why);
  virtual ~Bridge() = default;

  virtual Adapter& adapter() = 0;
  virtual Mac& host_side() = 0;
  // Partition inlined: one turn, on the caller's thread. False: there was nothing to do; sleep on fd().
  virtual bool poll() = 0;
  virtual int fd() const = 0;  // readable when either side may have a frame; -1: it must be polled

  struct Counters {
    std::uint64_t from_host = 0;  // frames that went from the host side to the adapter
    std::uint64_t to_host = 0;
    std::uint64_t too_long = 0;  // for the adapter; dropped
  };
  virtual Counters counters() const = 0;  // from any thread
};

}  // namespace viaduct::nic
