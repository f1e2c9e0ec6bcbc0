// A peer that knows the session and writes garbage: frames with right checksums whose chunks are changed, cut, repeated
// or made up. The worst is that the session breaks; it never leaves its bounds, holds no more than it should, and
// always comes to an end.
#include <gtest/gtest.h>

#include "net/simulated_program.hpp"

namespace viaduct::net {
namespace {

class Hostile {
 public:
  explicit Hostile(std::uint64_t seed) : random_(seed) {}

  std::vector<std::byte> next(std::uint64_t number) {
    std::vector<std::byte> frame(kHeaderSize);
    if (seen_.empty() || random_.chance(0.3)) {
      make_up(frame);
    } else {
      frame = seen_[random_.below(seen_.size())];
      change(frame);
    }
    FrameHeader header{};
    header.kind = 1;
    header.number = random_.chance(0.9) ? number : random_.below(number + 2000);
    header.span =
        static_cast<std::uint16_t>(random_.chance(0.8) ? std::min<std::uint64_t>(number, 50) : random_.below(1024));
    seal_frame(frame, header);
    return frame;
  }
  void saw(std::vector<std::byte> frame) {
    if (seen_.size() < 64) seen_.push_back(std::move(frame));
  }

 private:
  template <class T>
  void add(std::vector<std::byte>& frame, T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    frame.insert(frame.end(), bytes.begin(), bytes.end());
  }
  std::uint64_t number() {
    switch (random_.below(5)) {
      case 0:
        return random_.below(8);
      case 1:
        return random_.below(70000);
      case 2:
        return UINT64_MAX - random_.below(4);
      case 3:
        return std::uint64_t{1} << random_.below(64);
      default:
        return random_();
    }
  }
  // Chunks that are whole, with fields that may be anything.
  void make_up(std::vector<std::byte>& frame) {
    for (std::uint64_t chunks = 1 + random_.below(5); chunks > 0; --chunks) {
      const auto kind = static_cast<std::uint8_t>(random_.below(random_.chance(0.9) ? 9 : 256));
      add(frame, kind);
      const auto flow = static_cast<std::uint32_t>(random_.chance(0.7) ? random_.below(4) : number());
      const auto sequence = static_cast<std::uint32_t>(random_.chance(0.7) ? random_.below(64) : number());
      const auto size = static_cast<std::uint16_t>(random_.below(random_.chance(0.9) ? 60 : 3000));
      const auto what = static_cast<std::uint8_t>(random_.below(10));
      switch (static_cast<ChunkKind>(kind)) {
        case ChunkKind::ack:
          add(frame, static_cast<std::uint8_t>(random_.below(3)));
          add(frame, static_cast<std::uint32_t>(number()));
          add(frame, static_cast<std::uint32_t>(number()));
          add(frame, random_.chance(0.5) ? random_.below(100) : number());
          break;
        case ChunkKind::item:
        case ChunkKind::fragment:
          add(frame, what);
          add(frame, flow);
          add(frame, sequence);
          if (static_cast<ChunkKind>(kind) == ChunkKind::fragment) {
            add(frame, static_cast<std::uint32_t>(random_.chance(0.5) ? random_.below(3000) : number()));
            add(frame, static_cast<std::uint32_t>(random_.chance(0.5) ? random_.below(3000) : number()));
          }
          add(frame, size);
          for (std::uint16_t i = 0; i < size; i += 4) {
            add(frame, static_cast<std::uint32_t>(random_.chance(0.8) ? random_.below(9) : number()));
          }
          break;
        case ChunkKind::credit:
          add(frame, flow);
          add(frame, sequence);
          break;
        case ChunkKind::ask:
        case ChunkKind::data:
        case ChunkKind::result:
          add(frame, static_cast<std::uint32_t>(random_.below(6) | (random_.chance(0.5) ? kTransferOfAcceptor : 0)));
          if (static_cast<ChunkKind>(kind) == ChunkKind::result) {
            add(frame, what);
            break;
          }
          add(frame, random_.chance(0.7) ? random_.below(70000) : number());
          if (static_cast<ChunkKind>(kind) == ChunkKind::ask) {
            add(frame, static_cast<std::uint32_t>(random_.chance(0.7) ? size : number()));
            break;
          }
          add(frame, static_cast<std::uint16_t>(size));
          frame.resize(frame.size() + size);
          break;
        default:
          break;
      }
    }
    if (frame.size() > 9000) frame.resize(9000);
  }
  void change(std::vector<std::byte>& frame) {
    for (std::uint64_t changes = random_.below(6); changes > 0; --changes) {
      if (frame.size() <= kHeaderSize) return;
      const std::size_t at = kHeaderSize + random_.below(frame.size() - kHeaderSize);
      switch (random_.below(4)) {
        case 0:
          frame[at] = static_cast<std::byte>(random_.below(256));
          break;
        case 1:
          frame[at] ^= static_cast<std::byte>(1 << random_.below(8));
          break;
        case 2:
          frame.resize(at);
          break;
        case 3:
          frame[at] = random_.chance(0.5) ? std::byte{0} : std::byte{0xff};
          break;
      }
    }
  }

