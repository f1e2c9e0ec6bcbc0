// Two sessions over a faulty wire in virtual time, many seeds. Every message exactly once and in order, every byte as
// it was sent, or the session is over with a reason; bounded memory; always an end.
// VIADUCT_SIMULATION_SEEDS=FIRST..LAST runs others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "net/simulated_program.hpp"

namespace viaduct::net {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

struct Run {
  WireFaults faults;
  SimulatedProgram::Plan plan;
  std::array<SessionOptions, 2> options;
  std::size_t shrink_to = 0;  // the path's frames become smaller
  bool may_die = false;
};

Run run_of(std::uint64_t seed) {
  Random random(seed);
  Run run;
  run.plan = {.seed = seed,
              .flows = static_cast<std::uint32_t>(1 + random.below(4)),
              .messages = static_cast<std::uint32_t>(20 + random.below(150)),
              .transfers = random.chance(0.7)};
  WireFaults& faults = run.faults;
  if (random.chance(0.6)) faults.drop = 0.2 * std::pow(static_cast<double>(random.below(1000)) / 1000, 3);
  if (random.chance(0.4)) faults.duplicate = 0.1 * static_cast<double>(random.below(100)) / 100;
  if (random.chance(0.4)) faults.corrupt = 0.05 * static_cast<double>(random.below(100)) / 100;
  if (random.chance(0.2)) faults.mark = 0.1;
  faults.delay_ns = 1000 + random.below(random.chance(0.3) ? 20'000'000 : 50'000);
  if (random.chance(0.5)) {
    faults.delay_chance = static_cast<double>(random.below(100)) / 100;
    faults.jitter_ns = 1 + random.below(faults.delay_ns * 4);
  }
  const std::uint64_t start = 1'000'000;
  for (std::uint64_t i = random.below(3); i > 0 && random.chance(0.5); --i) {
    const std::uint64_t begin = start + random.below(kSecond / 10);
    faults.cuts.push_back({random.below(2), begin, begin + random.below(5 * kSecond)});
  }
  for (std::uint64_t i = random.below(3); i > 0 && random.chance(0.5); --i) {
    const std::uint64_t begin = start + random.below(kSecond / 10);
    faults.stops.push_back({random.below(2), begin, begin + random.below(8 * kSecond)});
  }
  if (random.chance(0.1)) {
    run.may_die = true;
    faults.cuts.push_back({random.below(2), start + random.below(kSecond / 10), UINT64_MAX});
  }
  run.options[0].connecting = true;
  run.options[1].connecting = false;
  const std::uint64_t number = random.chance(0.5) ? 1 : (std::uint64_t{1} << 32) - random.below(200);
  const std::uint32_t sequence = random.chance(0.5) ? 0 : UINT32_MAX - static_cast<std::uint32_t>(random.below(100));
  const std::uint32_t transfer =
      random.chance(0.5) ? 1 : kTransferOfAcceptor - static_cast<std::uint32_t>(random.below(20));
  for (SessionOptions& options : run.options) {
    options.frame_size = random.chance(0.5) ? 1472 : 256 + random.below(8744);
    options.window = static_cast<std::uint32_t>(2 + random.below(random.chance(0.5) ? 255 : 10));
    options.pull_bytes = std::size_t{64} << random.below(14);
    options.first_number = number;
    options.first_sequence = sequence;
    options.first_transfer = transfer;
  }
  if (random.chance(0.2)) run.shrink_to = 256 + random.below(700);
  if (seed % 3 == 0) {  // with a key
    const SessionKeys keys = Key::of(std::as_bytes(std::span("of this simulation"))).session_keys({});
    const Cipher cipher = Key::best_of(seed % 2 == 0 ? Key::ciphers() : 1);
    for (SessionOptions& options : run.options) options.seal = std::make_shared<Seal>(keys, cipher, options.connecting);
  }
  return run;
}

struct Outcome {
  std::string fault;
  std::uint64_t time = 0;
  bool died = false;
};

// Half-open: a direction that is cut for good is noticed where something is owed; the other side hears nothing, and its
// keepalive ends.
Outcome simulate(const Run& run, std::array<std::unique_ptr<SimulatedProgram>, 2>& programs) {
  SimulatedWire wire(run.faults, run.plan.seed);
  for (std::size_t side = 0; side < 2; ++side) {
    programs[side] = std::make_unique<SimulatedProgram>(run.options[side], run.plan, wire.now());
  }
  SimulatedProgram& first = *programs[0];
  SimulatedProgram& second = *programs[1];
  first.meet(second);
  second.meet(first);
  wire.drive(first, 0);
  std::size_t most_memory = 0;
  std::uint64_t steps = 0;
  bool shrunk = run.shrink_to == 0;
  const auto finished = [&] {
    return first.done() && second.done() && first.session().quiet() && second.session().quiet();
  };
  while (!finished() && !(first.over() && second.over())) {
    if (!wire.step({&first, &second})) {
      // Fine where one side gave up before the other had heard of a flow.
      if (run.may_die && (first.over() || second.over())) return {"", wire.now(), true};
      return {"nothing will ever happen", wire.now()};
    }
    if (!first.fault().empty()) return {first.fault(), wire.now()};
    if (!second.fault().empty()) return {second.fault(), wire.now()};
    for (auto& program : programs) most_memory = std::max(most_memory, program->session().memory_in_use());
    if (++steps > 3'000'000 || wire.now() > 600 * kSecond) return {"no end", wire.now()};
    if (!shrunk && first.received() > run.plan.messages / 2) {
      shrunk = true;
      wire.set_largest_frame(run.shrink_to);
    }
  }
  for (auto& program : programs) {
    const Over over = program->session().over();
    if (over == Over::broken) return {"a session broke", wire.now()};
    if (over == Over::timed_out && !run.may_die) return {"a session died of a wire that came back", wire.now()};
  }
  // Each flow holds at most its slots, twice.
  if (most_memory > (std::size_t{8} << 20)) return {"used " + std::to_string(most_memory) + " bytes", wire.now()};
  return {"", wire.now(), first.over()};
}

TEST(Simulation, EverySeedDeliversEverythingOrSaysWhyNot) {
  unsigned long from = 1, to = 300;
  if (const char* seeds = std::getenv("VIADUCT_SIMULATION_SEEDS")) {
    ASSERT_EQ(std::sscanf(seeds, "%lu..%lu", &from, &to), 2) << "VIADUCT_SIMULATION_SEEDS=FIRST..LAST";
  }
  std::uint64_t died = 0, lost = 0, needless = 0, received = 0;
  for (std::uint64_t seed = from; seed <= to; ++seed) {
    std::array<std::unique_ptr<SimulatedProgram>, 2> programs;
    const Outcome outcome = simulate(run_of(seed), programs);
    for (auto& program : programs) {
      const SessionCounters& counters = program->session().counters();
      lost += counters.lost_by_number + counters.lost_by_time;
      needless += counters.needless;
      received += program->received();
    }
    died += outcome.died;
    ASSERT_EQ(outcome.fault, "") << "seed " << seed << ", shrunk to " << run_of(seed).shrink_to << " of "
                                 << run_of(seed).options[0].frame_size << " and " << run_of(seed).options[1].frame_size
                                 << ", at " << static_cast<double>(outcome.time) / 1e9 << " s\n"
                                 << programs[0]->state() << "\n"
                                 << programs[1]->state();
  }
  // The wires are bad enough to mean something, and good enough to be used.
  EXPECT_GT(received, (to - from) * 50);
  if (to - from >= 100) {
    EXPECT_GT(lost, 1000U);
    EXPECT_GT(died, 0U);
  }
  RecordProperty("lost", std::to_string(lost));
  RecordProperty("needless", std::to_string(needless));
}

}  // namespace
}  // namespace viaduct::net
