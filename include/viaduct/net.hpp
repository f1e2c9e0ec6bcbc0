// net.hpp: flows between processes of different hosts, over any Ethernet or UDP, without a daemon (docs/net.md).
//
// An engine is one program's end of the network. A flow is an ordered pipe of messages in each direction, with credits:
// what was taken arrives once, in order and unchanged, or the flow ends with a reason. Through a flow one side also
// reads and writes the memory that the other side registered.
//
//   net::Failure why;
//   auto engine = net::Engine::open({}, memory, why);
//   engine->offer("kv", why);                                          // others can connect to this name here
//   net::FlowId flow = engine->connect("10.0.0.2", "kv", {.user = 7, .within_ns = 3'000'000'000}, why);
//   for (;;) {
//     const std::uint64_t seen = engine->news();
//     while (engine->progress()) continue;
//     take_incoming(), take_ready() and take_event(), peek() ...       // all that there is
//     if (engine->prepare_to_sleep(seen)) { poll(engine->descriptor()); engine->woke(); }
//   }
//
// Any thread may call anything at any time. One lock inside is held briefly; progress() does not wait for another
// thread's. One flow's messages are read by one thread at a time: what peek() shows stays as it is until consume() or
// close() of that flow. Nothing blocks unless it says so. A forked child has no engines: there every call fails, and
// flows are closed. Where the program does not call, a thread of the process does what peers need (docs/net.md).
//
// Peers are not trusted: the worst that one can do is to end its own session as broken. With a key only those who have
// it as well are talked to, and what goes over the network is encrypted (docs/net.md).
#pragma once

#include <sys/uio.h>
#include <viaduct/api.h>
#include <viaduct/nic.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace viaduct::net {

using nic::Failure;

inline constexpr std::uint16_t kWellKnownPort = 47117;
inline constexpr std::size_t kLongestRequest = 1536;  // bytes of the program's that ride on a connect or an answer

enum class Sent {
  yes,
  full,    // no credit: an event `writable` follows
  closed,  // the flow is not open, or finished
  too_long,
};

// Why a flow was refused or closed. The first ones travel.
enum class Reason : std::uint8_t {
  done = 0,     // closed in good order: everything was delivered
  aborted,      // what was under way is lost
  not_wanted,   // refused by the program
  too_many,     // more flows than the other side allows
  not_offered,  // the process there does not offer that name

  timed_out = 128,  // the peer was silent for too long
  peer_ended,       // its process ended the session
  peer_restarted,   // the process there knows nothing of the session
  broken,           // the peer said something impossible
  session_over,     // this side ended the session
  key_differs,      // one side has no key, or another one
};

enum class TransferStatus : std::uint8_t {
  done = 0,
  no_such_tag,    // or it is not for this flow
  out_of_bounds,  // of what the tag covers
  not_allowed,    // no right to read, or to write
  flow_closed,    // before it was done
};

// What one side of a flow holds for its program: so many messages of such a size.
struct FlowLimits {
  std::uint32_t slots = 32;        // items that this side holds; 1 to 4,096
  std::uint32_t slot_size = 4096;  // bytes of an item; 16 MB of both together at most
};

// The memory of this side that peers may reach. Asked for each frame that is filled or placed, so that memory can be
// withdrawn at any time: Engine::settle() says when nobody is in it any more. Called by whichever thread drives the
// engine, with the engine's lock held: it must not call the engine.
class [[gnu::visibility("default")]] RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;

  enum class Access : std::uint8_t { read, write };
  struct Reached {
    TransferStatus status = TransferStatus::no_such_tag;
    std::byte* at = nullptr;  // where status is done; used before anything else of the engine runs
  };
  // `user`: of the flow through which it is reached.
  virtual Reached reach(std::uint64_t user, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
                        Access access) = 0;
};

using FlowId = std::uint64_t;  // of one engine; 0 is none, and none is used twice

struct FlowEvent {
  enum class Kind : std::uint8_t {
    accepted,     // the peer's program took the connection: `bytes` is its answer
    refused,      // it did not: `reason`, `bytes`
    failed,       // connect() has found nobody: `text` names address, interface and what was tried; `reason` is
                  // not_offered or key_differs where somebody there has said so
    readable,     // peek() has something again
    writable,     // try_send(), get() and put() will be taken again
    delivered,    // as far as tell_when_delivered() was asked for
    ended,        // the peer sends nothing more on this flow, and everything was consumed
    closed,       // `reason`, `text`; what has come can still be read, then close()
    transferred,  // get() or put() with `cookie` is done, with `status`
  };
  Kind kind = Kind::readable;
  Reason reason = Reason::done;
  TransferStatus status = TransferStatus::done;
  std::uint64_t cookie = 0;
  std::vector<std::byte> bytes;
  std::string text;
};

// Somebody wants to connect: accept() or refuse().
struct Incoming {
  FlowId flow = 0;
  std::string name;  // of those offered here
  std::string peer;  // "192.0.2.1:51234"
  std::vector<std::byte> request;
};

struct ConnectOptions {
  std::uint64_t user = 0;  // the flow's word: take_ready() lists it
  std::span<const std::byte> request{};
  FlowLimits limits{};
  std::uint64_t within_ns = 3'000'000'000;
};

// The way to a flow's peer.
struct Path {
  std::string peer;       // its process's own address, "192.0.2.1:51234"
  std::string local;      // ours on the way there
  std::string interface;  // that leads there
  std::string carrier;    // "udp", "packet", "wire"
  std::uint32_t mtu = 0;
  std::size_t frame_size = 0;  // the largest in use
};

