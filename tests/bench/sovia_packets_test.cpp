// Which packets SOVIA sends: acknowledgements and their piggybacking, combining and when it ends, who copies.
#include <gtest/gtest.h>

#include "bench/sovia_pair.hpp"

namespace viaduct::bench {
namespace {

using Data = SoviaOptions::Data;

constexpr std::size_t kLimit = 2048;
constexpr std::chrono::hours kNever{1};

SoviaOptions windowed(std::uint32_t window, std::uint32_t threshold) {
  return {.data = Data::hybrid, .window = window, .threshold = threshold, .copy_limit = kLimit};
}

SoviaOptions combining(std::chrono::milliseconds flush_after = kNever) {
  SoviaOptions options = windowed(32, 16);
  options.combine = true;
  options.flush_after = flush_after;
  return options;
}

// So many acknowledgements of its own does the receiver of 96 messages send.
void expect_acks_of_a_stream(const SoviaOptions& options, std::uint64_t acks) {
  constexpr int kMessages = 96;
  SoviaPair pair(options, [acks](SoviaEnd& end) {
    Reader reader(end, 1);
    CHILD_EXPECT(reader.read(kMessages * 10, 10));
    CHILD_EXPECT(end.counts().acks == acks);
    return 0;
  });
  Writer writer(pair.here(), 1);
  for (int i = 0; i < kMessages; ++i) writer.write(10);
  EXPECT_EQ(pair.finish(), 0) << "w=" << options.window << " t=" << options.threshold;
}

TEST(SoviaPackets, AStreamIsAcknowledgedOnceInThresholdMessages) {
  expect_acks_of_a_stream(windowed(1, 1), 96);
  expect_acks_of_a_stream(windowed(32, 1), 96);
  expect_acks_of_a_stream(windowed(32, 16), 6);
  expect_acks_of_a_stream(windowed(32, 32), 3);
}

TEST(SoviaPackets, AnswersCarryTheAcknowledgements) {
  constexpr int kMessages = 100;
  const auto play = [](SoviaEnd& end, int mine, int theirs, bool first) {
    Writer writer(end, mine);
    Reader reader(end, theirs);
    for (int i = 0; i < kMessages; ++i) {
      if (first) writer.write(4);
      if (!reader.read(4, 4)) return false;
      if (!first) writer.write(4);
    }
    return end.counts().acks == 0 && end.counts().data == kMessages;
  };
  SoviaPair pair(windowed(32, 16), [&](SoviaEnd& end) { return play(end, 2, 1, false) ? 0 : 1; });
  EXPECT_TRUE(play(pair.here(), 1, 2, true));
  EXPECT_EQ(pair.finish(), 0);
}

TEST(SoviaPackets, TheLimitDecidesWhatIsCopied) {
  SoviaPair pair(windowed(32, 16), [](SoviaEnd& end) {
    Reader reader(end, 1);
    CHILD_EXPECT(reader.read(2 * kLimit + 1, 32768));
    return 0;
  });
  Writer writer(pair.here(), 1);
  writer.write(kLimit);
  EXPECT_EQ(pair.here().counts().copied, 1u);
  EXPECT_EQ(pair.here().counts().registered, 0u);
  writer.write(kLimit + 1);
  EXPECT_EQ(pair.here().counts().copied, 1u);
  EXPECT_EQ(pair.here().counts().registered, 1u);
  EXPECT_EQ(pair.finish(), 0);
}

TEST(SoviaPackets, ThreeWayAsksForEveryPart) {
  const SoviaOptions options{.synchronisation = SoviaOptions::Synchronisation::three_way, .data = Data::hybrid};
  SoviaPair pair(options, [](SoviaEnd& end) {
    Reader reader(end, 1);
    CHILD_EXPECT(reader.read(100, 100));
    CHILD_EXPECT(reader.read(100, 40));  // by three receives
    CHILD_EXPECT(reader.read(40'000, 40'000));
    CHILD_EXPECT(end.counts().acks == 6);
    return 0;
  });
  Writer writer(pair.here(), 1);
  for (const std::size_t size : {100, 100, 40'000}) writer.write(size);
  EXPECT_EQ(pair.here().counts().requests, 6u);
  EXPECT_EQ(pair.here().counts().data, 6u);
  EXPECT_EQ(pair.finish(), 0);
}

// ---- when what was combined leaves

std::function<int(SoviaEnd&)> reads(std::size_t total) {
  return [total](SoviaEnd& end) {
    Reader reader(end, 1);
    CHILD_EXPECT(reader.read(total, 32768));
    return 0;
  };
}

TEST(SoviaCombining, SmallMessagesWaitUntilTheNextHasNoRoom) {
  SoviaPair pair(combining(), reads(33'000));
  Writer writer(pair.here(), 1);
  for (int i = 0; i < 32; ++i) writer.write(1000);
  EXPECT_EQ(pair.here().counts().data, 0u);
  writer.write(1000);
  EXPECT_EQ(pair.here().counts().data, 1u);
  EXPECT_EQ(pair.here().counts().combined, 33u);
  EXPECT_EQ(pair.finish(), 0);  // close() sends the rest
}

TEST(SoviaCombining, ALargeMessageTakesThemAlong) {
  SoviaPair pair(combining(), reads(10 + kLimit + 1));
  Writer writer(pair.here(), 1);
  writer.write(10);
  EXPECT_EQ(pair.here().counts().data, 0u);
  writer.write(kLimit + 1);
  EXPECT_EQ(pair.here().counts().data, 2u);
  EXPECT_EQ(pair.finish(), 0);
}

TEST(SoviaCombining, ReceivingSendsThem) {
  SoviaPair pair(combining(), [](SoviaEnd& end) {
    Reader reader(end, 1);
    Writer writer(end, 2);
    CHILD_EXPECT(reader.read(20, 20));
    writer.write(1);
    return 0;
  });
  Writer writer(pair.here(), 1);
  Reader reader(pair.here(), 2);
  writer.write(10);
  writer.write(10);
  EXPECT_TRUE(reader.read(1, 1));
  EXPECT_EQ(pair.here().counts().data, 1u);
  EXPECT_EQ(pair.finish(), 0);
}

// The sender calls nothing until the receiver has said, by a pipe, that it has the message.
TEST(SoviaCombining, TheTimerSendsThem) {
  FdPair pipe = *make_pipe();
  SoviaPair pair(combining(std::chrono::milliseconds(20)), [&](SoviaEnd& end) {
    Reader reader(end, 1);
    CHILD_EXPECT(reader.read(10, 10));
    CHILD_EXPECT(::write(pipe.second.get(), "!", 1) == 1);
    return 0;
  });
  Writer(pair.here(), 1).write(10);
  char told = 0;
  EXPECT_EQ(::read(pipe.first.get(), &told, 1), 1);
  EXPECT_EQ(pair.finish(), 0);
}

// The second message can leave only when the first is acknowledged, and nobody but the timer looks for that.
TEST(SoviaCombining, TheTimerWaitsForRoomInTheWindow) {
  FdPair begin = *make_pipe(), done = *make_pipe();
  SoviaOptions options = combining(std::chrono::milliseconds(20));
  options.window = options.threshold = 1;
  SoviaPair pair(options, [&](SoviaEnd& end) {
    char told = 0;
    CHILD_EXPECT(::read(begin.first.get(), &told, 1) == 1);
    Reader reader(end, 1);
    CHILD_EXPECT(reader.read(20, 20));
    CHILD_EXPECT(::write(done.second.get(), "!", 1) == 1);
    return 0;
  });
  Writer writer(pair.here(), 1);
  writer.write(10);
  while (pair.here().counts().data == 0) ::sched_yield();
  writer.write(10);
  ASSERT_EQ(::write(begin.second.get(), "!", 1), 1);
  char told = 0;
  EXPECT_EQ(::read(done.first.get(), &told, 1), 1);
  EXPECT_EQ(pair.here().counts().data, 2u);
  EXPECT_EQ(pair.finish(), 0);
}

}  // namespace
}  // namespace viaduct::bench
