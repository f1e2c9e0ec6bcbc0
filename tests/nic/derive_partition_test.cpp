#include <gmock/gmock.h>
#include <viaduct/nic_partition.hpp>

#include <numeric>

namespace viaduct::nic {
namespace {

using testing::HasSubstr;

double& cost(Profile& profile, Event event) {
  return profile[static_cast<unsigned>(event)];
}

TEST(DerivePartition, FindsThePapersPartitionInThePapersProfile) {
  const PartitionPlan plan = derive_partition(paper_profile(), 2);
  EXPECT_EQ(plan.processor_of, parallel_assignment());
  ASSERT_EQ(plan.load.size(), 2u);
  EXPECT_NEAR(plan.load[0], 0.47, 0.005);
  EXPECT_NEAR(plan.load[1], 0.53, 0.005);
  EXPECT_NEAR(plan.speed_up, 1 / 0.53, 0.02);
  ASSERT_EQ(plan.shared.size(), 3u);
  for (const SharedVariable& shared : plan.shared) EXPECT_THAT(shared.name, HasSubstr("producer index"));
}

TEST(DerivePartition, ExplainsItsChoice) {
  const std::string words = derive_partition(paper_profile(), 2).explanation;
  EXPECT_THAT(words, HasSubstr("Processor 0: 47 %"));
  EXPECT_THAT(words, HasSubstr("Processor 1: 53 %"));
  EXPECT_THAT(words, HasSubstr("3 variables are shared"));
  EXPECT_THAT(words, HasSubstr("the driver reads the index"));
  EXPECT_THAT(words, HasSubstr("1.89 times"));
  EXPECT_THAT(words, HasSubstr("Not chosen: mailboxes and the DMA read channel (59 %)"));
}

TEST(DerivePartition, PlansAreRunnable) {
  for (unsigned processors = 1; processors <= kMostProcessors; ++processors) {
    const PartitionPlan plan = derive_partition(paper_profile(), processors);
    EXPECT_EQ(fault_of(plan.processor_of, plan.processors), std::nullopt);
    EXPECT_LE(plan.processors, processors);
    EXPECT_NEAR(std::accumulate(plan.load.begin(), plan.load.end(), 0.0), 1, 1e-9);
  }
}

TEST(DerivePartition, OneProcessorSharesNothing) {
  const PartitionPlan plan = derive_partition(paper_profile(), 1);
  EXPECT_EQ(plan.speed_up, 1);
  EXPECT_TRUE(plan.shared.empty());
}

TEST(DerivePartition, SaysWhenProcessorsWouldBeIdle) {
  EXPECT_THAT(derive_partition(paper_profile(), 8).explanation, HasSubstr("would have nothing to do"));
}

TEST(DerivePartition, FollowsTheLoad) {
  Profile receiving{};
  cost(receiving, Event::mailbox) = 20;
  cost(receiving, Event::receive_complete) = 60;
  cost(receiving, Event::dma_write_complete) = 10;
  cost(receiving, Event::receive_descriptors_ready) = 10;
  const PartitionPlan plan = derive_partition(receiving, 2);  // Mailbox leaves the side that receives
  EXPECT_EQ(plan.processor_of[static_cast<unsigned>(Event::mailbox)],
            plan.processor_of[static_cast<unsigned>(Event::receive_descriptors_ready)]);
  EXPECT_NEAR(plan.speed_up, 1 / 0.7, 0.01);
  EXPECT_EQ(plan.shared.size(), 1u);
}

TEST(DerivePartition, PrefersFewerProcessorsAndVariablesWhereNothingIsGained) {
  Profile sending{};
  cost(sending, Event::send_data_ready) = 99;
  cost(sending, Event::mailbox) = 1;
  const PartitionPlan plan = derive_partition(sending, 3);
  EXPECT_EQ(plan.processors, 1u);
  EXPECT_TRUE(plan.shared.empty());
}

TEST(DerivePartition, TakesTheProfileOfARunningAdapter) {
  Reading reading;
  EXPECT_EQ(profile_of(reading), std::nullopt);
  reading.processors.resize(2);
  reading.processors[0].handlers[0].ns = 10;
  reading.processors[1].handlers[0].ns = 5;
  reading.processors[1].handlers[3].ns = 85;
  const auto profile = profile_of(reading);
  ASSERT_TRUE(profile);
  EXPECT_EQ((*profile)[0], 15);
  EXPECT_EQ((*profile)[3], 85);
}

}  // namespace
}  // namespace viaduct::nic
