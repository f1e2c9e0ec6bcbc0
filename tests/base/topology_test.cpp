#include "base/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

namespace viaduct {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> numbers;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) numbers.push_back(i);
  return numbers;
}

class TopologyTest : public ::testing::Test {
 protected:
  const Topology& machine_ = Topology::machine();
  const std::vector<int>& there_ = machine_.processors();
};

TEST_F(TopologyTest, KnowsTheProcessorsThisThreadMayUse) {
  ASSERT_FALSE(there_.empty());
  EXPECT_TRUE(std::is_sorted(there_.begin(), there_.end()));
  for (const int processor : affinity()) EXPECT_TRUE(machine_.exists(processor)) << processor;
  EXPECT_FALSE(machine_.exists(-1));
  EXPECT_FALSE(machine_.exists(there_.back() + 1));
  EXPECT_GE(machine_.cores(), 1);
  EXPECT_GE(machine_.numa_nodes(), 1);
}

TEST_F(TopologyTest, SharingACacheIsMutual) {
  for (const int a : there_)
    for (const int b : there_) EXPECT_EQ(machine_.shared_cache_level(a, b), machine_.shared_cache_level(b, a));
  EXPECT_EQ(machine_.shared_cache_level(there_.front(), -1), 0);
  for (const Cache& cache : machine_.caches()) {
    EXPECT_GE(cache.level, 1);
    EXPECT_LE(cache.level, 3);
    for (const int processor : cache.processors) {
      EXPECT_LE(machine_.shared_cache_level(processor, cache.processors.front()), cache.level);
      EXPECT_EQ(machine_.cache_size(processor, cache.level), cache.size);
    }
  }
  EXPECT_EQ(machine_.cache_size(there_.front(), 9), 0u);
  EXPECT_EQ(machine_.numa_node_of(-1), -1);
}

TEST_F(TopologyTest, ReadsLists) {
  const int first = there_.front();
  EXPECT_THAT(*machine_.parse_processors(std::to_string(first)), ElementsAre(first));
  EXPECT_THAT(*machine_.parse_processors(std::to_string(first) + "," + std::to_string(first)), ElementsAre(first));
  EXPECT_THAT(*machine_.parse_processors(std::to_string(first) + "-" + std::to_string(first)), ElementsAre(first));
  std::string all;
  for (const int processor : there_) all += (all.empty() ? "" : ",") + std::to_string(processor);
  EXPECT_EQ(*machine_.parse_processors(all), there_);
  if (machine_.exists(0) && machine_.exists(1)) {
    EXPECT_THAT(*machine_.parse_processors("0-1"), ElementsAre(0, 1));
    EXPECT_THAT(*machine_.parse_processors("1,0"), ElementsAre(1, 0)) << "in the order given";
  }
}

TEST_F(TopologyTest, AMissingProcessorIsNamedAndThoseThereAreListed) {
  const int missing = there_.back() + 1;
  const auto list = std::to_string(there_.front()) + "," + std::to_string(missing);
  const auto parsed = machine_.parse_processors(list);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code(), EINVAL);
  EXPECT_THAT(parsed.error().message(), HasSubstr("'" + list + "': " + std::to_string(missing) + " does not exist"));
  EXPECT_THAT(parsed.error().message(), HasSubstr("there are " + std::to_string(there_.front())));
}

TEST_F(TopologyTest, GarbageIsNotAList) {
  for (const char* garbage : {"", ",", "0,", ",0", "a", "0-", "-1", "0--1", "1-0", "0 ", "0x0", "0-1-2", "0;1", "1e3",
                              "99999999999", "0-99999999999", "0-2147483647", "2147483647"})
    EXPECT_FALSE(machine_.parse_processors(garbage)) << garbage;
}

TEST_F(TopologyTest, PinsForAScopeAndRestoresWhatWasBefore) {
  const auto before = affinity();
  const int target = before.back();
  {
    const PinnedScope pinned(target);
    EXPECT_THAT(affinity(), ElementsAre(target));
    EXPECT_EQ(::sched_getcpu(), target);
    {
      const PinnedScope inner(before.front());
      EXPECT_THAT(affinity(), ElementsAre(before.front()));
    }
    EXPECT_THAT(affinity(), ElementsAre(target));
  }
  EXPECT_EQ(affinity(), before);
}

TEST_F(TopologyTest, PinningWhereNothingIsFailsAndChangesNothing) {
  const auto before = affinity();
  for (const int processor : {-1, CPU_SETSIZE, CPU_SETSIZE - 1}) {
    if (machine_.exists(processor)) continue;
    EXPECT_FALSE(pin_this_thread(processor)) << processor;
    EXPECT_EQ(affinity(), before);
  }
  EXPECT_FALSE(pin_this_thread(std::vector<int>{}));
  ASSERT_TRUE(pin_this_thread(before));
}

}  // namespace
}  // namespace viaduct
