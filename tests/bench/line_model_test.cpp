#include "bench/line_model.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace viaduct::bench {
namespace {

std::vector<MovedFrame> moved_by(const std::vector<std::uint32_t>& queues) {
  std::vector<MovedFrame> frames;
  for (std::uint32_t i = 0; i < 4000; ++i) frames.push_back({queues[i % queues.size()], 0});
  return frames;
}

TEST(LineModel, NothingMovesWhereOneProcessorDoesAll) {
  EXPECT_EQ(lines_moved(3, moved_by({3})), 0.0);
  EXPECT_EQ(lines_moved(3, {}), 0.0);
}

// Return producer, frame, free producer, and parts of the rings.
TEST(LineModel, AnotherProcessorSendsTheFrameAndTheIndicesOver) {
  const double lines = lines_moved(3, moved_by({1}));
  EXPECT_GT(lines, 5);
  EXPECT_LT(lines, 9);
}

TEST(LineModel, TurnsMoveTheStateOfTheEndpointToo) {
  EXPECT_GT(lines_moved(3, moved_by({0, 1, 2, 3})), lines_moved(3, moved_by({1})) + 1);
}

}  // namespace
}  // namespace viaduct::bench
