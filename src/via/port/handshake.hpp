// Two sides on their way to a connection, whatever carries it: one asks, the other accepts or refuses, and each has a
// word of its program for the other. Nothing here waits by itself: whoever wants the connection calls advance().
//
// By one thread at a time.
#pragma once

#include <viaduct/via.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "via/port/memory_table.hpp"

namespace viaduct::via {

class ShmReach;
class NetReach;

constexpr std::size_t kLongestWords = 1536;  // bytes of the program's, of either side

// What one side's program gives a connection.
struct Terms {
  std::uint32_t slot = 0;    // of the connection's words in the port's table
  std::uint32_t number = 0;  // in those words
  std::uint64_t tag = 0;     // what memory of this side the peer may reach
  std::uint64_t rights = 0;  // at most: kRdmaWrite, kRdmaRead
  ChannelOptions options{};  // on one host the accepting side's count
};

struct Connection {
  std::unique_ptr<Channel> channel;
  std::unique_ptr<Reach> reach;  // goes before the channel
  ShmReach* shared = nullptr;    // the reach, if both sides are on this host
  NetReach* far = nullptr;       // the reach, if they are not
};

class Handshake {
 public:
  enum class Step {
    pending,
    heard,      // somebody asks, with words(): accept() or refuse()
    done,       // take(); words() is the answer to whoever asked
    refused,    // by the program there; words() is its answer
    nobody,     // offers that name
    timed_out,  // somebody is there and has not answered
    failed,     // fault() says why
  };
  virtual ~Handshake() = default;
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  // Goes on as far as it can without waiting.
  virtual Step advance() = 0;
  // Sleeps until advance() may have more to do; may be early.
  virtual void wait(std::uint64_t most_ns) = 0;

  virtual std::span<const std::byte> words() const = 0;
  virtual std::string peer() const = 0;  // for people
  virtual bool found_nobody_yet() const = 0;
  virtual Error fault() const = 0;

  // False: the other side has gone.
  virtual bool accept(const Terms& mine, std::span<const std::byte> words) = 0;
  virtual void refuse(std::span<const std::byte> words) = 0;

  // Once done. No channel: something is missing here, and fault() says what.
  virtual Connection take() = 0;

  // advance() until there is an end, the deadline is over, or `cancelled` says so, which is asked now and then.
  template <class Cancelled>
  Step run(Deadline deadline, Cancelled cancelled) {
    constexpr std::uint64_t kSliceNs = 20'000'000;
    const Clock& clock = Clock::steady();
    for (;;) {
      const Step step = advance();
      if (step != Step::pending) return step;
      const std::uint64_t now = clock.now_ns();
      if (deadline.expired(now) || cancelled()) return Step::pending;
      wait(std::min(deadline.left_ns(now), kSliceNs));
    }
  }

 protected:
  Handshake() = default;
};

}  // namespace viaduct::via
