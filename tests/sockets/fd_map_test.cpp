#include "sockets/fd_map.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/child.hpp"

namespace viaduct::sockets {
namespace {

TEST(FdMap, HoldsWhatWasPutAndNothingElse) {
  const auto map = std::make_unique<FdMap<int>>();
  int one = 1, two = 2;
  EXPECT_EQ(map->find(5), nullptr);
  EXPECT_TRUE(map->put(5, &one));
  EXPECT_TRUE(map->put(100'000, &two));
  EXPECT_EQ(map->find(5), &one);
  EXPECT_EQ(map->find(6), nullptr);
  EXPECT_EQ(map->find(100'000), &two);
  std::vector<int> seen;
  map->each([&](int fd, int*) { seen.push_back(fd); });
  EXPECT_EQ(seen, (std::vector<int>{5, 100'000}));
  EXPECT_EQ(map->take(5), &one);
  EXPECT_EQ(map->take(5), nullptr);
  EXPECT_EQ(map->find(5), nullptr);
}

TEST(FdMap, RefusesNumbersThatNoDescriptorHas) {
  const auto map = std::make_unique<FdMap<int>>();
  int one = 1;
  for (const int fd : {-1, INT32_MIN, FdMap<int>::kMost, INT32_MAX}) {
    EXPECT_FALSE(map->put(fd, &one));
    EXPECT_EQ(map->find(fd), nullptr);
    EXPECT_EQ(map->take(fd), nullptr);
  }
}

TEST(FdMap, TellsOfSomeInTurnAndOfEachOnce) {
  const auto map = std::make_unique<FdMap<int>>();
  int value = 0;
  for (const int fd : {3, 1500, 50'000}) map->put(fd, &value);
  std::vector<int> seen;
  const auto look = [&](int from, int numbers, std::size_t most) {
    seen.clear();
    return map->some(from, numbers, [&](int fd, int*) {
      seen.push_back(fd);
      return seen.size() < most;
    });
  };
  EXPECT_EQ(look(0, FdMap<int>::kMost, 9), 0);
  EXPECT_EQ(seen, (std::vector<int>{3, 1500, 50'000}));
  EXPECT_EQ(look(4, FdMap<int>::kMost, 9), 4);
  EXPECT_EQ(seen, (std::vector<int>{1500, 50'000, 3}));
  const int next = look(0, FdMap<int>::kMost, 2);
  EXPECT_EQ(seen, (std::vector<int>{3, 1500}));
  (void)look(next, FdMap<int>::kMost, 1);
  EXPECT_EQ(seen, (std::vector<int>{50'000}));
  // A few numbers at a time: those of unused pages cost none of them.
  int turns = 0, from = 4;
  do {
    from = look(from, 16, 9);
  } while (++turns < 1000 && seen != std::vector<int>{3});
  EXPECT_LE(turns, 3 * 1024 / 16 + 1);
}

TEST(FdMap, ThreadsThatTakeTheSameGetItOnce) {
  const auto map = std::make_unique<FdMap<int>>();
  int value = 0;
  std::atomic<int> taken{0};
  constexpr int kNumbers = 5000;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int fd = 0; fd < kNumbers; ++fd) map->put(fd, &value);
    });
  for (auto& thread : threads) thread.join();
  threads.clear();
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int fd = 0; fd < kNumbers; ++fd) taken += map->take(fd) != nullptr;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(taken.load(), kNumbers);
}

}  // namespace
}  // namespace viaduct::sockets
