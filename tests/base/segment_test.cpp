// Segments between honest processes and from a hostile one.
#include "base/segment.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <functional>

#include "base/child.hpp"
#include "base/socket_message.hpp"

namespace viaduct {
namespace {

using testing::Child;
using ::testing::HasSubstr;

constexpr std::uint64_t kLayout = layout_hash("test 1: words u32[]");
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

SegmentSpec spec_of(std::size_t size) {
  return {.name = "test", .layout = kLayout, .payload_size = size};
}

TEST(Segment, IsZeroFilledAndHoldsWhatWasAskedFor) {
  auto segment = Segment::create(spec_of(10000));
  ASSERT_TRUE(segment) << segment.error().message();
  ASSERT_GE(segment->payload().size(), 10000u);
  EXPECT_EQ(segment->committed(), segment->payload().size());
  for (const std::byte b : segment->payload()) ASSERT_EQ(b, std::byte{0});
}

TEST(Segment, TwoMappingsShareTheMemory) {
  auto created = Segment::create(spec_of(4096));
  ASSERT_TRUE(created);
  auto adopted = Segment::adopt(Fd(::dup(created->fd())), kLayout);
  ASSERT_TRUE(adopted) << adopted.error().message();
  EXPECT_NE(adopted->as<int>(), created->as<int>());
  EXPECT_EQ(adopted->payload().size(), created->payload().size());
  *created->as<int>() = 42;
  EXPECT_EQ(*adopted->as<int>(), 42);
}

TEST(Segment, TravelsToAnotherProcessAndOutlivesItsCreator) {
  auto pair = make_socket_pair(SOCK_STREAM);
  ASSERT_TRUE(pair);
  Child creator([&] {
    auto segment = Segment::create(spec_of(4096));
    CHILD_EXPECT(segment);
    *segment->as<int>() = 42;
    CHILD_EXPECT(send_segment(pair->second.get(), *segment));
    return 0;
  });
  auto received = receive_segment(pair->first.get(), kLayout);
  ASSERT_TRUE(received) << received.error().message();
  EXPECT_EQ(creator.wait(), 0);
  EXPECT_EQ(*received->as<int>(), 42);
}

TEST(Segment, CannotBeTruncatedByAnybody) {
  auto segment = Segment::create(spec_of(4096));
  ASSERT_TRUE(segment);
  for (const off_t size : {0, 4096, 1 << 20}) {
    EXPECT_EQ(::ftruncate(segment->fd(), size), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(::fcntl(segment->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1) << "a peer could seal it under us";
}

TEST(Segment, CommitsInParts) {
  SegmentSpec spec = spec_of(1 << 20);
  spec.committed = 0;
  auto segment = Segment::create(spec);
  ASSERT_TRUE(segment);
  EXPECT_EQ(segment->committed(), 0u);
  ASSERT_TRUE(segment->commit(1));
  EXPECT_EQ(segment->committed(), 4096u) << "whole pages";
  ASSERT_TRUE(segment->commit(1)) << "again is nothing";
  ASSERT_TRUE(segment->commit(1 << 20));
  EXPECT_EQ(segment->committed(), segment->payload().size());
  const auto beyond = segment->commit(segment->payload().size() + 1);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code(), EINVAL);
}

TEST(Segment, MovesWithoutMovingTheMemory) {
  auto created = Segment::create(spec_of(4096));
  ASSERT_TRUE(created);
  std::byte* const place = created->payload().data();
  Segment first = std::move(*created);
  Segment second;
  EXPECT_FALSE(second);
  EXPECT_TRUE(second.payload().empty());
  second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT: what is left is the question
  EXPECT_TRUE(first.payload().empty());
  EXPECT_EQ(first.fd(), -1);
  EXPECT_EQ(second.payload().data(), place);
  const int before = testing::open_descriptors();
  second = Segment();
  EXPECT_EQ(testing::open_descriptors(), before - 1) << "what is assigned over is given back";
}

TEST(Segment, PreferringHugePagesWorksWithAndWithoutAny) {
  SegmentSpec spec = spec_of(4 << 20);
  spec.huge_pages = HugePages::prefer;
  auto segment = Segment::create(spec);
  ASSERT_TRUE(segment) << segment.error().message();
  EXPECT_TRUE(segment->page_size() == 4096 || segment->page_size() == 2 << 20) << segment->page_size();
  ASSERT_GE(segment->payload().size(), std::size_t{4} << 20);
  segment->payload().back() = std::byte{1};
  auto adopted = Segment::adopt(Fd(::dup(segment->fd())), kLayout);
  ASSERT_TRUE(adopted) << adopted.error().message();
  EXPECT_EQ(adopted->payload().back(), std::byte{1});
}

struct Forgery {
  const char* name;
  const char* complaint;
  std::function<void(SegmentHeader&)> spoil = [](SegmentHeader&) {};
  std::size_t size = 8192;
  int seals = kSeals;
};

Fd forge(const Forgery& forgery) {
  Fd fd(::memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  SegmentHeader header{kSegmentMagic, kSegmentVersion, kSegmentPayloadOffset, forgery.size, kLayout, {}};
  forgery.spoil(header);
  EXPECT_EQ(::pwrite(fd.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(forgery.size)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, forgery.seals), 0);
  return fd;
}

class AdoptingAForgedSegment : public ::testing::TestWithParam<Forgery> {};

TEST_P(AdoptingAForgedSegment, IsRefusedWithTheReason) {
  const int before = testing::open_descriptors();
  const auto adopted = Segment::adopt(forge(GetParam()), kLayout);
  ASSERT_FALSE(adopted);
  EXPECT_THAT(adopted.error().message(), HasSubstr(GetParam().complaint));
  EXPECT_EQ(testing::open_descriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Hostile, AdoptingAForgedSegment,
    ::testing::Values(
        Forgery{"Magic", "wrong magic 0x7", [](auto& h) { h.magic = 7; }},
        Forgery{"Version", "version 2", [](auto& h) { h.version = 2; }},
        Forgery{"SizeTooLarge", "header says 12288 bytes", [](auto& h) { h.total_size = 12288; }},
        Forgery{"SizeTooSmall", "header says 1 bytes", [](auto& h) { h.total_size = 1; }},
        Forgery{"PayloadOffset", "header says", [](auto& h) { h.payload_offset = 64; }},
        Forgery{"Layout", "where 0x", [](auto& h) { h.layout_hash ^= 1; }},
        Forgery{.name = "NoPayload", .complaint = "too small (4096 bytes)", .size = 4096},
        Forgery{.name = "Empty", .complaint = "too small (0 bytes)", .size = 0},
        Forgery{.name = "NoSeals", .complaint = "not sealed", .seals = 0},
        Forgery{.name = "MayShrink", .complaint = "not sealed", .seals = kSeals & ~F_SEAL_SHRINK},
        Forgery{.name = "MayGrow", .complaint = "not sealed", .seals = kSeals & ~F_SEAL_GROW},
        Forgery{.name = "MayBeSealedFurther", .complaint = "not sealed", .seals = kSeals & ~F_SEAL_SEAL},
        Forgery{.name = "SealedForWriting", .complaint = "sealed against writing", .seals = kSeals | F_SEAL_WRITE},
        Forgery{.name = "SealedForWritingLater",
                .complaint = "sealed against writing",
                .seals = kSeals | F_SEAL_FUTURE_WRITE}),
    [](const auto& test) { return test.param.name; });

TEST(Segment, TheForgerCanAlsoMakeAGoodOne) {
  EXPECT_TRUE(Segment::adopt(forge({"Good", ""}), kLayout)) << "else the forgeries prove nothing";
}

TEST(Segment, AdoptsNothingThatIsNotAMemoryFile) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  for (const int fd : {pipe->first.release(), ::open("/proc/self/exe", O_RDONLY), -1}) {
    const auto adopted = Segment::adopt(Fd(fd), kLayout);
    ASSERT_FALSE(adopted);
    EXPECT_THAT(adopted.error().message(), HasSubstr("not a memory file"));
  }
}

TEST(Segment, ReceivingSomethingElseIsAnError) {
  auto pair = make_socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  const std::byte wrong{'X'};
  ASSERT_TRUE(send_with_fds(pair->second.get(), {&wrong, 1}, {}));
  const auto received = receive_segment(pair->first.get(), kLayout);
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), EPROTO);
  pair->second.reset();
  const auto closed = receive_segment(pair->first.get(), kLayout);
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code(), ECONNRESET);
}

}  // namespace
}  // namespace viaduct
