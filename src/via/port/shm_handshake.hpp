// How two processes of one host make a connection, over a UNIX socket on which they meet (base/meeting.hpp;
// docs/formats/port.md). Nothing is left behind.
//
//   joiner   Greeting, with the descriptor of its port's table; then what its program says
//   opener   Answer, then what its program says; if that is yes: Greeting likewise, and the channel's segment
//   joiner   Answer: it has joined
//
// The opener is whoever listens. A joiner looks for it until the deadline: it may not be there yet. Each message has a
// known size; the peer may send anything or nothing.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/meeting.hpp"
#include "base/socket_message.hpp"
#include "copy/peer_memory.hpp"
#include "via/port/handshake.hpp"
#include "via/port/local_port.hpp"

namespace viaduct::via {

constexpr std::uint64_t kGreetingMagic = 0x6f6c6c6548616956;  // "ViaHello", little endian
constexpr std::uint32_t kGreetingVersion = 2;

struct Greeting {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t length;  // of what the program says, which follows
  std::uint32_t slot;
  std::uint32_t connection;
  std::uint64_t tag;
  std::uint64_t token;
  std::uint64_t token_address;
};
static_assert(sizeof(Greeting) == 48);

struct Answer {
  std::uint64_t magic;
  std::uint32_t yes;     // or no
  std::uint32_t length;  // of what the program says, which follows
};
static_assert(sizeof(Answer) == 16);

class ShmHandshake final : public Handshake {
 public:
  // EACCES: the other belongs to another user.
  static Result<std::unique_ptr<ShmHandshake>> open(std::shared_ptr<LocalPort> port, Fd socket);
  static std::unique_ptr<ShmHandshake> join(std::shared_ptr<LocalPort> port, std::string name, const Terms& mine,
                                            std::span<const std::byte> words, Deadline deadline);
  ~ShmHandshake() override;

  Step advance() override;
  void wait(std::uint64_t most_ns) override;
  std::span<const std::byte> words() const override { return words_; }
  std::string peer() const override;
  bool found_nobody_yet() const override { return expecting_ == Expecting::server; }
  Error fault() const override { return fault_; }
  bool accept(const Terms& mine, std::span<const std::byte> words) override;
  void refuse(std::span<const std::byte> words) override;
  Connection take() override;

  int descriptor() const;  // -1: none yet
  bool other_has_left() const;
  std::uint64_t began_ns() const { return began_ns_; }

 private:
  enum class Expecting {
    server,
    greeting,
    words,
    decision,
    answer,
    answer_words,
    their_greeting,
    channel,
    confirmation,
    taking,
    nothing,
  };

  ShmHandshake(std::shared_ptr<LocalPort> port, bool opener);
  void meet_on(Fd socket, pid_t peer);
  void part();
  Step go_on();
  Step fail(Error why);
  Step read(std::span<std::byte> message);
  template <class Make>
  bool make_channel(Make make);
  Step find_server();
  Step look_again();
  Step take_greeting();
  Step take_words();
  Step take_answer();
  Step take_answer_words();
  Step take_channel_segment();
  Step take_confirmation();

  const std::shared_ptr<LocalPort> port_;
  const bool opener_;
  const std::uint64_t began_ns_;
  Expecting expecting_;
  Terms mine_;
  Fd socket_;
  pid_t peer_ = 0;
  MessageReader reader_;
  Greeting greeting_{};
  Answer answer_{};
  Introduction theirs_;
  std::vector<std::byte> words_;
  Fd table_;
  std::unique_ptr<Channel> channel_;
  Error fault_{0, ""};
  // Joining.
  std::string name_;
  std::vector<std::byte> request_;
  Deadline deadline_ = Deadline::never();
  bool found_ = false;  // somebody was there
  bool looking_again_ = false;
  std::uint64_t nap_ns_ = 0;
};

}  // namespace viaduct::via
