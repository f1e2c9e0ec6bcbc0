// Registered memory and jobs.
#include <adma.h>
#include <sys/mman.h>
#include <viaduct/memnet.hpp>

#include <map>
#include <thread>

#include "memnet/memnet_lab.hpp"

namespace viaduct::memnet::testing {
namespace {

// Memory of the engine, which the server maps, or ordinary memory, which it attaches to.
enum class Kind { mapped, attached };

class Jobs : public MemnetTest, public ::testing::WithParamInterface<Kind> {
 protected:
  static constexpr std::size_t kSize = 1 << 20;
  void SetUp() override {
    MemnetTest::SetUp();
    if (GetParam() == Kind::mapped)
      bytes = static_cast<char*>(adma_alloc(kSize));
    else
      bytes = static_cast<char*>(std::malloc(kSize));
    ASSERT_NE(bytes, nullptr);
    std::memset(bytes, 0, kSize);
    ASSERT_EQ(memnet_register_mem(bytes, kSize, &memory), 0);
  }
  void TearDown() override {
    if (memory != 0) {
      EXPECT_EQ(memnet_deregister_mem(memory), 0) << std::strerror(errno);
    }
    GetParam() == Kind::mapped ? (void)adma_free(bytes) : std::free(bytes);
    MemnetTest::TearDown();
  }
  void fill(const std::string& with, std::size_t offset = 0) { std::memcpy(bytes + offset, with.data(), with.size()); }

