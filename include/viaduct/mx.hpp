// mx.hpp: message endpoints with matching, on which the MX interface (myriexpress.h) stands, and whoever else wants
// tagged messages: an endpoint sends to its partners, of this host and of others, and receives what matches.
//
//   net::Failure why;
//   auto endpoint = mx::Endpoint::open({.number = 3}, why);
//   mx::Partner* peer = endpoint->partner({nic, 4});                 // connected when it is first needed
//   mx::Request* sending = endpoint->send({.to = peer, .bytes = pieces, .match = 7});
//   mx::Completion done;
//   while (!endpoint->take(sending, done)) endpoint->progress();
//
// Nothing has a thread: what has to be done is done by those who call, mostly in progress() and wait(). Anybody may
// call anything at any time, from any thread; one lock inside is held briefly. Requests and partners are the
// endpoint's. Partners last as long as it does; a request until its completion was taken.
//
// Peers are not trusted: whatever one sends, the worst is that it is cut off.
#pragma once

#include <sys/uio.h>
#include <viaduct/api.h>
#include <viaduct/net.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace viaduct::mx {

using net::Failure;

// The numbers are those of mx_status_code_t.
enum class Status : std::uint8_t {
  success = 0,
  pending = 1,
  buffered = 2,
  rejected = 3,
  timed_out = 4,
  truncated = 5,
  cancelled = 6,
  endpoint_unknown = 7,
  endpoint_closed = 8,
  endpoint_unreachable = 9,
  bad_session = 10,
  bad_key = 11,
  bad_endpoint = 12,
  bad_window = 13,
  aborted = 14,
  queue_full = 15,
  no_resources = 16,
};

// Where an endpoint is found: an interface of a host (boards.hpp has the encoding), and a number there.
struct Name {
  std::uint64_t nic = 0;
  std::uint32_t endpoint = 0;
  bool operator==(const Name&) const = default;
};

inline constexpr std::uint32_t kAnyEndpoint = UINT32_MAX;
inline constexpr std::uint32_t kMostEndpoints = 65536;  // numbers of an interface
inline constexpr std::size_t kMostPieces = 256;
inline constexpr std::uint64_t kExactly = UINT64_MAX;  // as a mask: all bits count
inline constexpr std::uint64_t kForever = UINT64_MAX;

class Partner;  // another endpoint, as one endpoint knows it
class Request;  // something that was asked for, and has not been taken back

// Where messages meet receives: those of one space never match those of another.
using Space = std::uint8_t;

struct Send {
  Partner* to = nullptr;
  std::span<const iovec> bytes{};  // the list is copied, the bytes are not: they stay until the send is complete
  std::uint64_t match = 0;
  Space space = 0;
  bool until_matched = false;  // complete only when a receive has taken it
  bool has_data = false;       // `data` goes along
  std::uint64_t data = 0;
  void* context = nullptr;
};

// A message fits where (its match & mask) == match.
struct Receive {
  std::span<const iovec> into{};
  std::uint64_t match = 0;
  std::uint64_t mask = kExactly;
  Space space = 0;
  Partner* from = nullptr;  // none: from anybody
  void* context = nullptr;
};

struct Completion {
  enum class Kind : std::uint8_t { send, receive, connect, get, put };
  Kind kind = Kind::send;
  Status status = Status::success;
  Space space = 0;
  bool has_data = false;
  Partner* partner = nullptr;  // of a receive: who sent it
  std::uint64_t match = 0;     // of the message
  std::uint64_t data = 0;
  std::uint64_t length = 0;       // of the message
  std::uint64_t transferred = 0;  // of it
  void* context = nullptr;
};

// A message that nobody has received yet.
struct Waiting {
  Partner* from = nullptr;
  std::uint64_t match = 0;
  std::uint64_t length = 0;
  bool has_data = false;
  std::uint64_t data = 0;
};
class Message;  // one that was claimed: only receive_claimed() gets it

// Memory that partners may reach.
struct Memory {
  std::uint32_t key = 0;  // 0: there is no room for it
};
enum Right : std::uint64_t { kRemoteWrite = 1, kRemoteRead = 2 };

// What happens, told by whichever thread finds it, with the endpoint's lock held. It may call the endpoint, except what
// waits.
class [[gnu::visibility("default")]] Events {
 public:
  virtual ~Events() = default;
  // True: the request is over. False: it waits for take().
  virtual bool completed(Request*, const Completion&) {
    return false;
  }
  // A message that no receive waits for. `bytes`: the whole of it, if it is there; else null. True: it was consumed,
  // and is forgotten; only where `bytes` is there. Receives that were posted meanwhile are looked at again.
  virtual bool unexpected(const Waiting&, const std::byte* bytes) {
    (void)bytes;
    return false;
  }
  // What the partner's program sent by send_control().
  virtual void control(Partner*, std::uint32_t word, std::span<const std::byte> bytes) {
    (void)word, (void)bytes;
  }
  // It has gone; or it is there again, when something comes from it.
  virtual void partner_gone(Partner*, Status why) {
    (void)why;
  }
};