struct EngineOptions {
  std::uint16_t port = kWellKnownPort;          // where processes of a host are found
  std::uint32_t largest_frame = 9000;           // of what an Ethernet frame carries; the way to a peer may carry less
  std::uint64_t silence_ns = 30'000'000'000;    // after which a peer that owes an answer is dead
  std::uint64_t keepalive_ns = 10'000'000'000;  // of silence, after which a peer is asked whether it lives
  // Whose content peers must have as well; nothing: as the setting VIADUCT_KEY_FILE says; empty: none, and no peer may
  // have one.
  std::optional<std::string> key_file{};
};

class [[gnu::visibility("default")]] Engine {
 public:
  // Nothing: `why` says why not. `memory` outlives the engine.
  static std::shared_ptr<Engine> open(const EngineOptions& options, RegisteredMemory& memory, Failure& why);
  // Over a link of one's own that leads to one other engine, such as one end of nic::make_wire(); hosts mean nothing.
  static std::shared_ptr<Engine> over(std::unique_ptr<nic::Mac> mac, const EngineOptions& options,
                                      RegisteredMemory& memory, Failure& why);
  // Waits, bounded, for what is not yet delivered, and tells the peers.
  virtual ~Engine() = default;

  // Names of 1 to 255 bytes. A name belongs to one engine of a host at a time.
  virtual bool offer(const std::string& name, Failure& why) = 0;
  virtual void withdraw(const std::string& name) = 0;

  // "HOST" or "HOST:PORT". Returns at once; ends as accepted, refused or failed. Connections to one process share one
  // session. 0: `why` says why it cannot even be tried. A host's name is looked up first, which may block.
  virtual FlowId connect(const std::string& host, const std::string& name, const ConnectOptions& options,
                         Failure& why) = 0;
  virtual bool take_incoming(Incoming & incoming) = 0;
  // False: it was withdrawn meanwhile, or the limits are impossible.
  virtual bool accept(FlowId flow, std::uint64_t user, const FlowLimits& limits, std::span<const std::byte> answer) = 0;
  virtual void refuse(FlowId flow, Reason reason, std::span<const std::byte> answer) = 0;

  // Taken: the bytes are copied. flush() or progress() lets them go.
  virtual Sent try_send(FlowId flow, std::span<const iovec> pieces) = 0;
  virtual std::size_t largest_item(FlowId flow) const = 0;
  // Items that would be taken now; 0: an event `writable` follows, as after `full`.
  virtual std::uint32_t credit(FlowId flow) const = 0;
  // Items of ours that the peer has acknowledged, all before them too, counted from 0: messages, gets and puts in the
  // order in which they were taken.
  virtual std::uint64_t delivered(FlowId flow) const = 0;
  // An event `delivered` once delivered() is that much; the last call counts.
  virtual void tell_when_delivered(FlowId flow, std::uint64_t items) = 0;
  // The next message, in place until consume().
  virtual bool peek(FlowId flow, std::span<const std::byte> & message) = 0;
  virtual void consume(FlowId flow) = 0;
  // The peer sees the end behind what was sent. Receiving goes on.
  virtual void finish(FlowId flow) = 0;
  // The flow is nobody's from now on, and `local` of its transfers is not touched any more. In good order: what was
  // sent is delivered first, and the peer sees its end; else at once.
  virtual void close(FlowId flow, bool in_good_order = true) = 0;

  // The peer's registered memory. `local` stays as it is until the event `transferred`, which comes once for each that
  // was taken while the flow is not closed here.
  virtual Sent get(FlowId flow, std::byte * local, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
                   std::uint64_t cookie) = 0;
  virtual Sent put(FlowId flow, const std::byte* local, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
                   std::uint64_t cookie) = 0;
  // Ends all gets and puts of this side that are under way: `local` is not touched any more, and no event tells of
  // them. What the peer's memory has got of them is left open.
  virtual void give_up_transfers(FlowId flow) = 0;
  // When it returns, nobody is in memory that reach() has shown before.
  virtual void settle() = 0;

  // The words of flows that have events, each once until its events were taken.
  virtual std::size_t take_ready(std::span<std::uint64_t> users) = 0;
  virtual bool take_event(FlowId flow, FlowEvent & event) = 0;

  // Frames in, what is due, frames out. False: nothing moved, or another thread is at it.
  virtual bool progress() = 0;
  // Frames out, without looking for any.
  virtual void flush() = 0;

  // Sleeping. news() counts what was delivered to take_incoming() and take_event(). prepare_to_sleep() sends what is
  // owed to peers; false: there is news since `seen`. True: sleep until the descriptor is readable, then woke(). It
  // becomes readable when there is something to do for progress(), and when another thread has made news. Several
  // threads may sleep.
  virtual std::uint64_t news() const = 0;
  virtual int descriptor() const = 0;
  virtual bool prepare_to_sleep(std::uint64_t seen) = 0;
  virtual void woke() = 0;
  // All of it in one: until there is news since `seen`, or something to do, or the time is up.
  virtual void sleep(std::uint64_t seen, std::uint64_t most_ns) = 0;

  // Waits until everything that was taken is acknowledged. False: not within the time.
  virtual bool drain(std::uint64_t within_ns) = 0;

  virtual Path path(FlowId flow) const = 0;
  virtual std::size_t sessions() const = 0;  // processes that this engine talks to

  // An address of this host, where shared memory is the way. False, too, where the host is not known.
  static bool is_this_host(const std::string& host);
};

}  // namespace viaduct::net
