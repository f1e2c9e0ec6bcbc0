// Notify functions: called once for each request, in order, by a thread that is there only if somebody asked.
#include <dirent.h>

#include <condition_variable>
#include <mutex>

#include "base/child.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

int threads() {
  DIR* const listing = ::opendir("/proc/self/task");
  int count = 0;
  while (const dirent* entry = ::readdir(listing)) count += entry->d_name[0] != '.';
  ::closedir(listing);
  return count;
}

// What handlers were told.
class Notes {
 public:
  struct Note {
    VIP_NIC_HANDLE nic;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR* descriptor;
    VIP_BOOLEAN receive;
  };
  static void of_queue(VIP_PVOID self, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR* descriptor) {
    static_cast<Notes*>(self)->add({nic, vi, descriptor, -1});
  }
  static void of_cq(VIP_PVOID self, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_BOOLEAN receive) {
    static_cast<Notes*>(self)->add({nic, vi, nullptr, receive});
  }
  void add(Note note) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(note);
    changed_.notify_all();
  }
  std::vector<Note> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return notes_.size() >= count; });
    return notes_;
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return notes_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Note> notes_;
};

class ViplNotify : public ::testing::Test {
 protected:
  void SetUp() override { connect_here(program_, a_, b_); }
  HangGuard guard_;
  Notes notes_;
  Program program_;
  VIP_VI_HANDLE a_ = program_.make_vi(), b_ = program_.make_vi();
};

