// via.hpp: channels and reaches, which virtual interfaces stand on, and whoever else wants messages and memory without
// a socket in between. A connection is both: a channel for messages, and a reach into memory that the peer has
// registered.
//
// A channel is a connected pair of ends in two processes (or threads, or one): ordered messages, each with 32 bits of
// immediate data, under flow control. What carries it is a transport's business: shared memory, or flows between hosts.
// A message is sent as one fragment, or as several when it is longer than largest_fragment(); the receiver looks at
// each fragment in place and consumes it. Nothing blocks unless its name says so.
//
//   via::Fragment fragment;
//   while (channel.peek(fragment) == via::Got::fragment) { use(fragment); channel.consume(); }
//
// An end belongs to one thread at a time for sending and one for receiving. The peer is not trusted: whatever it writes
// into shared memory, the worst is that this channel becomes `broken`.
#pragma once

#include <sys/uio.h>
#include <viaduct/api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace viaduct::via {

enum class Sent {
  taken,   // the bytes are copied: the sender's memory is free. See delivered()
  full,    // no credit: try again when wait_to_send() or the ready queue says so
  closed,  // see close_reason()
};

enum class Got {
  fragment,
  nothing,
  end,  // nothing will come any more; see close_reason()
};

enum class CloseReason {
  open,
  peer_finished,  // the peer closed its sending half, or the whole, in good order: all it sent has been received
  peer_died,      // the peer's process is gone; what it sent before can still be received
  broken,         // the peer wrote something impossible
  closed_here,
  timed_out,  // the peer was silent for too long where it owed an answer: nobody knows whether it lives
  refused,    // the peer, or its host, did not want the connection
};

struct Fragment {
  std::uint32_t immediate = 0;       // of the message: the same in each of its fragments
  std::span<const std::byte> bytes;  // in place, valid until consume(); the peer may still change them
  bool last = true;                  // of its message
};

class ReadyQueue;
class ReadyEntrance;
class ReadySource;

// What only an end in shared memory has.
class [[gnu::visibility("default")]] SharedEnd {
 public:
  // For poll, select and epoll: arm_to_receive() and then sleep until the descriptor is readable. False: there is
  // something already. disarm() after waking, whatever the reason. The peer holds the other end of it, and nobody else.
  virtual int descriptor() const = 0;
  virtual bool arm_to_receive() = 0;
  virtual void disarm() = 0;

  // 64 bytes for each side in the memory of the channel, 0 to begin with: for whoever talks over it. Both can write
  // both. They last as long as what is in the rings.
  enum class Whose { ours, theirs };
  virtual std::byte* words(Whose whose) const = 0;

 protected:
  ~SharedEnd() = default;
};

class [[gnu::visibility("default")]] Channel {
 public:
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Sends one fragment of at most largest_fragment() bytes, gathered from the pieces; `more` says that the message goes
  // on.
  virtual Sent try_send(std::span<const iovec> pieces, std::uint32_t immediate, bool more = false) = 0;
  virtual std::size_t largest_fragment() const = 0;
  // How many fragments of up to `length` bytes can be sent now without being refused, at least.
  virtual std::size_t credits(std::size_t length = 0) = 0;
  // How many of the fragments that were taken have reached the peer's side, where nothing can happen to them any more
  // but the peer's end.
  virtual std::uint64_t delivered() const = 0;
  virtual std::uint64_t taken() const = 0;  // so many were, ever
  // An end of sleep, and a place in the ready queue, when so many have been delivered. At once where taken() is that.
  virtual void tell_when_delivered(std::uint64_t fragments) = 0;

  virtual Got peek(Fragment & fragment) = 0;
  virtual void consume() = 0;

  // Sends no more; the peer receives what is there and then `end`. Receiving goes on.
  virtual void finish_sending() = 0;
  virtual CloseReason close_reason() const = 0;

  // Sleep until peek() or try_send() has a new answer. timed_out after timeout_ms (-1: no limit); interrupted by a
  // signal.
  virtual std::error_code wait_to_receive(int timeout_ms) = 0;
  virtual std::error_code wait_to_send(std::size_t length, int timeout_ms) = 0;

  // Does what does not happen by itself: frames come in and go out, and what is due is done. Whoever polls calls it
  // where there was nothing; whoever sleeps, or looks into a ready queue, need not. True: something moved.
  virtual bool progress() = 0;

  // How often this side had to wake the peer, and was refused for want of credit.
  struct Statistics {
    std::uint64_t fragments_sent = 0;
    std::uint64_t fragments_received = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t wakes_sent = 0;
    std::uint64_t refused_full = 0;
  };
  virtual Statistics statistics() const = 0;

