#include "base/spin_lock.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "base/child.hpp"

namespace viaduct {
namespace {

TEST(SpinLock, IsHeldByOne) {
  SpinLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

// More threads than processors: some wait for a holder that does not run.
TEST(SpinLock, NothingIsLostBetweenThreads) {
  const testing::HangGuard guard;
  constexpr int kThreads = 8;
  const int each = testing::rounds(20'000);
  SpinLock lock;
  long count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < each; ++round) {
        const std::lock_guard held(lock);
        ++count;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, long{kThreads} * each);
}

}  // namespace
}  // namespace viaduct
