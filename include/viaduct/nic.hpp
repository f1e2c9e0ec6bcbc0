// nic.hpp: an event-driven network adapter in software, and its driver.
//
//   nic::Failure why;
//   auto [here, there] = nic::make_wire();
//   auto adapter = nic::Adapter::create({.name = "left"}, std::move(here), why);
//   nic::Host& host = adapter->host();
//   host.send_copy(frame);
//   host.ring();                                       // the mailbox: what was queued since goes out
//   adapter->poll();                                   // partition inlined: the firmware runs here
//   nic::Packet packets[32];
//   for (nic::Packet& packet : first(packets, host.receive(0, packets))) { use(packet); host.give_back(packet); }
//   host.post();
//
// The firmware is nine handlers over event registers (src/nic/firmware). It runs inside poll(), or on processors of its
// own: one (release), two (parallel: a static partition of the events), several (dynamic: any event on any of them).
//
// Thread safety: of Host, sending belongs to one thread, and each receive queue to one thread; posting may be called by
// all of them. poll() belongs to one thread.
#pragma once

#include <viaduct/api.h>
#include <viaduct/nic_mac.hpp>
#include <viaduct/nic_stat.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace viaduct::nic {

// The rings of the card.
constexpr std::uint32_t kCommandRing = 64;
constexpr std::uint32_t kSendRing = 256;
constexpr std::uint32_t kReceiveRing = 512;
constexpr std::uint32_t kMiniRing = 1024;
constexpr std::uint32_t kReturnRing = 2048;
constexpr std::uint32_t kMostFragments = 32;  // of one packet

struct Failure {
  std::error_code code;
  std::string message;  // what failed, on what, and what to do
};

enum class Partition {
  inlined,   // in poll(), on the caller's thread
  release,   // one processor
  parallel,  // two: the paper's static partition
  dynamic,   // any event on any of the processors; data of different packets moved by several at once
  custom,    // Config::processor_of
};

// Which processor handles which event, for a partition that is fixed.
using Assignment = std::array<std::uint8_t, kEvents>;
VIADUCT_API Assignment parallel_assignment();
// Why that assignment cannot run without locks: handlers that share a DMA channel must share a processor. Nothing: it
// can.
VIADUCT_API std::optional<std::string> fault_of(const Assignment& assignment, unsigned processors);

// An index is written and an interrupt raised when so many packets are done or so much time has passed, whichever is
// first. A count of 1 reports each batch at once.
struct Coalescing {
  std::uint32_t send_count = 60;
  std::uint64_t send_ns = 400'000;
  std::uint32_t receive_count = 25;
  std::uint64_t receive_ns = 120'000;

  static Coalescing none() { return {1, 0, 1, 0}; }
};

// The byte at `offset` of a frame of that EtherType picks the receive-return ring, by the steering table: 256 entries,
// at first the value modulo the number of queues. Other frames, and those too short, go to ring 0. Nothing is
// remembered between frames.
struct Steering {
  std::uint16_t offset = 0;
  std::uint16_t ether_type = 0;  // 0: any
};

// Where a frame says which endpoint it is for: a 16-bit number, little endian, in frames of that EtherType. 0 is for
// every endpoint that listens.
struct EndpointPlace {
  std::uint16_t ether_type = 0;
  std::uint16_t offset = 0;  // from the beginning of the frame
};

// Looks at received frames before they go to the host, on the processor that handles Receive Complete: once a batch.
class [[gnu::visibility("default")]] Filter {
 public:
  virtual ~Filter() = default;
  // Clears keep[i] for every frame that is to be dropped.
  virtual void inspect(std::span<const Frame> frames, std::span<bool> keep) = 0;
};

enum class FrameFate : std::uint8_t {
  to_host,  // as if nobody had looked
  dropped,  // counted as filtered
  taken,    // it has reached whom it was for
};

