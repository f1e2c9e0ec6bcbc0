// The floors really copy: one that left bytes out would make everybody look slow.
#include "bench/bare_loop.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"
#include "bench/message_pipe.hpp"
#include "bench/partner.hpp"

namespace viaduct::bench {
namespace {

std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  Random random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(BareLoop, CopiesAllBytesWithOneAndWithTwoThreads) {
  BareLoop loop(placement().theirs);
  for (const auto way : {BareLoop::Way::through_caches, BareLoop::Way::past_caches})
    for (const std::size_t size : {1, 63, 64, 129, 4096, 100'001}) {
      const std::vector<std::byte> source = pattern(size, size);
      std::vector<std::byte> alone(size), by_two(size);
      BareLoop::copy(way, alone.data(), source.data(), size);
      EXPECT_EQ(alone, source);
      const BareLoop::Awake awake(loop);  // it sleeps in between
      for (int times = 0; times < 3; ++times) loop.copy_by_two(way, by_two.data(), source.data(), size);
      EXPECT_EQ(by_two, source);
    }
}

TEST(TwoCopies, CarryMessagesOfAnySizeInOrder) {
  std::vector<std::byte> memory(TwoCopies::bytes() + 64);
  std::byte* const aligned = memory.data() + (-reinterpret_cast<std::uintptr_t>(memory.data())) % 64;
  TwoCopies ends(aligned);  // each process uses its own end of a copy; here one is both
  for (std::uint64_t round = 0; round < 5; ++round) {
    const std::vector<std::byte> first = pattern(200'001, round), second = pattern(17, round + 100);
    std::vector<std::byte> got_first(first.size()), got_second(second.size());
    ends.send(first), ends.send(second);
    ends.receive(got_first), ends.receive(got_second);
    EXPECT_EQ(got_first, first);
    EXPECT_EQ(got_second, second);
  }
}

}  // namespace
}  // namespace viaduct::bench
