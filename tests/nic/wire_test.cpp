// The faults of the wire: each does what it says, from its seed.
#include <gmock/gmock.h>

#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

using testing::ElementsAre;

// The numbers that arrive when 0..count-1 are sent one after the other.
std::vector<std::uint32_t> carry(const WireFaults& faults, std::uint32_t count, std::uint32_t* changed = nullptr) {
  MockClock clock;
  auto [here, there] = make_wire({.faults = faults, .clock = &clock});
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < count; i += 8) {
    for (std::uint32_t j = i; j < i + 8; ++j) {
      const Bytes bytes = numbered_frame(j, 60);
      const Frame frame{bytes.data(), 60};
      EXPECT_EQ(here->transmit({&frame, 1}), 1u);
    }
    clock.advance_ns(1'000'000);
    Frame frames[32];
    const std::size_t got = there->receive(frames);
    for (const Frame& frame : std::span(frames, got)) {
      const Bytes bytes(frame.data, frame.data + frame.length);
      if (bytes == numbered_frame(number_of(bytes), 60))
        numbers.push_back(number_of(bytes));
      else if (changed != nullptr)
        ++*changed;
    }
    there->release(got);
  }
  return numbers;
}

TEST(Wire, LosesAsManyAsItIsTold) {
  const auto numbers = carry({.seed = 5, .loss = 0.25}, 4000);
  EXPECT_NEAR(static_cast<double>(numbers.size()), 3000, 150);
  EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
}

TEST(Wire, DuplicatesAsManyAsItIsTold) {
  EXPECT_NEAR(static_cast<double>(carry({.seed = 5, .duplication = 0.25}, 4000).size()), 5000, 150);
}

TEST(Wire, ReordersWithoutLosingAny) {
  auto numbers = carry({.seed = 5, .reordering = 0.2}, 4000);
  EXPECT_FALSE(std::is_sorted(numbers.begin(), numbers.end()));
  std::sort(numbers.begin(), numbers.end());
  ASSERT_EQ(numbers.size(), 4000u);
  for (std::uint32_t i = 0; i < 4000; ++i) ASSERT_EQ(numbers[i], i);
}

TEST(Wire, CorruptsAsManyAsItIsTold) {
  std::uint32_t changed = 0;
  const auto numbers = carry({.seed = 5, .corruption = 0.25}, 4000, &changed);
  EXPECT_NEAR(changed, 1000, 150);
  EXPECT_EQ(numbers.size() + changed, 4000u);
}

TEST(Wire, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const WireFaults faults{.seed = 9, .loss = 0.1, .duplication = 0.1, .reordering = 0.1, .corruption = 0.1};
  WireFaults other = faults;
  other.seed = 10;
  EXPECT_EQ(carry(faults, 1000), carry(faults, 1000));
  EXPECT_NE(carry(faults, 1000), carry(other, 1000));
}

TEST(Wire, DelaysByItsClock) {
  MockClock clock;
  auto [here, there] = make_wire({.faults = {.delay_ns = 5000}, .clock = &clock});
  const Bytes bytes = numbered_frame(1, 60);
  const Frame frame{bytes.data(), 60};
  ASSERT_EQ(here->transmit({&frame, 1}), 1u);
  Frame got;
  EXPECT_EQ(there->receive({&got, 1}), 0u);
  clock.advance_ns(4999);
  EXPECT_EQ(there->receive({&got, 1}), 0u);
  clock.advance_ns(1);
  EXPECT_EQ(there->receive({&got, 1}), 1u);
}

TEST(NullMac, SwallowsAndReceivesAsManyAsItWasGiven) {
  const auto mac = make_null_mac({.frame_length = 100, .frames_to_receive = 70});
  const Bytes bytes(64);
  const Frame frame{bytes.data(), 64};
  EXPECT_EQ(mac->transmit({&frame, 1}), 1u);
  Frame frames[64];
  EXPECT_EQ(mac->receive(frames), 64u);
  EXPECT_EQ(frames[0].length, 100u);
  EXPECT_EQ(mac->receive(frames), 6u);
  EXPECT_EQ(mac->receive(frames), 0u);
  EXPECT_EQ(mac->counters().sent, 1u);
  EXPECT_EQ(mac->counters().received, 70u);
}

}  // namespace
}  // namespace viaduct::nic