// What a handler sends with. The frame is copied.
class [[gnu::visibility("default")]] Transmitter {
 public:
  virtual ~Transmitter() = default;
  virtual bool send(std::span<const std::byte> frame) = 0;  // false: no room now, or too long
  virtual std::uint32_t max_frame() const = 0;
};

// A part of the firmware that may answer a frame itself. It sees frames after the Filter and before the endpoints, on
// the processor that handles Receive Complete. What it sends leaves by the processor that sends.
class [[gnu::visibility("default")]] FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // All fates are to_host at first, but for frames that a filter dropped.
  virtual void handle(std::span<const Frame> frames, std::span<FrameFate> fates, Transmitter & out) = 0;
  // When on_due() is wanted, in nanoseconds of the adapter's clock; UINT64_MAX: never. A sleeping processor wakes for
  // it.
  virtual std::uint64_t next_due_ns() const {
    return UINT64_MAX;
  }
  virtual void on_due(std::uint64_t now_ns, Transmitter & out);
};

// Who moves frames to endpoints.
enum class Delivery {
  together,      // the processor that handles Receive Complete, all of them
  single_queue,  // one further processor, all of them
  multiqueue,    // a processor per queue: the steering table says which queue an endpoint's frames go to
  round_robin,   // a processor per queue, each batch the next: frames of one endpoint may overtake each other
};

// A host that only moves indices, on the processor that handles mailboxes: for measuring the firmware alone.
struct NullTraffic {
  std::uint32_t send_length = 0;  // of the frame it sends for ever; 0: it sends nothing
};

struct Config {
  std::string name = "adapter";
  Partition partition = Partition::inlined;
  std::vector<int> cores;     // one per processor; empty: threads are not pinned
  unsigned processors = 0;    // 0: as the partition says (dynamic, custom: as many as cores)
  Assignment processor_of{};  // custom only

  unsigned queues = 1;  // receive-return rings
  std::optional<Steering> steering;
  std::vector<int> queue_core;  // for whoever binds itself to the core of its queue; a queue's processor runs there

  std::optional<EndpointPlace> endpoint_at{};  // then endpoints can be opened
  Delivery delivery = Delivery::together;      // inlined: together

  Coalescing coalescing;
  std::uint32_t receive_buffer = 0;  // bytes; 0: the MAC's longest frame
  std::uint32_t mini_buffer = 128;   // 0: no mini ring
  bool hold_when_empty = false;      // no receive buffer: leave the frame in the MAC instead of dropping it
  bool measure_time = true;          // per handler
  bool trace = true;
  std::uint64_t spin_us = UINT64_MAX;  // an idle processor spins this long, then sleeps; UINT64_MAX: never sleeps

  Filter* filter = nullptr;         // outlives the adapter
  FrameHandler* handler = nullptr;  // so does this
  std::function<void()> companion;  // called each turn by the processor that handles mailboxes: a host without a thread
  std::optional<NullTraffic> null_host;  // then the Host must not be used
  const Clock* clock = nullptr;          // none: the machine's
};

struct Fragment {
  std::uint64_t address = 0;  // as Host::register_memory() says
  std::uint32_t length = 0;
};

struct Packet {
  std::byte* data = nullptr;
  std::uint32_t length = 0;
  std::uint32_t buffer = 0;  // for give_back()
  std::uint32_t queue = 0;
  bool congested = false;  // as Frame::congested; endpoints only
};

enum class Command : std::uint8_t {
  set_queues = 1,  // argument: how many receive-return rings steering spreads over, up to Config::queues
  flush = 2,       // report everything that is done now, whatever coalescing says
  steer = 3,       // argument: an entry of the steering table in the lower 8 bits, its queue in the next 8
};

// The driver: rings in host memory, mailboxes, interrupts.
class [[gnu::visibility("default")]] Host {
 public:
  virtual ~Host() = default;

