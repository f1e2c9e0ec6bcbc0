// Every interleaving of net/sleepers.hpp on a model of the machine; and proof that the model would notice mistakes.
#include <gtest/gtest.h>

#include "base/interleaver.hpp"
#include "net/sleepers.hpp"

namespace viaduct::net {
namespace {

using viaduct::testing::Interleaver;

enum Where : Interleaver::Address { kLock, kNews, kSleepers, kRung, kBell, kDelivered, kTaken };

enum class Mistake { none, looks_before_it_counts, does_not_compare, rings_without_sleepers_lock, silences_early };

struct Model {
  Interleaver& machine;
  Mistake mistake;

  std::uint64_t news() const { return machine.load(kNews); }
  void set_news(std::uint64_t value) { machine.store(kNews, static_cast<std::uint32_t>(value)); }
  std::uint32_t sleepers() const { return machine.load(kSleepers); }
  void set_sleepers(std::uint32_t value) { machine.store(kSleepers, value); }
  bool rung() const { return machine.load(kRung) != 0; }
  void set_rung(bool value) { machine.store(kRung, value ? 1 : 0); }
  void ring() { machine.post(kBell); }
  void silence() { machine.exchange(kBell, 0); }
};

// Delivers `count` things, as progress() of some thread does.
Interleaver::Body deliverer(std::uint32_t count, Mistake mistake) {
  return [=](Interleaver& machine) {
    Model model{machine, mistake};
    for (std::uint32_t i = 0; i < count; ++i) {
      machine.lock(kLock);
      machine.fetch_add(kDelivered, 1);
      SleepProtocol<Model>::make_news(model);
      machine.unlock(kLock);
    }
  };
}

// Takes things until all were taken by somebody: `wanted` in all.
Interleaver::Body taker(std::uint32_t wanted, Mistake mistake) {
  return [=](Interleaver& machine) {
    Model model{machine, mistake};
    for (;;) {
      std::uint32_t seen = mistake == Mistake::looks_before_it_counts ? 0 : machine.load(kNews);
      machine.lock(kLock);
      const std::uint32_t delivered = machine.load(kDelivered);
      const bool takes = machine.load(kTaken) < delivered;
      if (takes) machine.fetch_add(kTaken, 1);
      const bool done = machine.load(kTaken) == wanted;
      machine.unlock(kLock);
      if (done) return;
      if (takes) machine.go_on_from(0);
      if (mistake == Mistake::looks_before_it_counts) seen = machine.load(kNews);
      machine.lock(kLock);
      if (mistake == Mistake::does_not_compare) seen = machine.load(kNews);
      const bool sleeps = SleepProtocol<Model>::prepare(model, seen);
      machine.unlock(kLock);
      if (!sleeps) machine.go_on_from(0);
      machine.poll({kBell});
      machine.lock(kLock);
      if (mistake == Mistake::silences_early) machine.exchange(kBell, 0);
      SleepProtocol<Model>::woke(model);
      machine.unlock(kLock);
      machine.go_on_from(0);
    }
  };
}

Interleaver::Outcome explore(std::uint32_t deliverers, std::uint32_t each, std::uint32_t takers, Mistake mistake) {
  // The last one to take does not wake the others: each taker has something to itself at the end of these casts.
  std::vector<Interleaver::Body> bodies;
  for (std::uint32_t i = 0; i < deliverers; ++i) bodies.push_back(deliverer(each, mistake));
  for (std::uint32_t i = 0; i < takers; ++i) bodies.push_back(taker(deliverers * each, mistake));
  return Interleaver(std::move(bodies)).explore();
}

TEST(SleepProtocol, LosesNoWakeUp) {
  const std::uint32_t casts[][3] = {{1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {1, 1, 2}};
  for (const auto& [deliverers, each, takers] : casts) {
    const auto outcome = explore(deliverers, each, takers, Mistake::none);
    EXPECT_EQ(outcome.stuck_schedule, "") << deliverers << ' ' << each << ' ' << takers;
    EXPECT_GT(outcome.sleeps, 0U);
  }
}

TEST(SleepProtocol, MistakesAreFoundOut) {
  EXPECT_NE(explore(1, 1, 1, Mistake::looks_before_it_counts).stuck_schedule, "");
  EXPECT_NE(explore(1, 1, 1, Mistake::does_not_compare).stuck_schedule, "");
  EXPECT_NE(explore(1, 1, 2, Mistake::silences_early).stuck_schedule, "");
}

}  // namespace
}  // namespace viaduct::net
