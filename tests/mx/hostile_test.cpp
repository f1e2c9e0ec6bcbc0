// A partner that says what it likes: it is refused or cut off, and everybody else goes on.
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "mx/core.hpp"
#include "mx/endpoint_pair.hpp"
#include "mx/places.hpp"
#include "mx/wire.hpp"
#include "via/port/port.hpp"

namespace viaduct::mx::testing {
namespace {

using Step = via::Handshake::Step;

class Hostile : public Pair {
 protected:
  void SetUp() override {
    Pair::SetUp();
    auto port = via::Port::open(meeting::Peers::own_user, true);
    ASSERT_TRUE(port);
    port_ = std::move(*port);
  }
  Hello good_hello() const { return {kHelloMagic, kHelloVersion, kLoopback, 60'000, 77, 0, 0}; }
  Step ask(std::span<const std::byte> words) {
    auto joining =
        port_->join(place_of(family_of_this_test(), a->name()),
                    {slot_++, 1, 1, via::kRdmaRead, {.bulk_bytes = 65536, .slots = 64}}, words, Deadline::never());
    EXPECT_TRUE(joining);
    handshake_ = std::move(*joining);
    Step step = Step::pending;
    EXPECT_TRUE(until([&] { return (step = handshake_->advance()) != Step::pending; }));
    return step;
  }
  Step ask(const Hello& hello) { return ask(std::as_bytes(std::span(&hello, 1))); }
  std::uint32_t refusal() {
    Hello answer{};
    if (handshake_->words().size() == sizeof answer) std::memcpy(&answer, handshake_->words().data(), sizeof answer);
    return answer.refused;
  }
  void join() {
    connection_ = {};
    ASSERT_EQ(ask(good_hello()), Step::done);
    connection_ = handshake_->take();
    ASSERT_NE(connection_.channel, nullptr);
  }
  void say(std::uint32_t immediate, std::span<const std::byte> bytes, bool more = false) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    (void)connection_.channel->try_send({&piece, 1}, immediate, more);
  }
  template <class Header>
  void say_header(Word word, const Header& header) {
    say(Immediate{word, 0, 0}.pack(), std::as_bytes(std::span(&header, 1)));
  }
  bool is_cut_off() {
    via::Fragment fragment;
    return until(
        [&] {
          for (;;) switch (connection_.channel->peek(fragment)) {
              case via::Got::fragment:
                connection_.channel->consume();
                continue;
              case via::Got::nothing:
                return false;
              case via::Got::end:
                return true;
            }
        },
        5);
  }
  void others_go_on() {
    Buffer out(50'000, 3), in(50'000);
    Request* const sending = Pair::send(*b, to_a, out, 9);
    EXPECT_EQ(complete(*a, receive(*a, in, 9)).status, Status::success);
    EXPECT_EQ(complete(*b, sending).status, Status::success);
  }

  std::shared_ptr<via::Port> port_;
  std::unique_ptr<via::Handshake> handshake_;
  via::Connection connection_;
  std::uint32_t slot_ = 0;
};

TEST_F(Hostile, WhoMakesNoSenseIsRefused) {
  Hello hello = good_hello();
  const auto bytes = std::as_bytes(std::span(&hello, 1));
  EXPECT_EQ(ask(bytes.first(31)), Step::refused);
  EXPECT_EQ(ask(std::span<const std::byte>()), Step::refused);
  hello.magic = 1;
  EXPECT_EQ(ask(hello), Step::refused);
  hello = good_hello();
  hello.version = 2;
  EXPECT_EQ(ask(hello), Step::refused);
  EXPECT_EQ(refusal(), static_cast<std::uint32_t>(Status::rejected));
  hello = good_hello();
  hello.key = 1;
  EXPECT_EQ(ask(hello), Step::refused);
  EXPECT_EQ(refusal(), static_cast<std::uint32_t>(Status::bad_key));
  hello = good_hello();
  hello.session = 0;
  EXPECT_EQ(ask(hello), Step::refused);
  hello = good_hello();
  hello.nic = 5;
  EXPECT_EQ(ask(hello), Step::refused);
  hello = good_hello();
  hello.endpoint = 70'000;
  EXPECT_EQ(ask(hello), Step::refused);
  hello = good_hello();
  hello.nic = a->name().nic;  // it says that it is the one it asks
  hello.endpoint = a->name().endpoint;
  EXPECT_EQ(ask(hello), Step::refused);
  EXPECT_EQ(ask(good_hello()), Step::done);
  others_go_on();
}

TEST_F(Hostile, WhoeverSaysTheImpossibleIsCutOff) {
  std::byte bytes[600]{};
  const auto some = [&](std::size_t length) { return std::span<const std::byte>(bytes, length); };
  const auto word = [](Word which, std::uint8_t flags = 0) { return Immediate{which, flags, 0}.pack(); };
  const std::uint64_t too_long = kEagerMost + 1;
  struct Case {
    const char* what;
    std::uint32_t immediate;
    std::size_t length;
    bool more;
  };
  for (const Case& one : {
           Case{"no match", word(Word::message), 7, false},
           Case{"unknown flags", word(Word::message, 0x80), 100, false},
           Case{"several fragments without a length", word(Word::message), 100, true},
           Case{"a length in one fragment", word(Word::message, kHasLength), 100, false},
           Case{"fragments of nothing", word(Word::message, kHasLength), 16, true},
           Case{"no data", word(Word::message, kHasData), 12, false},
           Case{"an unknown word", 99, 100, false},
           Case{"no word", 0, 0, false},
           Case{"half an announcement", word(Word::announce), 20, false},
           Case{"an announcement with more behind it", word(Word::announce), 30, false},
           Case{"half a wish", word(Word::want), 15, false},
           Case{"a wish with more behind it", word(Word::want), 17, false},
           Case{"half of what was done", word(Word::done), 7, false},
           Case{"data of nothing", word(Word::data), 15, false},
           Case{"an announcement in fragments", word(Word::announce), 24, true},
           Case{"half a control message", word(Word::control), 3, false},
       }) {
    join();
    say(one.immediate, some(one.length), one.more);
    EXPECT_TRUE(is_cut_off()) << one.what;
  }
  join();
  std::memcpy(bytes + 8, &too_long, sizeof too_long);
  say(word(Word::message, kHasLength), some(100), true);
  EXPECT_TRUE(is_cut_off()) << "longer than such messages are";
  const std::uint64_t length = 200;
  std::memcpy(bytes + 8, &length, sizeof length);
  join();
  say(word(Word::message, kHasLength), some(116), true);  // 100 of 200
  say(word(Word::message, kHasLength), some(200), true);
  EXPECT_TRUE(is_cut_off()) << "more than it said";
  join();
  say(word(Word::message, kHasLength), some(116), true);
  say(word(Word::message, kHasLength), some(50), false);
  EXPECT_TRUE(is_cut_off()) << "less than it said";
  others_go_on();
}

// Numbers of requests that are somebody else's, or nobody's; places that are not there.
TEST_F(Hostile, WhatIsNotItsOwnItDoesNotReach) {
  Buffer out(100'000, 1), in(100'000), stolen(100'000, 77);
  Request* const sending = Pair::send(*a, to_b, out, 5);
  ASSERT_TRUE(until([&] { return b->view().unexpected == 1; }));
  join();
  for (std::uint32_t number = 0; number < 64; ++number) {
    say_header(Word::done, DoneHeader{number, 0});
    say_header(Word::matched, DoneHeader{number, 0});
    say_header(Word::want, WantHeader{number, 1, 10});
    struct {
      DataHeader header;
      std::uint64_t bytes;
    } data{{number, 0, 0}, 1};
    say_header(Word::data, data);
    for (int i = 0; i < 20; ++i) a->progress();
  }
  EXPECT_FALSE(a->is_done(sending));

  // Announced memory that was never registered: the receive ends, and nothing is touched.
  struct {
    std::uint64_t match;
    AnnounceHeader header;
    PlaceOfBytes place;
  } announcement{6, {100'000, 1, 1}, {reinterpret_cast<std::uint64_t>(stolen.bytes.data()), 100'000, 0x10005, 0}};
  say_header(Word::announce, announcement);
  EXPECT_EQ(complete(*a, receive(*a, in, 6)).status, Status::aborted);
  EXPECT_FALSE(in.holds(77, 100'000));

  announcement.place.length = 99'999;  // they do not add up
  say_header(Word::announce, announcement);
  EXPECT_TRUE(is_cut_off());
  EXPECT_EQ(complete(*b, receive(*b, in, 5)).status, Status::success);
  EXPECT_EQ(complete(*a, sending).status, Status::success);
  others_go_on();
}

TEST_F(Hostile, RandomWordsDoNoHarm) {
  Random random(::getpid());
  for (int round = 0; round < 60; ++round) {
    join();
    Buffer in(1000);
    Request* const receiving = receive(*a, in, 0, 0);
    for (int i = 0; i < 50; ++i) {
      std::vector<std::byte> bytes(random.below(200));
      for (std::byte& one : bytes) one = static_cast<std::byte>(random.below(4) == 0 ? random.below(256) : 0);
      const Immediate immediate{static_cast<Word>(1 + random.below(8)), static_cast<std::uint8_t>(random.below(8)), 0};
      say(immediate.pack(), bytes, random.below(8) == 0);
      if (random.below(4) == 0) a->progress();
    }
    for (int i = 0; i < 50; ++i) a->progress();
    (void)a->cancel(receiving);
    a->forget(receiving);
  }
  connection_ = {};
  a = nullptr;  // with whatever it has left behind
}

}  // namespace
}  // namespace viaduct::mx::testing