  // Memory from which packets may be sent; it must stay until it is unregistered or the adapter is gone. The address of
  // its first byte, or nothing when there are too many regions (64, two of them the driver's).
  virtual std::optional<std::uint64_t> register_memory(void* memory, std::size_t size) = 0;
  // By the sending thread, with the address that registering gave. From then on the adapter does not touch the memory,
  // and a packet that names it is dropped and counted. False: nothing was changed, since a packet sent from it may not
  // have been taken yet (try again when reclaim() has given its cookie back), or there is no such memory.
  virtual bool unregister_memory(std::uint64_t address) = 0;

  // Queues a packet; false: the ring is full. The memory must stay untouched until reclaim() gives the cookie back.
  virtual bool send(std::span<const Fragment> fragments, std::uint64_t cookie) = 0;
  // Queues a copy of the frame in a buffer of the driver.
  virtual bool send_copy(std::span<const std::byte> frame) = 0;
  // Tells the adapter about everything queued: one mailbox write.
  virtual void ring() = 0;
  // Cookies of packets that the adapter has taken, in order; those of send_copy() are left out.
  virtual std::size_t reclaim(std::span<std::uint64_t> cookies) = 0;
  virtual std::uint32_t send_space() = 0;  // free descriptors

  virtual std::size_t receive(unsigned queue, std::span<Packet> packets) = 0;
  // The buffer may be filled again; the adapter is told by post(), or in the end by itself.
  virtual void give_back(const Packet& packet) = 0;
  virtual void post() = 0;

  // Waits for an interrupt of that queue (queue 0: also of the send side) or something to receive. False: time is up.
  virtual bool wait(unsigned queue, std::uint64_t timeout_ns) = 0;

  virtual bool command(Command command, std::uint32_t argument) = 0;  // false: the command ring is full

  struct Counters {
    std::uint64_t sent = 0, reclaimed = 0, received = 0;
    std::uint64_t buffers_returned_bad = 0;  // descriptors that the adapter refused
    std::uint64_t bad_returns = 0;           // return descriptors that cannot be
  };
  virtual Counters counters() const = 0;
};

// Where a frame says that it is the last of its message: a byte, and bits in it that are set then.
struct MessageEnd {
  std::uint16_t offset = 0;
  std::uint8_t mask = 0;  // 0: every frame is one
};

class Endpoint;
struct EndpointOptions {
  std::uint16_t id = 0;            // by which frames find it; 0: the lowest that is free
  int queue = -1;                  // changes the steering table's entry of the id; -1: as the table says
  int core = -1;                   // the same, by the core of a queue; -1: whichever
  std::uint32_t hold_limit = 256;  // receive buffers of its own; what comes while it holds them all is dropped
  std::uint32_t send_ring = 64;    // frames that wait for the processor that sends; a power of two
  bool listens = false;            // frames for endpoint 0 come here too
  // A sleeper is woken by the last frame of a message, or when half of the buffers are out, and not before: one who
  // waits for the rest of a message has a deadline of its own for the case that it does not come.
  MessageEnd message_end{};
};

class [[gnu::visibility("default")]] Adapter {
 public:
  // Nothing: `why` says why not.
  static std::unique_ptr<Adapter> create(Config config, std::unique_ptr<Mac> mac, Failure & why);
  virtual ~Adapter() = default;  // stops its processors

  virtual Host& host() = 0;
  virtual Mac& mac() = 0;
  // An endpoint (viaduct/nic_endpoint.hpp), which must be gone before the adapter. From any thread. Nothing: `why` says
  // why not: the id is taken, or the adapter was made without Config::endpoint_at.
  virtual std::unique_ptr<Endpoint> open_endpoint(const EndpointOptions& options, Failure& why) = 0;
  // Partition inlined: one turn of the dispatch loop. False: there was nothing to do.
  virtual bool poll() = 0;
  virtual Reading statistics() const = 0;
  virtual std::vector<TraceEntry> trace() const = 0;
  virtual int core_of_queue(unsigned queue) const = 0;  // -1: none said
};

}  // namespace viaduct::nic
