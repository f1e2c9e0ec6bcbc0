// How two VIs meet, over an abstract UNIX socket whose name is made of the address (docs/formats/vipl.md). No daemon,
// nothing left behind.
//
//   joiner   Hello, with the descriptor of its adapter's table
//   opener   Hello likewise, Answer; if that says yes, the channel's segment follows
//   joiner   Answer: it has joined
//
// The opener is the server, or between equals whoever listens. Every message has a fixed size; the peer may send
// anything or nothing, and is given up when the caller's time is over.
#pragma once

#include <poll.h>
#include <viaduct/vipl.h>
#include <viaduct/via.hpp>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/meeting.hpp"
#include "base/socket_message.hpp"

namespace viaduct::vipl {

class Nic;
class Vi;

struct WireAddress {
  std::uint16_t host_length;
  std::uint16_t discriminator_length;
  std::uint8_t bytes[80];  // the host's, then the discriminator's
};
static_assert(sizeof(WireAddress) == 84);

struct Hello {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slot;  // of the VI's words in its adapter's table
  std::uint64_t max_transfer;
  std::uint64_t tag;
  std::uint64_t token;
  std::uint64_t token_address;
  std::uint16_t reliability;
  std::uint8_t enable_write;
  std::uint8_t enable_read;
  WireAddress local;
  WireAddress remote;
  std::uint32_t connection;  // its number in those words
};
static_assert(sizeof(Hello) == 224);

struct Answer {
  std::uint64_t magic;
  std::uint32_t verdict;  // VIP_RETURN
  std::uint32_t unused;
};
static_assert(sizeof(Answer) == 16);

// An address that a program gave: false where its lengths are impossible.
bool read_address(const VIP_NET_ADDRESS* from, WireAddress& to);
void write_address(const WireAddress& from, VIP_NET_ADDRESS* to);
int compare(const WireAddress& a, const WireAddress& b);

// Names to meet at (base/meeting.hpp).
constexpr int kBacklog = 4096;  // connections that nobody has accepted yet
std::string server_name(const WireAddress& address);
std::string peer_name(const WireAddress& a, const WireAddress& b);

class Handshake {
 public:
  enum class Step {
    pending,
    heard,  // opener: the other's Hello is here; accept() or refuse()
    done,
    refused,  // see verdict()
    gone,     // the other left, or made no sense
  };

  ~Handshake();
  static Result<std::unique_ptr<Handshake>> open(Fd socket);
  static Result<std::unique_ptr<Handshake>> join(Fd socket, const Hello& mine, int table_fd);

  // Goes on as far as it can without waiting.
  Step advance();
  // The same, waiting until the deadline or until `cancelled` says so, which is asked now and then.
  template <class Cancelled>
  Step run(Deadline deadline, Cancelled cancelled);

  bool accept(const Hello& mine, int table_fd, const via::ChannelOptions& options);
  void refuse(VIP_RETURN verdict);

  const Hello& theirs() const { return theirs_; }
  VIP_RETURN verdict() const { return verdict_; }
  pid_t peer() const { return peer_; }
  int descriptor() const { return channel_ ? channel_->shared()->descriptor() : socket_.get(); }
  std::unique_ptr<via::Channel> take_channel();
  Fd take_table() { return std::move(table_); }

  bool other_has_left() const;
  std::uint64_t began_ns = 0;  // for whoever keeps those that say nothing

 private:
  enum class Expecting { hello, decision, answer, channel, confirmation, nothing };

  Handshake(Fd socket, pid_t peer, bool opener);
  Step fail();
  template <class Make>
  bool make_channel(Make make);
  template <class Message>
  Step read(Message& message);
  Step take_hello();
  Step take_answer();
  Step take_channel_segment();
  Step take_confirmation();

  Fd socket_;
  pid_t peer_;
  bool opener_;
  Expecting expecting_ = Expecting::hello;
  MessageReader reader_;
  Hello theirs_{};
  Answer answer_{};
  Fd table_;
  std::unique_ptr<via::Channel> channel_;
  VIP_RETURN verdict_ = VIP_SUCCESS;
};

template <class Cancelled>
Handshake::Step Handshake::run(Deadline deadline, Cancelled cancelled) {
  constexpr std::uint64_t kSliceNs = 20'000'000;
  const Clock& clock = Clock::steady();
  for (;;) {
    const Step step = advance();
    if (step != Step::pending) return step;
    const std::uint64_t now = clock.now_ns();
    if (deadline.expired(now) || cancelled()) return Step::pending;
    const std::uint64_t slice = std::min(deadline.left_ns(now), kSliceNs);
    (void)meeting::wait_for(descriptor(), POLLIN, Deadline::at_ns(now + slice));
  }
}

}  // namespace viaduct::vipl
