// nic_mac.hpp: what an adapter puts its frames on. One shape for every MAC, one conformance test for all of them
// (tests/nic/mac_conformance_test.cpp).
//
// Frames are Ethernet frames without preamble and checksum. All calls take batches, so that a virtual call is paid per
// batch and not per frame. One thread at a time may be in the transmit half and one in the receive half; the two halves
// run at the same time. Nothing here blocks or throws.
#pragma once

#include <viaduct/api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace viaduct {
class Clock;
}

namespace viaduct::nic {

constexpr std::uint32_t kEthernetHeader = 14;
constexpr std::uint32_t kStandardFrame = 1514;  // MTU 1500 and the header

using MacAddress = std::array<std::uint8_t, 6>;

struct Frame {
  const std::byte* data = nullptr;
  std::uint32_t length = 0;
  bool congested = false;  // received with a congestion mark (ECN), where the MAC tells them
};

enum class Link {
  up,
  down,  // frames are dropped; may come back
  gone,  // the interface was removed: nothing will ever move again
};

struct MacCounters {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t transmit_drops = 0;  // taken, then lost here: link down, refused by the interface
  std::uint64_t receive_drops = 0;   // arrived, lost here: no room, or injected loss
};

// What a MAC can do, so that its user need not know its kind.
struct Capabilities {
  std::uint32_t max_frame = 0;      // as it is now: at most Mac::max_frame(), less once an interface's MTU was lowered
  std::uint32_t segments = 1;       // frames of one length to one receiver that leave as one send; 1: each by itself
  bool gathered_arrivals = false;   // frames of one sender may arrive as one receive
  bool checked_arrivals = false;    // a checksum below (Ethernet's, UDP's) has been compared; wires have none
  bool congestion_marks = false;    // Frame::congested is told, and what is sent may be marked on the way
  bool probes_path_mtu = false;     // frames are never cut on the way, so one that arrives proves its length
  std::string_view privilege = {};  // what making one takes: "CAP_NET_RAW"; empty: nothing, anybody may
};

class [[gnu::visibility("default")]] Mac {
 public:
  virtual ~Mac() = default;

  virtual std::string name() const = 0;  // "wire", "packet:eth1"
  virtual MacAddress address() const = 0;
  virtual std::uint32_t max_frame() const = 0;  // longest frame it carries, the Ethernet header included
  virtual Link link() const {
    return Link::up;
  }
  virtual MacCounters counters() const = 0;  // from any thread
  virtual Capabilities capabilities() const {
    return {.max_frame = max_frame()};
  }

  // Transmit half. Takes frames from the front and says how many; fewer than all means: full, offer the rest again.
  // What was taken is no longer looked at after the call.
  virtual std::size_t transmit(std::span<const Frame> frames) = 0;

  // Receive half. Fills in frames that follow those given before and says how many. A frame's bytes stay where they
  // are, unchanged, until it is released; frames are released oldest first.
  virtual std::size_t receive(std::span<Frame> frames) = 0;
  virtual void release(std::size_t count) = 0;

  // Readable when frames may have arrived: what an idle processor sleeps on. -1: there is none, it must be polled.
  virtual int fd() const {
    return -1;
  }
  // Writable when there is room again, after transmit() has taken less than all. -1: there is none.
  virtual int transmit_fd() const {
    return -1;
  }
};

// What a wire does to frames, one direction. One seed, one run.
struct WireFaults {
  std::uint64_t seed = 1;
  double loss = 0;  // each a probability per frame
  double duplication = 0;
  double reordering = 0;  // the frame is overtaken by up to reorder_depth later ones
  double corruption = 0;  // one to four bytes change
  std::uint32_t reorder_depth = 4;
  std::uint64_t delay_ns = 0;         // of every frame
  std::uint64_t delay_spread_ns = 0;  // and up to this much more; order is kept all the same

  bool any() const {
    return loss > 0 || duplication > 0 || reordering > 0 || corruption > 0 || delay_ns > 0 || delay_spread_ns > 0;
  }
};

struct WireOptions {
  std::uint32_t max_frame = kStandardFrame;
  std::uint32_t depth = 512;     // frames in flight each way; a power of two
  WireFaults faults{};           // of both directions, with different seeds
  const Clock* clock = nullptr;  // for delays; none: the machine's
};

// Two MACs in one process, joined.
VIADUCT_API std::pair<std::unique_ptr<Mac>, std::unique_ptr<Mac>> make_wire(const WireOptions& options = {});

// Swallows what is sent and receives the same frame for ever: for measuring the adapter alone.
struct NullMacOptions {
  std::uint32_t max_frame = kStandardFrame;
  std::uint32_t frame_length = 60;      // of the frames that arrive
  std::uint64_t frames_to_receive = 0;  // then no more; UINT64_MAX: for ever
};
VIADUCT_API std::unique_ptr<Mac> make_null_mac(const NullMacOptions& options = {});

}  // namespace viaduct::nic