  char* bytes = nullptr;
  memnet_mem_t memory = 0;
};

TEST_P(Jobs, SendsDirectly) {
  Pair pair;
  for (const std::size_t length : {std::size_t{1}, std::size_t{1000}, kSize - 3}) {
    const std::string what = pattern(length, static_cast<unsigned>(length));
    fill(what, 3);
    std::string got(length, 0);
    std::thread reader([&] { EXPECT_TRUE(read_all(pair.there.get(), got)); });
    EXPECT_EQ(memnet_send_direct(pair.here, memory, 3, length, 0), static_cast<ssize_t>(length))
        << std::strerror(errno);
    reader.join();
    EXPECT_EQ(got, what);
  }
}

TEST_P(Jobs, ReceivesDirectly) {
  Pair pair;
  for (const std::size_t length : {std::size_t{1}, std::size_t{1000}, kSize}) {
    const std::string what = pattern(length, static_cast<unsigned>(length));
    std::thread writer([&] { EXPECT_TRUE(write_all(pair.there.get(), what)); });
    EXPECT_EQ(memnet_recv_direct(pair.here, memory, 0, length, MSG_WAITALL), static_cast<ssize_t>(length))
        << std::strerror(errno);
    writer.join();
    EXPECT_EQ(std::string(bytes, length), what);
  }
  ::shutdown(pair.there.get(), SHUT_WR);
  EXPECT_EQ(memnet_recv_direct(pair.here, memory, 0, 10, 0), 0);
}

TEST_P(Jobs, KeepTheOrderOfAPipeline) {
  Pair pair;
  constexpr int kJobs = 100;
  std::vector<memnet_job_t> jobs(kJobs);
  std::string expected;
  for (int i = 0; i < kJobs; ++i) {
    const std::string what = pattern(977, static_cast<unsigned>(i));
    fill(what, static_cast<std::size_t>(i) * 1000);
    ASSERT_EQ(memnet_async_send(pair.here, memory, static_cast<std::size_t>(i) * 1000, what.size(), 0,
                                &jobs[static_cast<std::size_t>(i)]),
              0);
    expected += what;
  }
  std::string got(expected.size(), 0);
  ASSERT_TRUE(read_all(pair.there.get(), got));
  EXPECT_EQ(got, expected);
  for (const memnet_job_t job : jobs) {
    memnet_result result{};
    ASSERT_EQ(memnet_job_wait(job, 5000, &result), 1);
    EXPECT_EQ(result.bytes, 977);
    EXPECT_EQ(memnet_job_done(job, &result), -1) << "it was told once";
  }
}

TEST_P(Jobs, GatherFromSeveralPlaces) {
  Pair pair;
  fill("over the viaduct");
  memnet_mem_t other;
  char elsewhere[] = " and on";
  ASSERT_EQ(memnet_register_mem(elsewhere, sizeof elsewhere, &other), 0);
  const memnet_piece pieces[] = {{memory, 0, 8}, {memory, 9, 7}, {other, 0, 7}};
  EXPECT_EQ(memnet_sendv_direct(pair.here, pieces, 3, 0), 22);
  std::string got(22, 0);
  ASSERT_TRUE(read_all(pair.there.get(), got));
  EXPECT_EQ(got, "over theviaduct and on");
  EXPECT_EQ(memnet_deregister_mem(other), 0);
}

TEST_P(Jobs, ReceiveWhatWasPushedBefore) {
  Pair pair;
  ASSERT_TRUE(write_all(pair.there.get(), "early"));
  pollfd entry{pair.here, POLLIN, 0};
  ASSERT_EQ(memnet_poll(&entry, 1, 5000), 1);
  memnet_job_t first, second;
  ASSERT_EQ(memnet_async_recv(pair.here, memory, 0, 3, 0, &first), 0);
  ASSERT_EQ(memnet_async_recv(pair.here, memory, 100, 7, MSG_WAITALL, &second), 0);
  ASSERT_TRUE(write_all(pair.there.get(), "birds"));
  memnet_result result{};
  ASSERT_EQ(memnet_job_wait(first, 5000, &result), 1);
  EXPECT_EQ(result.bytes, 3);
  ASSERT_EQ(memnet_job_wait(second, 5000, &result), 1);
  EXPECT_EQ(result.bytes, 7);
  EXPECT_EQ(std::string(bytes, 3), "ear");
  EXPECT_EQ(std::string(bytes + 100, 7), "lybirds");
}

// Plain and direct in turn: every byte once and in its place.
TEST_P(Jobs, MixWithPlainCalls) {
  Pair pair;
  const std::string what = pattern(400'000);
  std::thread writer([&] { EXPECT_TRUE(write_all(pair.there.get(), what)); });
  std::string got;
  for (unsigned turn = 0; got.size() < what.size(); ++turn) {
    const std::size_t want = std::min<std::size_t>(1 + turn * 977 % 9000, what.size() - got.size());
    if (turn % 3 == 0) {
      std::string part(want, 0);
      const ssize_t more = memnet_recv(pair.here, part.data(), want, 0);
      ASSERT_GT(more, 0);
      got += part.substr(0, static_cast<std::size_t>(more));
    } else {
      const ssize_t more = memnet_recv_direct(pair.here, memory, 0, want, 0);
      ASSERT_GT(more, 0) << std::strerror(errno);
      got.append(bytes, static_cast<std::size_t>(more));
    }
  }
  writer.join();
  EXPECT_EQ(got, what);
}

TEST_P(Jobs, AreCancelledByClosing) {
  Pair pair;
  memnet_job_t job;
  ASSERT_EQ(memnet_async_recv(pair.here, memory, 0, 10, 0, &job), 0);
  memnet_result result{};
  EXPECT_EQ(memnet_job_wait(job, 10, &result), 0) << "nothing came";
  EXPECT_EQ(memnet_deregister_mem(memory), -1);
  EXPECT_EQ(errno, EBUSY);
  ASSERT_EQ(memnet_close(pair.here), 0);
  pair.here = -1;
  ASSERT_EQ(memnet_job_wait(job, 5000, &result), 1);
  EXPECT_EQ(result.bytes, -1);
  EXPECT_EQ(result.error, ECANCELED);
}

TEST_P(Jobs, AreCancelledOneByOne) {
  Pair pair;
  memnet_job_t first, second;
  ASSERT_EQ(memnet_async_recv(pair.here, memory, 0, 10, 0, &first), 0);
  ASSERT_EQ(memnet_async_recv(pair.here, memory, 50, 10, 0, &second), 0);
  EXPECT_EQ(memnet_job_cancel(first), 0);
  memnet_result result{};
  ASSERT_EQ(memnet_job_wait(first, 5000, &result), 1);
  EXPECT_EQ(result.error, ECANCELED);
  ASSERT_TRUE(write_all(pair.there.get(), "second"));
  ASSERT_EQ(memnet_job_wait(second, 5000, &result), 1);
  EXPECT_EQ(result.bytes, 6);
  EXPECT_EQ(std::string(bytes + 50, 6), "second");
}

TEST_P(Jobs, SendsGoOnAfterClosing) {
  Pair pair;
  const std::string what = pattern(kSize);
  fill(what);
  memnet_job_t job;
  ASSERT_EQ(memnet_async_send(pair.here, memory, 0, kSize, 0, &job), 0);
  ASSERT_EQ(memnet_close(pair.here), 0);
  pair.here = -1;
  std::string got(kSize, 0);
  ASSERT_TRUE(read_all(pair.there.get(), got));
  EXPECT_EQ(got, what);
  char more;
  EXPECT_EQ(::read(pair.there.get(), &more, 1), 0);
  memnet_result result{};
  ASSERT_EQ(memnet_job_wait(job, 5000, &result), 1);
  EXPECT_EQ(result.bytes, static_cast<ssize_t>(kSize));
}

TEST_P(Jobs, FailWhenThePeerResets) {
  Pair pair;
  memnet_job_t receive;
  ASSERT_EQ(memnet_async_recv(pair.here, memory, 0, 10, 0, &receive), 0);
  const linger abort{1, 0};
  ::setsockopt(pair.there.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  pair.there.reset();
  memnet_result result{};
  ASSERT_EQ(memnet_job_wait(receive, 5000, &result), 1);
  EXPECT_EQ(result.error, ECONNRESET);
  EXPECT_EQ(memnet_send_direct(pair.here, memory, 0, 10, 0), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_P(Jobs, ReportWhatCannotBe) {
  Pair pair;
  memnet_job_t job;
  EXPECT_EQ(memnet_async_send(pair.here, memory, kSize, 1, 0, &job), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(memnet_async_send(pair.here, memory, 0, SIZE_MAX, 0, &job), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(memnet_async_send(pair.here, memory + 1, 0, 1, 0, &job), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(memnet_async_send(pair.here + 1000, memory, 0, 1, 0, &job), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(memnet_job_wait(12345, 0, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(memnet_register_mem(nullptr, 1, &memory), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(memnet_async_send(pair.here, memory, 0, 1, MSG_OOB, &job), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_P(Jobs, HaveABound) {
  Pair pair;
  std::vector<memnet_job_t> jobs;
  memnet_job_t job;
  while (jobs.size() < 1000 && memnet_async_recv(pair.here, memory, 0, 1, 0, &job) == 0) jobs.push_back(job);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(jobs.size(), 256u);
  ASSERT_TRUE(write_all(pair.there.get(), "x"));
  ASSERT_EQ(memnet_job_wait(jobs[0], 5000, nullptr), 1);
  ASSERT_EQ(memnet_async_recv(pair.here, memory, 0, 1, 0, &job), 0) << "one has ended";
  jobs.push_back(job);
  memnet_close(pair.here);
  pair.here = -1;
  for (std::size_t i = 1; i < jobs.size(); ++i) ASSERT_EQ(memnet_job_wait(jobs[i], 5000, nullptr), 1);
}

TEST_P(Jobs, BatchesAreSubmittedAndReapedAtOnce) {
  Pair one, two;
  fill("firstsecond");
  memnet_request requests[4] = {};
  requests[0] = {MEMNET_SEND, one.here, 0, 0, memory, 0, 5, bytes, 0};
  requests[1] = {MEMNET_SEND, two.here, 0, 0, memory, 5, 6, nullptr, 0};
  requests[2] = {MEMNET_RECV, one.here, 0, 0, memory, 100, 10, bytes + 1, 0};
  requests[3] = {MEMNET_SEND, 99999, 0, 0, memory, 0, 1, nullptr, 0};
  EXPECT_EQ(memnet_submit(requests, 4), 3);
  EXPECT_EQ(requests[3].job, 0u);
  std::string got(5, 0);
  ASSERT_TRUE(read_all(one.there.get(), got));
  ASSERT_TRUE(write_all(one.there.get(), "reply"));
  std::map<memnet_job_t, memnet_result> ended;
  while (ended.size() < 3) {
    memnet_result results[8];
    const int count = memnet_reap(results, 8, 5000);
    ASSERT_GT(count, 0);
    for (int i = 0; i < count; ++i) ended[results[i].job] = results[i];
  }
  EXPECT_EQ(ended[requests[0].job].bytes, 5);
  EXPECT_EQ(ended[requests[0].job].context, bytes);
  EXPECT_EQ(ended[requests[1].job].bytes, 6);
  EXPECT_EQ(ended[requests[2].job].bytes, 5);
  EXPECT_EQ(std::string(bytes + 100, 5), "reply");
  EXPECT_EQ(memnet_reap(nullptr, 1, 0), -1);
  memnet_result result;
  EXPECT_EQ(memnet_reap(&result, 1, 10), 0);
}

TEST_P(Jobs, AcceptLater) {
  Listener listener;
  memnet_job_t job;
  ASSERT_EQ(memnet_async_accept(listener.socket, &job), 0);
  memnet_result result{};
  EXPECT_EQ(memnet_job_done(job, &result), 0);
  const Fd there = kernel_connect(listener.address);
  ASSERT_EQ(memnet_job_wait(job, 5000, &result), 1);
  const int here = static_cast<int>(result.bytes);
  ASSERT_GE(here, 0);
  ASSERT_EQ(memnet_send(here, "x", 1, 0), 1);
  std::string got(1, 0);
  EXPECT_TRUE(read_all(there.get(), got));
  EXPECT_EQ(memnet_close(here), 0);
  ASSERT_EQ(memnet_async_accept(listener.socket, &job), 0);
  memnet_close(listener.socket);
  ASSERT_EQ(memnet_job_wait(job, 5000, &result), 1);
  EXPECT_EQ(result.error, ECANCELED);
}

TEST_P(Jobs, SendFiles) {
  Pair pair;
  const std::string what = pattern(300'000);
  char name[] = "/tmp/memnet-test-XXXXXX";
  const Fd file(::mkstemp(name));
  ::unlink(name);
  ASSERT_EQ(::write(file.get(), what.data(), what.size()), static_cast<ssize_t>(what.size()));
  std::string got(what.size() - 1000, 0);
  std::thread reader([&] { EXPECT_TRUE(read_all(pair.there.get(), got)); });
  off_t offset = 1000;
  EXPECT_EQ(memnet_sendfile(pair.here, file.get(), &offset, 1 << 20), static_cast<ssize_t>(got.size()))
      << std::strerror(errno);
  reader.join();
  EXPECT_EQ(offset, static_cast<off_t>(what.size()));
  EXPECT_EQ(got, what.substr(1000));
  memnet_job_t job;
  const Fd not_a_file(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(memnet_async_sendfile(pair.here, not_a_file.get(), 0, 10, 0, &job), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(memnet_async_sendfile(pair.here, -1, 0, 10, 0, &job), -1);
  EXPECT_EQ(errno, EBADF);
}

// ---- C++

struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Task echo(int socket, const Memory& memory, bool& over) {
  for (;;) {
    Job receive = memnet::receive(socket, memory.part(0, 64));
    if (co_await receive || receive.bytes() == 0) break;
    Job send = memnet::send(socket, memory.part(0, static_cast<std::size_t>(receive.bytes())));
    if (co_await send) break;
  }
  over = true;
}

TEST_P(Jobs, AreAwaited) {
  Pair pair;
  const Memory all(std::as_writable_bytes(std::span(bytes, kSize)));
  ASSERT_TRUE(all);
  bool over = false;
  echo(pair.here, all, over);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(write_all(pair.there.get(), "echo" + std::to_string(i % 10)));
    std::string got(5, 0);
    pollfd entry{pair.there.get(), POLLIN, 0};
    while (::poll(&entry, 1, 0) == 0) (void)memnet_wait(1);
    ASSERT_TRUE(read_all(pair.there.get(), got));
    EXPECT_EQ(got, "echo" + std::to_string(i % 10));
  }
  ::shutdown(pair.there.get(), SHUT_WR);
  while (!over) (void)memnet_wait(1);
}

INSTANTIATE_TEST_SUITE_P(Of, Jobs, ::testing::Values(Kind::mapped, Kind::attached),
                         [](const auto& one) { return one.param == Kind::mapped ? "MappedMemory" : "OrdinaryMemory"; });

}  // namespace
}  // namespace viaduct::memnet::testing
