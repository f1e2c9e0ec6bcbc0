// Every interleaving of the wake-up protocol of base/wait_word.hpp, on a model of the machine; and proof that the model
// would notice if the protocol were wrong.
#include <gtest/gtest.h>

#include "base/interleaver.hpp"
#include "base/wait_word.hpp"

namespace viaduct {
namespace {

using testing::Interleaver;

constexpr Interleaver::Address kWord = 0;
constexpr Interleaver::Address kFirstIndex = 1;  // one per producer: how many messages it has published

enum class Fence { none, own, everybody };

// What the protocol runs on. Each thread body sets `machine` before it calls the protocol.
template <Fence kHeavy, Fence kLight>
struct Model {
  using Word = const Interleaver::Address;
  static inline Interleaver* machine = nullptr;

  static std::uint32_t fetch_or(Word& word, std::uint32_t bits) { return machine->fetch_or(word, bits); }
  static std::uint32_t load(Word& word) { return machine->load(word); }
  static bool compare_exchange(Word& word, std::uint32_t from, std::uint32_t to) {
    return machine->compare_exchange(word, from, to);
  }
  static void heavy_fence() { fence(kHeavy); }
  static void light_fence(Word&) { fence(kLight); }

  static void fence(Fence kind) {
    if (kind == Fence::own) machine->fence();
    if (kind == Fence::everybody) machine->fence_all();
  }
};

using Asymmetric = Model<Fence::everybody, Fence::none>;  // membarrier
using Symmetric = Model<Fence::own, Fence::own>;          // without it: each side pays

struct Cast {
  int producers = 1;
  int messages = 1;  // of each producer
  int sleepers = 1;
  bool looks_again = true;  // S3
};

template <class Platform>
Interleaver::Body producer(int number, const Cast& cast) {
  return [number, messages = cast.messages](Interleaver& machine) {
    Platform::machine = &machine;
    for (int i = 1; i <= messages; ++i) {
      machine.store(static_cast<Interleaver::Address>(kFirstIndex + number), static_cast<std::uint32_t>(i));  // W1
      if (WakeProtocol<Platform>::must_wake(kWord)) machine.wake_all(kWord);
    }
  };
}

// Takes messages as Waiter::wait() does, until it has seen all of every producer.
template <class Platform>
Interleaver::Body sleeper(const Cast& cast) {
  return [cast](Interleaver& machine) {
    Platform::machine = &machine;
    std::vector<std::uint32_t> seen(static_cast<std::size_t>(cast.producers));
    int total = 0;
    const auto ready = [&] {
      for (std::size_t i = 0; i < seen.size(); ++i) {
        if (seen[i] == static_cast<std::uint32_t>(cast.messages)) continue;
        const std::uint32_t now = machine.load(static_cast<Interleaver::Address>(kFirstIndex + i));
        if (now == seen[i]) continue;
        total += static_cast<int>(now - seen[i]);
        seen[i] = now;
        return true;
      }
      return false;
    };
    while (total < cast.producers * cast.messages) {
      if (ready()) continue;
      for (;;) {
        const std::uint32_t armed = WakeProtocol<Platform>::arm(kWord);
        if (cast.looks_again && ready()) break;
        machine.sleep(kWord, armed);
        if (ready()) break;
      }
    }
  };
}

template <class Platform>
Interleaver::Outcome explore(const Cast& cast) {
  std::vector<Interleaver::Body> bodies;
  for (int i = 0; i < cast.producers; ++i) bodies.push_back(producer<Platform>(i, cast));
  for (int i = 0; i < cast.sleepers; ++i) bodies.push_back(sleeper<Platform>(cast));
  const auto outcome = Interleaver(std::move(bodies)).explore();
  ::testing::Test::RecordProperty("states", std::to_string(outcome.states));
  ::testing::Test::RecordProperty("schedules", std::to_string(outcome.schedules));
  return outcome;
}

class WakeProtocolWith : public ::testing::TestWithParam<Cast> {};

template <class Platform>
void expect_no_lost_wake_up(const Cast& cast) {
  const auto outcome = explore<Platform>(cast);
  EXPECT_EQ(outcome.stuck_schedule, "");
  EXPECT_GT(outcome.sleeps, 0u) << "nobody ever slept: nothing was tested";
  EXPECT_GT(outcome.schedules, 100);
}

TEST_P(WakeProtocolWith, MembarrierLosesNoWakeUp) {
  expect_no_lost_wake_up<Asymmetric>(GetParam());
}

TEST_P(WakeProtocolWith, FencesOnBothSidesLoseNoWakeUp) {
  expect_no_lost_wake_up<Symmetric>(GetParam());
}

// Wrong protocols: each must be found out by the same search.
TEST_P(WakeProtocolWith, NoHeavyFenceIsFoundOut) {
  EXPECT_NE((explore<Model<Fence::none, Fence::none>>(GetParam()).stuck_schedule), "");
}

TEST_P(WakeProtocolWith, AHeavyFenceForOneselfOnlyIsFoundOut) {
  EXPECT_NE((explore<Model<Fence::own, Fence::none>>(GetParam()).stuck_schedule), "");
}

TEST_P(WakeProtocolWith, NotLookingAgainIsFoundOut) {
  Cast cast = GetParam();
  cast.looks_again = false;
  EXPECT_NE(explore<Asymmetric>(cast).stuck_schedule, "");
}

// Arming by a plain store, and a fence that flushes it: the producer's own store may still be on its way.
struct PlainStoreArming : Model<Fence::own, Fence::none> {
  static std::uint32_t fetch_or(Word& word, std::uint32_t bits) {
    const std::uint32_t before = machine->load(word);
    machine->store(word, before | bits);
    return before;
  }
};

TEST_P(WakeProtocolWith, ArmingByAPlainStoreIsFoundOut) {
  EXPECT_NE(explore<PlainStoreArming>(GetParam()).stuck_schedule, "");
}

// A waker that does not move the count on: a sleeper between S3 and S4 falls asleep after the wake.
struct CountStandsStill : Asymmetric {
  static bool compare_exchange(Word&, std::uint32_t, std::uint32_t) { return true; }
};

TEST_P(WakeProtocolWith, ACountThatStandsStillIsFoundOut) {
  EXPECT_NE(explore<CountStandsStill>(GetParam()).stuck_schedule, "");
}

INSTANTIATE_TEST_SUITE_P(All, WakeProtocolWith,
                         ::testing::Values(Cast{.messages = 1}, Cast{.messages = 2}, Cast{.producers = 2},
                                           Cast{.sleepers = 2}),
                         [](const auto& test) {
                           return std::to_string(test.param.producers) + "ProducersOf" +
                                  std::to_string(test.param.messages) + "For" + std::to_string(test.param.sleepers) +
                                  "Sleepers";
                         });

}  // namespace
}  // namespace viaduct
