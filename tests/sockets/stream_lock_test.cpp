// The locks of a half: between threads and processes, alive, stopped and dead.
#include "sockets/stream_lock.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/child.hpp"

namespace viaduct::sockets {
namespace {

// Who is alone on its side still keeps the other side out, which comes with a full exchange, and is kept out by it.
TEST(StreamLock, OfOneAloneHoldsOthersOff) {
  const testing::HangGuard guard;
  std::atomic<std::uint32_t> word{0};
  for (const bool alone_first : {true, false}) {
    std::atomic<bool> inside{false}, overlap{false};
    std::thread other;
    {
      const StreamLock first(word, alone_first);
      inside = true;
      other = std::thread([&] {
        const StreamLock second(word, !alone_first);
        overlap = inside.load();
      });
      ::usleep(500);  // not for ever: a holder that never lets go is replaced
      inside = false;
    }
    other.join();
    EXPECT_FALSE(overlap) << alone_first;
    EXPECT_EQ(word.load(), 0u);
  }
}

TEST(StreamLock, OfTheDeadIsTakenOver) {
  const testing::HangGuard guard;
  std::atomic<std::uint32_t> word{0};
  testing::Child child([] { return 0; });
  const int pid = child.pid();
  child.wait();
  word.store(static_cast<std::uint32_t>(pid));
  { const StreamLock lock(word); }
  EXPECT_EQ(word.load(), 0U);
  word.store(0x7fff'fff1);  // never was a thread
  { const StreamLock lock(word); }
  EXPECT_EQ(word.load(), 0U);
}

template <class Quick>
void is_of_one_at_a_time(bool alone) {
  std::atomic<std::uint32_t> word{0};
  {
    const Quick quick(word, alone);
    EXPECT_TRUE(quick.is_taken());
    EXPECT_FALSE(Quick(word, alone).is_taken());
  }
  EXPECT_EQ(word.load(), 0u);
  {
    const StreamLock slow(word, alone);
    EXPECT_FALSE(Quick(word, !alone).is_taken());
    EXPECT_NE(word.load(), 0u);  // who did not get it has not let it go
  }
  EXPECT_EQ(word.load(), 0u);
  {
    const Quick quick(word, alone);
    word.store(12345);  // another has taken it over
  }
  EXPECT_EQ(word.load(), 12345u);
}

TEST(QuickLock, IsOfOneAtATimeAndWaitsForNobody) {
  for (const bool alone : {false, true}) {
    is_of_one_at_a_time<QuickLock<LettingGo::is_a_fence>>(alone);
    is_of_one_at_a_time<QuickLock<LettingGo::is_none>>(alone);
  }
}

TEST(StreamLock, AHolderThatIsStoppedIsWaitedFor) {
  const testing::HangGuard guard;
  struct Shared {
    std::atomic<std::uint32_t> lock;
    std::atomic<int> done;
  };
  void* const page = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto& shared = *static_cast<Shared*>(page);
  testing::Child child([&shared] {
    forget_thread_mark();
    const StreamLock lock(shared.lock);
    ::raise(SIGSTOP);
    shared.done = 1;
    return 0;
  });
  siginfo_t stopped{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &stopped, WSTOPPED | WNOWAIT), 0);
  std::atomic<bool> held{false};
  int done = 0;
  std::thread other([&] {
    const StreamLock lock(shared.lock);
    held = true;
    done = shared.done;
  });
  ::usleep(1'500'000);  // longer than a live one is waited for that is not stopped
  EXPECT_FALSE(held);
  ::kill(child.pid(), SIGCONT);
  other.join();
  EXPECT_EQ(done, 1);
  child.wait();
  ::munmap(page, sizeof(Shared));
}

}  // namespace
}  // namespace viaduct::sockets
