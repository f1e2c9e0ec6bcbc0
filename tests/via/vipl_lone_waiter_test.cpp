// Whoever waits, alone or with others, hears of what other threads of its own process complete.
#include <sys/syscall.h>

#include <fstream>
#include <thread>

#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

// A thread of this process, watched from outside: whether it is in the kernel for good, not in the short nap with which
// a wait begins.
class Watched {
 public:
  void here() { thread_ = static_cast<pid_t>(::syscall(SYS_gettid)); }
  void until_asleep() const {
    while (thread_ == 0) std::this_thread::yield();
    constexpr int kLooks = 50;
    std::string before;
    for (int same = 0; same < kLooks; ::usleep(100)) {
      const std::string now = state();
      same = now == before && now.front() == 'S' ? same + 1 : 0;
      before = now;
    }
  }

 private:
  // The letter of its state, and how often it has given up its processor.
  std::string state() const {
    std::ifstream file("/proc/self/task/" + std::to_string(thread_) + "/status");
    std::string letter = "?", switches;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("State:")) letter = line.substr(7, 1);
      if (line.starts_with("voluntary_ctxt_switches:")) switches = line;
    }
    return letter + switches;
  }
  std::atomic<pid_t> thread_{0};
};

// What a notify function was told, and by which thread.
struct Told {
  Watched thread;
  std::atomic<int> times{0};
  void once_more() {
    thread.here();
    ++times;
  }
  void until(int count) const {
    while (times < count) std::this_thread::yield();
  }
};

class ViplLoneWaiter : public ::testing::Test {
 protected:
  static constexpr int kRounds = 10;

  void connect(const ViOptions& options = {}) {
    a_ = program_.make_vi(options);
    b_ = program_.make_vi();
    connect_here(program_, a_, b_);
    for (std::size_t i = 0; i < 2 * kRounds; ++i) ASSERT_EQ(program_.post_receive(b_, 20 + i, 0, 8), VIP_SUCCESS);
  }
  VIP_RETURN post(int round) { return program_.post_send(a_, static_cast<std::size_t>(round), 4096, 8); }

  HangGuard guard_;
  Program program_;
  VIP_VI_HANDLE a_ = nullptr, b_ = nullptr;
};

TEST_F(ViplLoneWaiter, OfACompletionQueueHearsOfASendOfAnotherThread) {
  const VIP_CQ_HANDLE cq = program_.make_cq();
  connect({.send_cq = cq});
  for (int round = 0; round < kRounds; ++round) {
    Watched watched;
    std::thread waiting([&] {
      VIP_VI_HANDLE vi = nullptr;
      VIP_BOOLEAN receive = -1;
      watched.here();
      EXPECT_EQ(VipCQWait(cq, VIP_INFINITE, &vi, &receive), VIP_SUCCESS);
      EXPECT_EQ(vi, a_);
    });
    watched.until_asleep();
    EXPECT_EQ(post(round), VIP_SUCCESS);
    waiting.join();
  }
}

TEST_F(ViplLoneWaiter, NotifyFunctionsAreToldOfSendsOfAnotherThread) {
  connect();
  Told told;
  const auto handler = [](VIP_PVOID self, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR*) {
    static_cast<Told*>(self)->once_more();
  };
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_EQ(VipSendNotify(a_, &told, handler), VIP_SUCCESS);
    if (round != 0) told.thread.until_asleep();
    ASSERT_EQ(post(round), VIP_SUCCESS);
    told.until(round + 1);
  }
}

TEST_F(ViplLoneWaiter, NotifyFunctionsOfACompletionQueueAreToldOfSendsOfAnotherThread) {
  const VIP_CQ_HANDLE cq = program_.make_cq();
  connect({.send_cq = cq});
  Told told;
  const auto handler = [](VIP_PVOID self, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_BOOLEAN) {
    static_cast<Told*>(self)->once_more();
  };
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_EQ(VipCQNotify(cq, &told, handler), VIP_SUCCESS);
    if (round != 0) told.thread.until_asleep();
    ASSERT_EQ(post(round), VIP_SUCCESS);
    told.until(round + 1);
  }
}

