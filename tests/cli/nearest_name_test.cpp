#include "cli/nearest_name.hpp"

#include <gtest/gtest.h>

namespace viaduct::cli {
namespace {

TEST(EditDistance, CountsEachKindOfChangeAsOne) {
  EXPECT_EQ(edit_distance("info", "info"), 0u);
  EXPECT_EQ(edit_distance("inof", "info"), 1u);   // swapped
  EXPECT_EQ(edit_distance("inffo", "info"), 1u);  // one too many
  EXPECT_EQ(edit_distance("ino", "info"), 1u);    // one missing
  EXPECT_EQ(edit_distance("imfo", "info"), 1u);   // replaced
}

TEST(EditDistance, ReachesTheEmptyWord) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "top"), 3u);
  EXPECT_EQ(edit_distance("top", ""), 3u);
}

TEST(EditDistance, MayChangeBetweenSwappedCharacters) {
  EXPECT_EQ(edit_distance("ca", "abc"), 2u);  // swap, then insert between: 3 where swapped characters are left alone
  EXPECT_EQ(edit_distance("a cat", "an act"), 2u);
}

TEST(EditDistance, IsTheSameBothWays) {
  for (const char* a : {"kitten", "sitting", "bench", "", "nbehc"})
    for (const char* b : {"sitting", "bench", "x", "kitten"}) EXPECT_EQ(edit_distance(a, b), edit_distance(b, a));
}

const std::vector<std::string> kNames = {"info", "top", "bench", "demo"};

TEST(NearestName, FindsTheMistypedOne) {
  EXPECT_EQ(nearest_name("inof", kNames), "info");
  EXPECT_EQ(nearest_name("tpo", kNames), "top");
  EXPECT_EQ(nearest_name("benhc", kNames), "bench");
  EXPECT_EQ(nearest_name("DEMO", kNames), "demo");
}

TEST(NearestName, TakesTheStartOfAName) {
  EXPECT_EQ(nearest_name("be", kNames), "bench");
  EXPECT_EQ(nearest_name("in", kNames), "info");
}

TEST(NearestName, IgnoresLeadingDashes) {
  EXPECT_EQ(nearest_name("-json", {"--help", "--json"}), "--json");
  EXPECT_EQ(nearest_name("--jsn", {"--help", "--json", "-h"}), "--json");
}

TEST(NearestName, DoesNotGuessAnotherWord) {
  EXPECT_EQ(nearest_name("report", kNames), std::nullopt);
  EXPECT_EQ(nearest_name("-z", {"-h", "--help"}), std::nullopt);
  EXPECT_EQ(nearest_name("", kNames), std::nullopt);
  EXPECT_EQ(nearest_name("info", {}), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(100'000, 'i'), kNames), std::nullopt);
}

}  // namespace
}  // namespace viaduct::cli
