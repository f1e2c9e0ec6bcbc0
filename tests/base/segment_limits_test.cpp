// Segments where memory, address space or descriptors run out: always an error value, never a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/child.hpp"
#include "base/segment.hpp"

namespace viaduct {
namespace {

using testing::Child;
using ::testing::HasSubstr;

SegmentSpec spec_of(std::size_t size) {
  return {.name = "test", .layout = 1, .payload_size = size};
}

constexpr std::size_t kPetabyte = std::size_t{1} << 50;

std::size_t more_than_this_machine_has() {
  return 8 * static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * 4096;
}

TEST(SegmentLimits, NoMemoryIsAnErrorAndLeavesNothingBehind) {
  const int before = testing::open_descriptors();
  for (const std::size_t size : {more_than_this_machine_has(), kPetabyte, SIZE_MAX / 4}) {
    const auto segment = Segment::create(spec_of(size));
    ASSERT_FALSE(segment) << size;
    EXPECT_EQ(segment.error().code(), ENOMEM) << segment.error().message();
    EXPECT_THAT(segment.error().message(), HasSubstr("create segment 'test' of " + std::to_string(size)));
  }
  EXPECT_EQ(testing::open_descriptors(), before);
}

TEST(SegmentLimits, ImpossibleSizesAreRefused) {
  for (const std::size_t size : {std::size_t{0}, SIZE_MAX, SIZE_MAX - 4096}) {
    const auto segment = Segment::create(spec_of(size));
    ASSERT_FALSE(segment) << size;
    EXPECT_EQ(segment.error().code(), EINVAL);
  }
}

TEST(SegmentLimits, CommittingMoreThanThereIsFailsAndTheRestStaysUsable) {
  SegmentSpec spec = spec_of(more_than_this_machine_has());
  spec.committed = 4096;
  auto segment = Segment::create(spec);
  ASSERT_TRUE(segment) << segment.error().message();
  const auto all = segment->commit(more_than_this_machine_has());
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code(), ENOMEM);
  EXPECT_EQ(segment->committed(), 4096u);
  segment->payload()[4095] = std::byte{1};
  ASSERT_TRUE(segment->commit(8192));
  segment->payload()[8191] = std::byte{1};
}

TEST(SegmentLimits, NoAddressSpaceIsAnError) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers need more address space than any limit leaves";
  Child child([] {
    CHILD_EXPECT(testing::limit(RLIMIT_AS, 1 << 20));
    const auto segment = Segment::create(spec_of(64 << 20));
    CHILD_EXPECT(!segment);
    CHILD_EXPECT(segment.error().code() == ENOMEM);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentLimits, CreatingWithoutFreeDescriptorsIsAnError) {
  Child child([] {
    CHILD_EXPECT(testing::limit(RLIMIT_NOFILE, 3));
    const auto segment = Segment::create(spec_of(4096));
    CHILD_EXPECT(!segment);
    CHILD_EXPECT(segment.error().code() == EMFILE);
    CHILD_EXPECT(segment.error().message().find("create segment 'test'") != std::string::npos);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentLimits, ReceivingWithoutFreeDescriptorsIsAnErrorThatSaysWhatToDo) {
  auto pair = make_socket_pair(SOCK_STREAM);
  auto segment = Segment::create(spec_of(4096));
  ASSERT_TRUE(pair);
  ASSERT_TRUE(segment);
  ASSERT_TRUE(send_segment(pair->second.get(), *segment));
  Child child([&] {
    CHILD_EXPECT(testing::limit(RLIMIT_NOFILE, 3));
    const auto received = receive_segment(pair->first.get(), 1);
    CHILD_EXPECT(!received);
    CHILD_EXPECT(received.error().code() == EMFILE);
    CHILD_EXPECT(received.error().message().find("ulimit -n") != std::string::npos);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace viaduct
