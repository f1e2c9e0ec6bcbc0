#include "base/counters.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>
#include <optional>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "base/random.hpp"
#include "base/segment.hpp"

namespace viaduct {
namespace {

using testing::Child;
using ::testing::SizeIs;

std::optional<std::uint64_t> value_in(int pid, std::string_view name) {
  const auto read = read_counters(pid);
  if (!read) return std::nullopt;
  for (const CounterReading& reading : read->counters)
    if (reading.name == name) return reading.value;
  return std::nullopt;
}

// Two pipes between a test and its child: "I am ready" and "you may go".
class Rendezvous {
 public:
  void say() { (void)!::write(said_.second.get(), "x", 1); }
  void await_say() {
    char c;
    (void)!::read(said_.first.get(), &c, 1);
  }
  void pause_until_killed() {
    say();
    for (;;) ::pause();
  }

 private:
  FdPair said_ = std::move(*make_pipe());
};

TEST(Counters, OneNameIsOneCounter) {
  Counter first = counter("test.one"), second = counter("test.one"), other = counter("test.other");
  first.set(5);
  second.add();
  second.add(4);
  EXPECT_EQ(first.get(), 10u);
  EXPECT_EQ(other.get(), 0u);
  EXPECT_EQ(value_in(::getpid(), "test.one"), 10u) << "a process may read itself";
}

TEST(Counters, NamesAreCutAt47Bytes) {
  const std::string longest(47, 'n');
  counter(longest + "ot this").set(3);
  EXPECT_EQ(counter(longest).get(), 3u);
  EXPECT_EQ(value_in(::getpid(), longest), 3u);
}

TEST(Counters, AnotherProcessReadsThemAndFindsThemAll) {
  Rendezvous meeting;
  Child child([&] {
    counter("test.of_child").add(7);
    meeting.pause_until_killed();
    return 0;
  });
  meeting.await_say();
  EXPECT_EQ(value_in(child.pid(), "test.of_child"), 7u);
  EXPECT_EQ(value_in(::getpid(), "test.of_child"), std::nullopt);
  bool listed = false;
  for (const ProcessCounters& process : read_all_counters()) listed |= process.pid == child.pid();
  EXPECT_TRUE(listed);
  EXPECT_FALSE(read_counters(child.pid())->command.empty());
}

TEST(Counters, AChildStartsAtZeroAndLeavesItsParentAlone) {
  Counter shared = counter("test.shared");
  shared.set(100);
  Rendezvous meeting;
  Child child([&] {
    CHILD_EXPECT(shared.get() == 0);
    shared.add(1);  // the handle from before the fork
    counter("test.shared").add(1);
    meeting.pause_until_killed();
    return 0;
  });
  meeting.await_say();
  EXPECT_EQ(value_in(child.pid(), "test.shared"), 2u);
  EXPECT_EQ(value_in(::getpid(), "test.shared"), 100u);
  EXPECT_EQ(shared.get(), 100u);
}

TEST(Counters, AChildWithoutDescriptorsCountsInPrivate) {
  Child parent([] {
    Counter shared = counter("test.private");
    shared.set(100);
    Rendezvous meeting;
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    CHILD_EXPECT(testing::limit(RLIMIT_NOFILE, 3));  // the child cannot make its segment
    Child child([&] {
      CHILD_EXPECT(shared.get() == 0);
      shared.add(1);
      counter("test.private").add(1);
      Child grandchild([&] { return shared.get() == 1 ? 0 : 1; });
      CHILD_EXPECT(grandchild.wait() == 0);
      meeting.pause_until_killed();
      return 0;
    });
    CHILD_EXPECT(testing::limit(RLIMIT_NOFILE, before.rlim_cur));
    meeting.await_say();
    CHILD_EXPECT(shared.get() == 100);
    const auto read = read_counters(child.pid());
    CHILD_EXPECT(!read && read.error().code() == ENOENT);  // and not, by mistake, the parent's
    return 0;
  });
  EXPECT_EQ(parent.wait(), 0);
}

TEST(Counters, MoreThanThereIsRoomForAreCountedNowhere) {
  Child child([] {
    for (int i = 0; i < 1000; ++i) counter("test.many_" + std::to_string(i)).add(1);
    counter("test.many_0").add(1);
    CHILD_EXPECT(value_in(::getpid(), "test.many_0") == 2);
    CHILD_EXPECT(!value_in(::getpid(), "test.many_999"));
    CHILD_EXPECT(read_counters(::getpid())->counters.size() == 255);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Counters, AProcessWithoutAnyIsNoEntry) {
  auto pipe = make_pipe();  // its end, close-on-exec, tells when the other program runs
  auto input = make_pipe();
  ASSERT_TRUE(pipe && input);
  Child other([&] {
    ::dup2(input->first.get(), 0);
    ::execl("/bin/cat", "cat", nullptr);
    return 1;
  });
  pipe->second.reset();
  char c;
  ASSERT_EQ(::read(pipe->first.get(), &c, 1), 0);
  const auto read = read_counters(other.pid());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ENOENT);
}

TEST(Counters, KilledProcessesLeaveNothingBehind) {
  const auto files = [] {
    const std::filesystem::directory_iterator folder("/dev/shm");
    return std::distance(begin(folder), end(folder));
  };
  const auto before = files();
  Rendezvous meeting;
  Child child([&] {
    counter("test.of_the_dead").add(1);
    meeting.pause_until_killed();
    return 0;
  });
  meeting.await_say();
  const int pid = child.pid();
  child.kill();
  child.wait();
  const auto read = read_counters(pid);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ENOENT);
  EXPECT_EQ(files(), before);
}

// A true header, from this process's own segment, for a forger to put garbage behind.
SegmentHeader true_header() {
  counter("test.any").add();
  SegmentHeader header{};
  for (int fd = 3; fd < 1000; ++fd) {
    std::error_code none;
    const auto target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none);
    if (target == "/memfd:viaduct-counters (deleted)") (void)!::pread(fd, &header, sizeof header, 0);
  }
  return header;
}

// Reads a process whose only counter segment is `bytes` under the right name.
Result<ProcessCounters> read_forged(std::span<const std::byte> bytes, int seals) {
  Rendezvous meeting;
  Child forger([&] {
    for (int fd = 3; fd < 1000; ++fd) {  // its honest segment
      std::error_code none;
      const auto target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none);
      if (target == "/memfd:viaduct-counters (deleted)") ::close(fd);
    }
    const int fd = ::memfd_create("viaduct-counters", MFD_ALLOW_SEALING);
    CHILD_EXPECT(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    CHILD_EXPECT(::fcntl(fd, F_ADD_SEALS, seals) == 0);
    meeting.pause_until_killed();
    return 0;
  });
  meeting.await_say();
  return read_counters(forger.pid());
}

TEST(Counters, AForgedSegmentIsAnErrorOrBoundedNonsense) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const SegmentHeader header = true_header();
  ASSERT_EQ(header.magic, kSegmentMagic);
  Random random(1);
  std::vector<std::byte> garbage(1 << 16);
  for (std::byte& b : garbage) b = static_cast<std::byte>(random());

  EXPECT_EQ(read_forged({}, kSeals).error().code(), EPROTO) << "empty";
  EXPECT_EQ(read_forged(garbage, 0).error().code(), EPROTO) << "its owner could truncate it under us";
  EXPECT_EQ(read_forged(garbage, kSeals).error().code(), EPROTO);

  std::memcpy(garbage.data(), &header, sizeof header);
  EXPECT_TRUE(read_forged(garbage, kSeals)) << "every state is garbage, so there is nothing to show";

  // Every entry named, every name without an end.
  std::fill(garbage.begin() + kSegmentPayloadOffset, garbage.end(), std::byte{0xff});
  for (std::size_t entry = 1; entry <= 255; ++entry) {
    const std::uint32_t named = 1;
    std::memcpy(garbage.data() + kSegmentPayloadOffset + entry * 64 + 8, &named, sizeof named);
  }
  const auto read = read_forged(garbage, kSeals);
  ASSERT_TRUE(read) << read.error().message();
  ASSERT_THAT(read->counters, SizeIs(255));
  for (const CounterReading& reading : read->counters) EXPECT_THAT(reading.name, SizeIs(48));
}

}  // namespace
}  // namespace viaduct