  Random random_;
  std::vector<std::vector<std::byte>> seen_;
};

// Numbers begin at 1: nothing below it can have come.
TEST(Hostile, AnAckBelowTheFirstNumberBreaksTheSession) {
  SessionOptions options;
  SimulatedProgram honest(options, {.seed = 1, .flows = 1, .messages = 1}, 1000);
  std::vector<std::byte> frame(kHeaderSize);
  const auto ack = GrowingBytes()
                       .add(ChunkKind::ack)
                       .add(std::uint8_t{0})
                       .add(std::uint32_t{0})
                       .add(std::uint32_t{0})
                       .add(std::uint64_t{0})
                       .take();
  frame.insert(frame.end(), ack.begin(), ack.end());
  FrameHeader header{};
  header.kind = static_cast<std::uint8_t>(FrameKind::session);
  seal_frame(frame, header);
  honest.session().receive(*open_frame(frame), 2000);
  EXPECT_EQ(honest.session().over(), Over::broken);
}

// A peer that never acknowledges: its puts must be answered and its credit tempts, but nothing grows without bound.
TEST(Hostile, APeerThatNeverAcknowledgesHoldsLittle) {
  for (const bool with_puts : {true, false}) {
    SessionOptions options;
    options.connecting = false;
    SimulatedProgram owner(options, {.seed = 1, .flows = 0, .messages = 0}, 1000);
    Session& session = owner.session();
    std::uint64_t number = 0, now = 2000;
    const auto give = [&](std::vector<std::byte> chunks) {
      std::vector<std::byte> frame(kHeaderSize);
      frame.insert(frame.end(), chunks.begin(), chunks.end());
      FrameHeader header{};
      header.kind = static_cast<std::uint8_t>(FrameKind::session);
      header.number = ++number;
      seal_frame(frame, header);
      session.receive(*open_frame(frame), now += 1000);
    };
    const auto item = [](What what, std::uint32_t flow, std::uint32_t sequence, std::vector<std::byte> bytes) {
      return GrowingBytes()
          .add(ChunkKind::item)
          .add(what)
          .add(flow)
          .add(sequence)
          .add(static_cast<std::uint16_t>(bytes.size()))
          .add_all(bytes)
          .take();
    };
    const std::uint32_t slots = 4096;
    give(item(What::open, 0, 0, GrowingBytes().add(std::uint32_t{1}).add(slots).add(slots).take()));
    Event event;
    ASSERT_TRUE(session.take_event(event));
    ASSERT_TRUE(session.accept(event.flow, {}, {}));
    std::vector<std::byte> room(9000), message(4000);
    std::uint32_t sent = 0;
    for (std::uint32_t i = 0; i < 100'000 && session.over() == Over::no; ++i) {
      if (with_puts) {
        give(item(What::put, 1, i, GrowingBytes().add(i + 1).add(std::uint64_t{99}).add(std::uint64_t{0}).take()));
      } else {
        const iovec piece{message.data(), message.size()};
        while (session.try_send(1, {&piece, 1}) == Sent::yes && sent < 200'000) ++sent;
        give(GrowingBytes().add(ChunkKind::credit).add(std::uint32_t{1}).add(sent + slots).take());
      }
      while (session.next_frame(room, now) > 0) continue;
      ASSERT_LT(session.memory_in_use(), std::size_t{64} << 20) << i;
    }
    EXPECT_EQ(session.over(), Over::broken);
  }
}

TEST(Hostile, GarbageBreaksTheSessionAndNothingElse) {
  int broke = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed * 31);
    SessionOptions first_options, second_options;
    second_options.connecting = false;
    SimulatedProgram::Plan plan{.seed = seed, .flows = 2, .messages = 40};
    std::uint64_t now = 1000;
    SimulatedProgram honest(second_options, plan, now);
    SimulatedProgram peer(first_options, plan, now);
    honest.meet(peer);
    peer.meet(honest);
    Hostile hostile(seed);
    std::array<std::byte, 9216> room;
    const auto pass = [&](SimulatedProgram& from, SimulatedProgram& to) {
      while (const std::size_t size = from.session().next_frame(room, now)) {
        const auto frame = std::span(room).first(size);
        if (&from == &peer) hostile.saw({frame.begin(), frame.end()});
        to.session().receive(*open_frame(frame), now);
      }
    };
    // A while of honest talk, so that there is something to spoil.
    for (std::uint64_t round = random.below(20); round > 0; --round) {
      now += 10'000;
      for (auto* program : {&peer, &honest}) program->run(now);
      peer.session().about_to_sleep();
      honest.session().about_to_sleep();
      pass(peer, honest);
      pass(honest, peer);
    }
    std::uint64_t number = peer.session().counters().frames_sent + 1;
    for (int round = 0; round < 300 && !honest.over(); ++round) {
      const auto frame = hostile.next(number++);
      if (const auto opened = open_frame(frame)) honest.session().receive(*opened, now);
      now += random.below(100'000);
      honest.session().tick(now);
      Event event;
      // The program believes nothing either: it takes what comes and asks for nothing.
      while (honest.session().take_event(event)) {
        std::span<const std::byte> message;
        if (event.kind == Event::Kind::asked) honest.session().accept(event.flow, {}, {});
        while (honest.session().peek(event.flow, message)) honest.session().consume(event.flow);
      }
      for (int frames = 0; frames < 2000 && honest.session().next_frame(room, now) > 0; ++frames)
        ASSERT_LT(frames, 1999);
      ASSERT_LT(honest.session().memory_in_use(), std::size_t{24} << 20);
      if (honest.session().over() != Over::no) break;
    }
    broke += honest.session().over() == Over::broken ? 1 : 0;
    // Its end is an end: the program learns it, and nothing can be sent any more.
    if (honest.session().over() != Over::no) {
      EXPECT_EQ(honest.session().next_deadline(), UINT64_MAX);
      EXPECT_EQ(honest.session().open({}, {}), 0U);
    }
  }
  EXPECT_GT(broke, 100);
}

}  // namespace
}  // namespace viaduct::net