TEST_F(ViplNotify, TellsOfAReceiveOnceAndInOrder) {
  const int before = threads();
  for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(program_.post_receive(b_, i, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(threads(), before) << "nobody has asked";
  for (int i = 0; i < 3; ++i) ASSERT_EQ(VipRecvNotify(b_, &notes_, Notes::of_queue), VIP_SUCCESS);
  const int started = threads() - before;
  EXPECT_TRUE(started == 1 || (viaduct::testing::kSanitized && started == 2))
      << started;  // a sanitizer's own comes along
  for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(program_.post_send(a_, 10 + i, 4096, 8), VIP_SUCCESS);
  const auto told = notes_.wait_for(3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told[i].nic, program_.nic);
    EXPECT_EQ(told[i].vi, b_);
    EXPECT_EQ(told[i].descriptor, program_.descriptor(i));
  }
  EXPECT_EQ(received(b_), program_.descriptor(3)) << "nobody asked to be told of the fourth";
  EXPECT_EQ(notes_.count(), 3u);
  EXPECT_EQ(VipRecvNotify(b_, &notes_, nullptr), VIP_INVALID_PARAMETER);
}

TEST_F(ViplNotify, TellsOfWhatIsCompleteAlready) {
  ASSERT_EQ(program_.post_receive(b_, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program_.post_send(a_, 1, 4096, 8), VIP_SUCCESS);
  ASSERT_EQ(VipSendNotify(a_, &notes_, Notes::of_queue), VIP_SUCCESS);
  EXPECT_EQ(notes_.wait_for(1)[0].descriptor, program_.descriptor(1));
  ASSERT_EQ(VipRecvNotify(b_, &notes_, Notes::of_queue), VIP_SUCCESS);
  EXPECT_EQ(notes_.wait_for(2)[1].descriptor, program_.descriptor(0));
}

TEST_F(ViplNotify, TellsOfFlushedDescriptors) {
  ASSERT_EQ(program_.post_receive(b_, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(VipRecvNotify(b_, &notes_, Notes::of_queue), VIP_SUCCESS);
  ASSERT_EQ(VipDisconnect(a_), VIP_SUCCESS);
  EXPECT_TRUE(notes_.wait_for(1)[0].descriptor->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
}

TEST_F(ViplNotify, RequestsOfADestroyedViAreForgotten) {
  const VIP_VI_HANDLE lonely = program_.make_vi();
  ASSERT_EQ(program_.post_receive(lonely, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(VipRecvNotify(lonely, &notes_, Notes::of_queue), VIP_SUCCESS);
  EXPECT_EQ(VipDestroyVi(lonely), VIP_SUCCESS);
  program_.forget(lonely);
  EXPECT_EQ(notes_.count(), 0u);
}

TEST_F(ViplNotify, TellsOfCompletionQueues) {
  const VIP_CQ_HANDLE cq = program_.make_cq();
  const VIP_VI_HANDLE c = program_.make_vi({.receive_cq = cq}), d = program_.make_vi();
  connect_here(program_, c, d);
  ASSERT_EQ(program_.post_receive(c, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(program_.post_receive(c, 1, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(VipCQNotify(cq, &notes_, Notes::of_cq), VIP_SUCCESS);
  EXPECT_EQ(VipCQNotify(cq, &notes_, nullptr), VIP_INVALID_PARAMETER);
  ASSERT_EQ(program_.post_send(d, 2, 4096, 8), VIP_SUCCESS);
  ASSERT_EQ(program_.post_send(d, 3, 4096, 8), VIP_SUCCESS);
  const auto told = notes_.wait_for(1);
  EXPECT_EQ(told[0].vi, c);
  EXPECT_EQ(told[0].receive, VIP_TRUE);
  EXPECT_EQ(received(c), program_.descriptor(0)) << "still to be taken from the queue";
  VIP_VI_HANDLE vi = nullptr;
  VIP_BOOLEAN receive = -1;
  EXPECT_EQ(VipCQWait(cq, kSoon, &vi, &receive), VIP_SUCCESS) << "the second entry is ours";
  EXPECT_EQ(notes_.count(), 1u);
}

// A server made of one handler: it posts again, answers, and asks to be told of the next.
struct Echo {
  Program* program;
  std::atomic<int> rounds{0};
  std::atomic<int> faults{0};
  static void handler(VIP_PVOID self, VIP_NIC_HANDLE, VIP_VI_HANDLE vi, VIP_DESCRIPTOR* descriptor) {
    auto& echo = *static_cast<Echo*>(self);
    Program& program = *echo.program;
    if (descriptor->CS.Status & VIP_STATUS_ERROR_MASK) return;  // the other has gone
    ++echo.rounds;
    VIP_DESCRIPTOR* back = nullptr;
    const bool fine = program.post_receive(vi, 0, 0, 8) == VIP_SUCCESS &&
                      VipRecvNotify(vi, self, handler) == VIP_SUCCESS &&
                      program.post_send(vi, 1, 4096, 8) == VIP_SUCCESS && VipSendWait(vi, kSoon, &back) == VIP_SUCCESS;
    if (!fine) ++echo.faults;
  }
};

TEST_F(ViplNotify, AHandlerMayCallEverything) {
  const std::string name = own_name("echo");
  constexpr int kRounds = 200;
  Child client([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    VIP_DESCRIPTOR* descriptor = nullptr;
    for (int i = 0; i < kRounds; ++i) {
      CHILD_EXPECT(program.post_receive(vi, 0, 0, 8) == VIP_SUCCESS);
      CHILD_EXPECT(program.post_send(vi, 1, 0, 8) == VIP_SUCCESS);
      CHILD_EXPECT(VipSendWait(vi, kSoon, &descriptor) == VIP_SUCCESS);
      CHILD_EXPECT(VipRecvWait(vi, kSoon, &descriptor) == VIP_SUCCESS);
    }
    return 0;
  });
  Echo echo{&program_};
  const VIP_VI_HANDLE vi = program_.make_vi();
  ASSERT_EQ(program_.post_receive(vi, 0, 0, 8), VIP_SUCCESS);
  ASSERT_EQ(VipRecvNotify(vi, &echo, Echo::handler), VIP_SUCCESS) << "before there is a connection";
  ASSERT_EQ(program_.serve(name, vi), VIP_SUCCESS);
  EXPECT_EQ(client.wait(), 0) << "this thread did nothing";
  EXPECT_EQ(echo.faults, 0);
  EXPECT_GE(echo.rounds, kRounds);
  EXPECT_EQ(VipDisconnect(vi), VIP_SUCCESS);
}

TEST(ViplNotifyClose, TheAdapterClosesFromAHandler) {
  HangGuard guard;
  struct Closing {
    std::atomic<int> result{-1};
    static void handler(VIP_PVOID self, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR*) {
      const bool fine = VipDisconnect(vi) == VIP_INVALID_STATE && VipDestroyVi(vi) == VIP_SUCCESS;
      static_cast<Closing*>(self)->result = fine ? VipCloseNic(nic) : 99;
    }
  } closing;
  VIP_NIC_HANDLE nic = nullptr;
  ASSERT_EQ(VipOpenNic("viaduct", &nic), VIP_SUCCESS);
  VIP_VI_ATTRIBUTES attributes{VIP_SERVICE_UNRELIABLE, 4096, nullptr, nullptr, 0, 0};
  VIP_VI_HANDLE vi = nullptr;
  ASSERT_EQ(VipCreateVi(nic, &attributes, nullptr, nullptr, &vi), VIP_SUCCESS);
  alignas(64) static VIP_DESCRIPTOR descriptor{};
  VIP_MEM_ATTRIBUTES memory{nullptr, 0, 0};
  VIP_MEM_HANDLE handle = 0;
  ASSERT_EQ(VipRegisterMem(nic, &descriptor, sizeof descriptor, &memory, &handle), VIP_SUCCESS);
  ASSERT_EQ(VipSendNotify(vi, &closing, Closing::handler), VIP_SUCCESS);
  ASSERT_EQ(VipPostSend(vi, &descriptor, handle), VIP_SUCCESS) << "idle: it comes back flushed";
  while (closing.result == -1) ::usleep(100);
  EXPECT_EQ(closing.result, VIP_SUCCESS);
  EXPECT_EQ(VipCloseNic(nic), VIP_INVALID_PARAMETER);
}

}  // namespace
}  // namespace viaduct::vipl::testing