// Several wait, each for a queue of its own; one sleeps as leader, and whoever leaves hands that on. Meanwhile a thread
// polls, and the sends come from outside.
TEST(ViplWaiters, EachHearsOfItsOwnCompletions) {
  HangGuard guard;
  constexpr std::size_t kWaiters = 3;
  const int rounds = kSanitized ? 300 : 3000;
  Program program;
  std::vector<VIP_VI_HANDLE> from;
  std::vector<VIP_CQ_HANDLE> queues;
  std::vector<std::thread> threads;
  std::atomic<bool> over{false};
  for (std::size_t i = 0; i < kWaiters; ++i) {
    queues.push_back(program.make_cq());
    // An unreliable VI drops what its peer is not ready for.
    from.push_back(program.make_vi({.level = VIP_SERVICE_UNRELIABLE, .send_cq = queues.back()}));
    const VIP_VI_HANDLE to = program.make_vi({.level = VIP_SERVICE_UNRELIABLE});
    connect_here(program, from.back(), to);
    threads.emplace_back([&over, to] {  // makes room
      VIP_DESCRIPTOR* descriptor = nullptr;
      for (; !over; std::this_thread::yield()) (void)VipRecvDone(to, &descriptor);
    });
  }
  std::vector<std::atomic<int>> heard(kWaiters);
  std::vector<std::thread> waiting;
  for (std::size_t i = 0; i < kWaiters; ++i)
    waiting.emplace_back([&, i] {
      VIP_VI_HANDLE vi = nullptr;
      VIP_BOOLEAN receive = -1;
      VIP_DESCRIPTOR* descriptor = nullptr;
      for (int round = 0; round < rounds; ++round) {
        ASSERT_EQ(VipCQWait(queues[i], VIP_INFINITE, &vi, &receive), VIP_SUCCESS);
        ASSERT_EQ(VipSendDone(from[i], &descriptor), VIP_SUCCESS);
        ++heard[i];
      }
    });
  const VIP_CQ_HANDLE polled = program.make_cq();
  threads.emplace_back([&] {
    VIP_VI_HANDLE vi = nullptr;
    VIP_BOOLEAN receive = -1;
    for (; !over; std::this_thread::yield()) (void)VipCQDone(polled, &vi, &receive);
  });
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < kWaiters; ++i) {
      while (heard[i] < round) std::this_thread::yield();
      ASSERT_EQ(program.post_send(from[i], i, 4096, 8), VIP_SUCCESS);
    }
  for (std::thread& thread : waiting) thread.join();
  over = true;
  for (std::thread& thread : threads) thread.join();
}

// A thread that calls the handler leads no more: another one of those that wait has to.
TEST(ViplWaiters, HearWhileAnErrorHandlerTakesItsTime) {
  HangGuard guard;
  Program program;
  struct Handler {
    std::atomic<int> calls{0};
    std::atomic<int> heard{0};
    static void handle(VIP_PVOID self, VIP_ERROR_DESCRIPTOR*) {
      auto& handler = *static_cast<Handler*>(self);
      if (handler.calls++ != 0) return;
      while (handler.heard == 0) std::this_thread::yield();
    }
  } handler;
  ASSERT_EQ(VipErrorCallback(program.nic, &handler, Handler::handle), VIP_SUCCESS);
  const VIP_CQ_HANDLE cq = program.make_cq();
  const VIP_VI_HANDLE breaks = program.make_vi({.receive_cq = cq}), culprit = program.make_vi();
  const VIP_VI_HANDLE from = program.make_vi(), to = program.make_vi({.receive_cq = cq});
  connect_here(program, breaks, culprit);
  connect_here(program, from, to);
  for (std::size_t i = 0; i < 2; ++i) ASSERT_EQ(program.post_receive(to, i, 0, 8), VIP_SUCCESS);
  std::vector<Watched> watched(2);
  std::vector<std::thread> waiting;
  for (Watched& one : watched)
    waiting.emplace_back([&] {
      one.here();
      VIP_VI_HANDLE vi = nullptr;
      VIP_BOOLEAN receive = -1;
      EXPECT_EQ(VipCQWait(cq, VIP_INFINITE, &vi, &receive), VIP_SUCCESS);
      EXPECT_EQ(vi, to);
      ++handler.heard;
    });
  for (const Watched& one : watched) one.until_asleep();
  ASSERT_EQ(program.post_send(culprit, 10, 4096, 8), VIP_SUCCESS) << "for which there is no descriptor";
  while (handler.calls == 0) std::this_thread::yield();
  for (std::size_t i = 0; i < 2; ++i) ASSERT_EQ(program.post_send(from, 11 + i, 4096, 8), VIP_SUCCESS);
  for (std::thread& thread : waiting) thread.join();
}

}  // namespace
}  // namespace viaduct::vipl::testing