  // Null where the peer is on another host.
  virtual SharedEnd* shared() {
    return nullptr;
  }

  // For ready queues.
  virtual std::error_code enter(ReadyEntrance & entrance, std::uint64_t tag) = 0;
  virtual void leave(ReadyEntrance & entrance) = 0;

 protected:
  Channel() = default;
};

// Bytes of memory that the peer has registered.
struct RemoteBytes {
  std::uint32_t key = 0;  // as the peer has told it
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

// Access to the peer's registered memory. Its key, its bounds and the rights of this connection are checked before
// anything is touched. What is put is there before a message that is sent afterwards is received.
//
// By the channel's sending thread; it goes before the channel.
class [[gnu::visibility("default")]] Reach {
 public:
  virtual ~Reach() = default;
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

  enum class Began {
    done,       // the bytes have moved
    under_way,  // take_end() tells the end; the local bytes are in use until then
    full,       // too many are under way: again when one has ended, or the channel is reported as ready
    refused,    // no such memory, outside of it, or not permitted; nothing was touched
    no_way,     // the memory is there and cannot be reached from here: messages have to carry the bytes
    failed,     // it was permitted, and there is no memory (any more)
    gone,       // the peer is
  };
  virtual Began get(std::span<const iovec> into, const RemoteBytes& from, std::uint64_t cookie) = 0;
  virtual Began put(std::span<const iovec> from, const RemoteBytes& to, std::uint64_t cookie) = 0;

  // Of those that were under way. The channel is reported as ready when there is one.
  struct End {
    std::uint64_t cookie = 0;
    Began how = Began::done;  // done, refused, failed or gone
  };
  virtual bool take_end(End & end) = 0;
  // All that are under way are over: local bytes are not touched any more, and no end is told. What the peer's memory
  // has got of them is left open.
  virtual void give_up() = 0;

 protected:
  Reach() = default;
};

// Two ends in shared memory inside this process, for tests and threads; either end may be taken by a forked child.
struct ChannelOptions {
  std::size_t bulk_bytes = std::size_t{256}
                           << 10;  // for messages that do not fit a cache line, each way; a power of two
  std::uint32_t slots = 256;       // fragments under way, each way; a power of two
};
struct ChannelPair {
  std::unique_ptr<Channel> first;
  std::unique_ptr<Channel> second;
};
VIADUCT_API ChannelPair make_channel_pair(const ChannelOptions& options, std::error_code& fault);

// Over a connected UNIX stream socket that both sides hold (inherited, accepted): one side opens, the other joins.
VIADUCT_API std::unique_ptr<Channel> open_channel(int socket, const ChannelOptions& options, std::error_code& fault);
VIADUCT_API std::unique_ptr<Channel> join_channel(int socket, int timeout_ms, std::error_code& fault);

// Many channels, one place to look: an idle channel costs nothing per look, however many there are. One thread at a
// time.
class [[gnu::visibility("default")]] ReadyQueue {
 public:
  static std::unique_ptr<ReadyQueue> make(std::uint32_t most_channels, std::error_code & fault);
  virtual ~ReadyQueue() = default;

  // The channel's readiness to receive (data, end) is reported from now on, as `tag`. The channel must outlive its
  // place.
  virtual std::error_code add(Channel & channel, std::uint64_t tag) = 0;
  virtual void remove(Channel & channel) = 0;

  // A descriptor of another kind, such as a socket that others connect to: as long as it is readable, wait() ends and
  // reports `tag`; take() notices it now and then.
  virtual std::error_code watch(int descriptor, std::uint64_t tag) = 0;
  virtual void unwatch(int descriptor) = 0;

  // Another source of tags (via/channel/ready_source.hpp): looked at by each take(), and slept on.
  virtual std::error_code add(ReadySource & source) = 0;
  virtual void remove(ReadySource & source) = 0;

  // Tags of channels that may have something: peek() until it says `nothing`, else it is not reported again.
  virtual std::size_t take(std::span<std::uint64_t> tags) = 0;
  // The same, sleeping until there is one. 0 after timeout_ms or a signal.
  virtual std::size_t wait(std::span<std::uint64_t> tags, int timeout_ms) = 0;

  // For whoever sleeps elsewhere, in poll, select or epoll. prepare_to_sleep() false: take() has something. True: the
  // descriptor becomes readable as soon as there may be something, and after the sleep, whatever ended it, comes
  // woke(). The first sleep after news lasts a millisecond at most, and then all is looked at once more: a peer that
  // was sending at that very moment may not have seen that we lie down.
  virtual int descriptor() const = 0;
  virtual bool prepare_to_sleep() = 0;
  virtual void woke() = 0;
};

}  // namespace viaduct::via
