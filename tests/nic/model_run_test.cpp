// A run of the model: it repeats, and it neither loses, doubles nor reorders a frame that it accepted.
#include <gmock/gmock.h>
#include <viaduct/nic_model.hpp>

#include <numeric>

namespace viaduct::nic::model {
namespace {

std::vector<Variant> variants() {
  return {release(),
          release_sram_both(),
          parallel(),
          parallel_sram_code(),
          parallel_sram_data(),
          parallel_sram_both(),
          {"dynamic", Split::dynamic, 4, Code::pads, true},
          {"packet-parallel", Split::packet_parallel, 8, Code::pads, true}};
}

TEST(ModelRun, RepeatsExactly) {
  for (const Variant& variant : variants()) {
    const Outcome one = run(tigon(), variant, udp_both(600), 2000), two = run(tigon(), variant, udp_both(600), 2000);
    EXPECT_EQ(one.seconds, two.seconds) << variant.name;
    EXPECT_EQ(one.posted, two.posted) << variant.name;
    EXPECT_EQ(one.profile, two.profile) << variant.name;
  }
}

TEST(ModelRun, LosesNothingThatItAccepts) {
  for (const Variant& variant : variants())
    for (const Traffic& traffic :
         {udp_send(18), udp_send(1472), udp_receive(18), udp_receive(1472), udp_both(18), udp_both(1472)}) {
      const Outcome outcome = run(tigon(), variant, traffic, 2000);
      SCOPED_TRACE(variant.name);
      EXPECT_GE(outcome.transmitted + outcome.delivered, 2000u);
      EXPECT_EQ(outcome.lost, 0u);
      EXPECT_EQ(outcome.sent_out_of_order, 0u);
      EXPECT_EQ(outcome.delivered_out_of_order, 0u);
      EXPECT_EQ(outcome.posted + outcome.arrived, outcome.transmitted + outcome.delivered + outcome.inside);
      EXPECT_LE(outcome.inside, 512u);
    }
}

TEST(ModelRun, MovesPacketsOfSeveralFragments) {
  Traffic traffic = udp_send(1000);
  traffic.fragments = 3;
  const Outcome outcome = run(tigon(), parallel(), traffic, 1000);
  EXPECT_GE(outcome.transmitted, 1000u);
  EXPECT_EQ(outcome.lost + outcome.sent_out_of_order, 0u);
  EXPECT_LT(outcome.send_pps, run(tigon(), parallel(), udp_send(1000), 1000).send_pps);
}

TEST(ModelRun, LosesOnlyBeyondWhatItAccepts) {
  Traffic traffic = udp_receive(400);
  const double accepted = run(tigon(), release(), traffic, 3000).receive_pps;
  traffic.offered_receive_pps = 0.9 * accepted;
  EXPECT_EQ(run(tigon(), release(), traffic, 3000).lost, 0u);
  traffic.offered_receive_pps = 1.5 * accepted;
  const Outcome flooded = run(tigon(), release(), traffic, 3000);
  EXPECT_GT(flooded.lost, 100u);
  EXPECT_EQ(flooded.delivered_out_of_order, 0u);
}

TEST(ModelRun, GoesOnAsItBegan) {
  for (const Variant& variant : {release(), parallel()})
    for (const Traffic& traffic : {udp_send(18), udp_receive(18), udp_both(18), udp_both(1472)}) {
      const Outcome early = run(tigon(), variant, traffic, 4000), late = run(tigon(), variant, traffic, 8000);
      EXPECT_NEAR((early.send_pps + early.receive_pps) / (late.send_pps + late.receive_pps), 1, 0.02) << variant.name;
    }
}

TEST(ModelRun, SendsAsMuchAsItReceives) {
  for (const std::uint32_t size : {18u, 1472u}) {
    const Outcome outcome = run(tigon(), parallel(), udp_both(size), 4000);
    EXPECT_NEAR(outcome.send_pps / outcome.receive_pps, 1, 0.06) << size;
  }
}

TEST(ModelRun, IsNeverFasterThanTheLinkOrTheBus) {
  Card card = tigon();
  card.clock_hz *= 100;
  card.bus_hz *= 100;
  card.sram_bytes_per_s *= 100;
  EXPECT_NEAR(megabits(run(card, parallel(), udp_send(1472), 3000), 1472), ethernet_megabits(1472), 5);
  card.bus_hz = tigon().bus_hz;
  const Outcome bound = run(card, parallel(), udp_both(1472), 3000);
  EXPECT_GT(bound.bus_busy, 0.98);
  EXPECT_LE(bound.bus_busy, 1.001);
}

// Transfers go first, so large frames slow a processor down; where they take all of the SRAM's time, neither processor
// nor bus is the bound.
TEST(ModelRun, SharesTheSram) {
  Card card = tigon();
  card.bus_hz *= 100;
  const auto large_over_small = [&] {
    return run(card, release_sram_both(), udp_both(1000), 4000).send_pps /
           run(card, release_sram_both(), udp_both(18), 4000).send_pps;
  };
  EXPECT_LT(large_over_small(), 0.92);
  card.sram_per_transfer = 0;
  EXPECT_GT(large_over_small(), 0.98);

  card.sram_per_transfer = 2;
  card.clock_hz *= 100;
  const Outcome bound = run(card, parallel(), udp_both(1472), 4000);
  const double of_sram =
      (bound.send_pps + bound.receive_pps) * 1514 * 2 * card.sram_per_transfer / card.sram_bytes_per_s;
  EXPECT_GT(of_sram, 0.9);
  EXPECT_LE(of_sram, 1.0);
}

TEST(ModelRun, AccountsForEveryHandler) {
  const Outcome outcome = run(tigon(), release(), udp_both(18), 2000);
  EXPECT_NEAR(std::accumulate(outcome.profile.begin(), outcome.profile.end(), 0.0), 1, 1e-9);
  EXPECT_THAT(outcome.profile, testing::Each(testing::Gt(0)));
  ASSERT_EQ(outcome.busy.size(), 1u);
  EXPECT_GT(outcome.busy[0], 0.98);  // the processor is the bound
  EXPECT_LE(outcome.busy[0], 1.01);
}

}  // namespace
}  // namespace viaduct::nic::model