struct Options {
  std::string family = "mx";               // endpoints meet those of their family only
  std::uint64_t nic = 0;                   // of this host; 0: its first
  std::uint32_t number = kAnyEndpoint;     // any: the lowest that is free
  std::uint32_t key = 0;                   // whoever connects has to know it
  std::size_t most_unexpected = 64 << 20;  // bytes; then senders wait
  Events* events = nullptr;                // outlives the endpoint
};

class [[gnu::visibility("default")]] Endpoint {
 public:
  // Null: `why` says why. EADDRINUSE: that number is taken.
  static std::unique_ptr<Endpoint> open(const Options& options, Failure& why);
  // Everything under way is given up; partners see the end behind what was sent.
  virtual ~Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  virtual Name name() const = 0;
  virtual std::uint32_t session() const = 0;  // of this opening: no two have the same

  // ---- partners

  // The one of that name, whom this endpoint knows from now on. Null: no memory.
  virtual Partner* partner(const Name& name, std::uint32_t key = 0) = 0;
  virtual Partner* self() = 0;
  virtual Name name_of(const Partner* partner) const = 0;
  virtual std::uint32_t session_of(const Partner* partner) const = 0;  // 0: it was never connected
  virtual std::uint32_t index_of(const Partner* partner) const = 0;    // from 0, in order of acquaintance
  virtual bool is_connected(const Partner* partner) const = 0;
  virtual bool is_local(const Partner* partner) const = 0;  // memory is shared with it
  // For the program: what it wants to remember of a partner.
  virtual void set_context(Partner * partner, void* context) = 0;
  virtual void* context_of(const Partner* partner) const = 0;
  // Complete when it is connected, or it is clear that it will not be. Sends connect by themselves.
  virtual Request* connect(Partner * partner, std::uint32_t key, std::uint64_t match, void* context,
                           std::uint64_t within_ns) = 0;
  // What is under way with it ends as endpoint_closed. Later sends connect again.
  virtual void disconnect(Partner * partner) = 0;

  // ---- messages; null: no memory

  virtual Request* send(const Send& send) = 0;
  virtual Request* receive(const Receive& receive) = 0;
  virtual bool probe(const Receive& like, Waiting& found) = 0;  // the oldest that fits
  virtual Message* claim(const Receive& like, Waiting& found) = 0;
  // `receive` gives the memory and the context.
  virtual Request* receive_claimed(Message * message, const Receive& receive) = 0;
  // For programs that stand on this and have to agree on more: at most 1 KB, in order with messages.
  virtual bool send_control(Partner * to, std::uint32_t word, std::span<const std::byte> bytes) = 0;

  // ---- memory

  virtual Memory expose(const void* address, std::size_t length, std::uint64_t rights) = 0;
  // When it returns nobody reaches it.
  virtual void withdraw(Memory memory, const void* address) = 0;
  // Complete when the bytes are there: status success; bad_window: it may not; no_resources: there is no way to it from
  // here, and the owner has to be asked by message.
  virtual Request* get(Partner * from, std::span<const iovec> into, std::uint32_t key, std::uint64_t address,
                       void* context) = 0;
  virtual Request* put(Partner * to, std::span<const iovec> bytes, std::uint32_t key, std::uint64_t address,
                       void* context) = 0;

  // ---- completions

  virtual bool is_done(const Request* request) const = 0;
  virtual bool look(const Request* request, Completion& completion) const = 0;  // without taking it
  virtual bool take(Request * request, Completion & completion) = 0;
  // Any finished one whose match fits; the one that finished first.
  virtual Request* first_done(std::uint64_t match, std::uint64_t mask) const = 0;
  // The bytes of a send are in use no more.
  virtual bool is_buffered(const Request* request) const = 0;
  // Over when it completes, and nobody wants to know.
  virtual void forget(Request * request) = 0;
  // A receive that nothing has matched, or a send that nothing has gone of: true, and it is done as `cancelled`.
  virtual bool cancel(Request * request) = 0;
  // From now on; done as timed_out, unless it is over by then. Null: for all that are asked for later.
  virtual void set_timeout(Request * request, std::uint64_t within_ns) = 0;

  // ---- progress

  // Does what there is to do. False: another thread is at it.
  virtual bool progress() = 0;
  // Calls look() until it says true, the time is up or wake() was called: spins, then sleeps. look() is called without
  // the lock.
  struct Look {
    bool (*function)(void*);
    void* argument;
  };
  virtual bool wait(std::uint64_t within_ns, Look look) = 0;
  // Ends all waits that are under way.
  virtual void wake() = 0;

  // What `viaduct ls` shows.
  struct View {
    std::size_t partners = 0, connected = 0, posted = 0, unexpected = 0, sending = 0;
    std::uint64_t unexpected_bytes = 0;
  };
  virtual View view() const = 0;

 protected:
  Endpoint() = default;
};

}  // namespace viaduct::mx
