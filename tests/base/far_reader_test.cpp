#include "base/far_reader.hpp"

#include <gtest/gtest.h>

namespace viaduct {
namespace {

constexpr std::size_t kChunk = 16384;
constexpr int kMany = 20'000;

// What 16 KB take in a place, either way.
struct Place {
  std::uint64_t into_caches_ns;
  std::uint64_t past_caches_ns;
};
constexpr Place kNear{400, 330}, kFar{6300, 420}, kPagedIn{9000, 8800};

struct Course {
  int past_caches = 0;
  int timed = 0;
};

Course copy_many(FarReader& reader, Place place, int count = kMany, std::size_t bytes = kChunk) {
  Course course;
  for (int i = 0; i < count; ++i) {
    const FarReader::Way way = reader.next(bytes);
    course.past_caches += way.past_caches ? 1 : 0;
    course.timed += way.timed ? 1 : 0;
    if (way.timed) reader.took(bytes, (way.past_caches ? place.past_caches_ns : place.into_caches_ns) * bytes / kChunk);
  }
  return course;
}

TEST(FarReader, StaysWithTheCachesWhereTheReaderIsNear) {
  FarReader reader;
  const Course course = copy_many(reader, kNear);
  EXPECT_EQ(course.past_caches, 0);
  EXPECT_GT(course.timed, kMany / 1000);
  EXPECT_LT(course.timed, kMany / 100) << "timing costs";
}

TEST(FarReader, GoesPastTheCachesWhereTheReaderIsFar) {
  FarReader reader;
  const Course course = copy_many(reader, kFar);
  EXPECT_GT(course.past_caches, kMany * 97 / 100);
  EXPECT_LT(course.timed, kMany / 100);
}

TEST(FarReader, FindsOutAgainWhenOneOfThemIsMoved) {
  FarReader reader;
  for (int i = 0; i < 3; ++i) {
    (void)copy_many(reader, kFar, 1000);
    EXPECT_GE(copy_many(reader, kFar, 100).past_caches, 99) << "but for a look at the other way";
    (void)copy_many(reader, kNear, 1000);
    EXPECT_EQ(copy_many(reader, kNear).past_caches, 0);
  }
}

TEST(FarReader, IsNotMisledBySourcesThatAreSlowEitherWay) {
  FarReader reader;
  EXPECT_LT(copy_many(reader, kPagedIn).past_caches, kMany / 500) << "but for a trial now and then";
}

TEST(FarReader, IsNotMisledByOneInterruption) {
  FarReader reader;
  for (int i = 0; i < kMany; ++i) {
    const FarReader::Way way = reader.next(kChunk);
    EXPECT_FALSE(way.past_caches);
    if (!way.timed) continue;
    reader.took(kChunk, 4'000'000);
    const FarReader::Way again = reader.next(kChunk);
    ASSERT_TRUE(again.timed) << "looks closer at once";
    reader.took(kChunk, kNear.into_caches_ns);
  }
}

TEST(FarReader, LeavesWhatIsTooShortToTellToTheCaches) {
  FarReader reader;
  EXPECT_EQ(copy_many(reader, kFar, kMany, 2048).timed, 0);
  (void)copy_many(reader, kFar);
  const Course course = copy_many(reader, kFar, 100, 2048);
  EXPECT_EQ(course.past_caches, 0);
  EXPECT_EQ(course.timed, 0);
}

}  // namespace
}  // namespace viaduct
