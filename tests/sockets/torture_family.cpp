// Each end of a connection is held by several processes, which take turns at it: they fork, start programs with and
// without the library that go on with it, pass it on to such, leave, are killed and stopped, while the connection is
// asked to go back to TCP. Every byte is looked at. Every other time much more is sent than received, so that all of
// that happens with full rings and bytes unread on TCP.
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "sockets/pass_descriptor.hpp"
#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr int kMostMembers = 4;  // of an end
constexpr std::size_t kLargest = 120'000;

// What the members of an end do one at a time: sending, or receiving.
struct Turn {
  std::atomic<bool> taken;
  std::atomic<std::uint64_t> at;  // of the stream
};

// What all of them know, in memory that they share.
struct Plan {
  Turn sending[2], receiving[2];
  std::atomic<int> members[2];  // and those that are on their way
  std::array<std::atomic<pid_t>, 64> numbers[2];
  bool full;               // more is sent than received
  std::atomic<bool> over;  // nothing more is sent
  std::atomic<int> wrong;
  std::array<char, 4096> library;  // LD_PRELOAD of those that are to have it
};

std::uint64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

template <class Use>
void in_turn(Turn& turn, Use&& use) {
  if (turn.taken.exchange(true)) return;
  use();
  turn.taken = false;
}

class Member {
 public:
  Member(Plan& plan, int memory, int fd, int end)
      : plan_(plan), memory_(memory), fd_(fd), end_(end), buffer_(kLargest) {
    be_born();
  }

  // Until everything has come.
  void run() {
    while (!is_done()) {
      for (int i = 0; i < 20; ++i) random_() % 4 < (plan_.full ? 3 : 2) ? send_some() : receive_some();
      if (random_() % 4 == 0) ::usleep(random_() % 500);
      if (!plan_.over && plan_.members[end_] < kMostMembers) multiply();
      if (now_ms() > leaves_at_) leave_to_others();
    }
  }

 private:
  void be_born() {
    random_.seed(static_cast<unsigned>(::getpid()) * 7919U + static_cast<unsigned>(now_ms()));
    leaves_at_ = now_ms() + 50 + random_() % 400;
    change_number(0, ::getpid());
    set_ = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN | (random_() % 2 == 0 ? static_cast<std::uint32_t>(EPOLLET) : 0U);
    ::epoll_ctl(set_, EPOLL_CTL_ADD, fd_, &event);
  }

  void change_number(pid_t from, pid_t to) {
    for (std::atomic<pid_t>& number : plan_.numbers[end_])
      if (pid_t expected = from; number.compare_exchange_strong(expected, to)) return;
  }

  bool is_done() const {
    const auto all = [this](int end) { return plan_.receiving[1 - end].at == plan_.sending[end].at; };
    return plan_.wrong != 0 || (plan_.over && all(0) && all(1));
  }

  void fail(const char* what, std::uint64_t at) {
    if (plan_.wrong++ == 0)
      std::fprintf(stderr, "torture: end %d, %s: %s at %" PRIu64 ", errno %d\n", end_,
                   std::getenv("LD_PRELOAD") != nullptr ? "with the library" : "without it", what, at, errno);
  }

  // Says what came instead: something twice, something later, or what is no part of the stream.
  void fail_at(std::uint64_t at, std::size_t wrong, std::size_t got) {
    fail("a wrong byte", at + wrong);
    constexpr std::int64_t kFar = 4 << 20;
    constexpr std::size_t kEnough = 8;
    std::string bytes;
    for (std::size_t i = wrong; i < std::min(got, wrong + 16); ++i) bytes += " " + std::to_string(buffer_[i]);
    std::fprintf(stderr, "torture: byte %zu of %zu in that call, then %zu more:%s\n", wrong, got, got - wrong,
                 bytes.c_str());
    for (std::size_t from = wrong; from < wrong + 16 && from + kEnough <= got; ++from)
      for (std::int64_t shift = -kFar; shift <= kFar; ++shift) {
        const auto is_there = [&](std::size_t i) {
          return buffer_[i] == byte_at(1 - end_, at + i + static_cast<std::uint64_t>(shift));
        };
        std::size_t i = from;
        while (i < got && is_there(i)) ++i;
        if (i - from < kEnough) continue;
        std::fprintf(stderr, "torture: from byte %zu of that call on %zu belong %" PRId64 " further\n", from, i - from,
                     shift);
        return;
      }
  }

  void send_some() {
    if (plan_.over) return;
    Turn& turn = plan_.sending[end_];
    in_turn(turn, [&] {
      const unsigned kind = random_() % 10;
      const unsigned short_ones = plan_.full ? 1 : 6, all_but_long = plan_.full ? 2 : 9;
      const std::size_t size = 1 + random_() % (kind < short_ones ? 60 : kind < all_but_long ? 4000 : kLargest);
      const std::uint64_t at = turn.at;
      for (std::size_t i = 0; i < size; ++i) buffer_[i] = byte_at(end_, at + i);
      const ssize_t sent = ::send(fd_, buffer_.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) turn.at = at + static_cast<std::uint64_t>(sent);
      if (sent < 0 && errno != EAGAIN) fail("send", at);
    });
  }

  void receive_some() {
    Turn& turn = plan_.receiving[end_];
    in_turn(turn, [&] {
      if (random_() % 2 == 0) wait();
      const std::size_t size = 1 + random_() % (random_() % 3 == 0 ? 64 : plan_.full ? 20'000 : 70'000);
      const std::uint64_t at = turn.at;
      const ssize_t got = ::recv(fd_, buffer_.data(), size, MSG_DONTWAIT);
      if (got < 0 && errno != EAGAIN && !is_done()) fail("recv", at);
      if (got == 0 && !is_done()) fail("an early end", at);
      for (ssize_t i = 0; i < got; ++i)
        if (buffer_[static_cast<std::size_t>(i)] != byte_at(1 - end_, at + static_cast<std::uint64_t>(i)))
          return fail_at(at, static_cast<std::size_t>(i), static_cast<std::size_t>(got));
      if (got > 0) turn.at = at + static_cast<std::uint64_t>(got);
    });
  }

  void wait() {
    constexpr int kMs = 5;  // others have their turn too
    pollfd entry{fd_, POLLIN, 0};
    epoll_event event;
    if (random_() % 2 == 0)
      ::poll(&entry, 1, kMs);
    else
      ::epoll_wait(set_, &event, 1, kMs);
  }

  void multiply() {
    const unsigned how = random_() % (plan_.full ? 60 : 300);
    if (how >= 16) return;
    ++plan_.members[end_];
    if (how < 6)
      in_grandchild([&] { be_born(), run(), ::_exit(0); });
    else if (how < 12)
      in_grandchild([&] { become("member", fd_, how < 9); });
    else
      pass_on(how < 14);
  }

  // Nobody waits for those.
  template <class Body>
  static void in_grandchild(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::fork() == 0) body();
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
  }

  // The same program anew, which goes on with a descriptor.
  [[noreturn]] void become(const char* mode, int fd, bool with_library) const {
    if (with_library)
      ::setenv("LD_PRELOAD", plan_.library.data(), 1);
    else
      ::unsetenv("LD_PRELOAD");
    const std::string number = std::to_string(fd), memory = std::to_string(memory_), end = std::to_string(end_);
    ::execl("/proc/self/exe", "sockets-torture", mode, number.c_str(), memory.c_str(), end.c_str(), nullptr);
    ::_exit(1);
  }

  void pass_on(bool with_library) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return fail("socketpair", 0);
    in_grandchild([&] {
      ::close(fd_);
      become("passed", ::dup(pair[1]), with_library);
    });
    ::close(pair[1]);
    if (!pass_descriptor(pair[0], fd_)) fail("passing on", 0);
    ::close(pair[0]);
  }

  // Unless there are none.
  void leave_to_others() {
    leaves_at_ = now_ms() + 50;
    if (int members = plan_.members[end_];
        members < 2 || !plan_.members[end_].compare_exchange_strong(members, members - 1))
      return;
    change_number(::getpid(), 0);
    switch (random_() % 3) {
      case 0:
        ::kill(::getpid(), SIGKILL);
        break;
      case 1:
        ::close(fd_);
        [[fallthrough]];
      default:
        std::exit(0);
    }
  }

  Plan& plan_;
  int memory_;
  int fd_;
  int end_;
  Random random_;
  std::uint64_t leaves_at_ = 0;
  int set_ = -1;
  std::vector<unsigned char> buffer_;
};

Plan* map_plan(int memory) {
  void* const start = ::mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  return start != MAP_FAILED ? static_cast<Plan*>(start) : nullptr;
}

pid_t some_member(const Plan& plan, Random& random) {
  const auto& numbers = plan.numbers[random() % 2];
  const auto found = std::find_if(numbers.begin(), numbers.end(), [](const auto& number) { return number != 0; });
  return found != numbers.end() ? found->load() : 0;
}

void disturb(Plan& plan, Random& random) {
  const pid_t member = some_member(plan, random);
  if (member == 0) return;
  if (random() % 8 == 0) {
    ::kill(member, SIGSTOP);
    ::usleep(random() % 20'000);
    ::kill(member, SIGCONT);
  } else if (random() % 40 == 0) {
    if (const StreamOf stream(member); stream)
      for (End& end : stream->end) end.request.fetch_or(kHandBack);
  }
}

bool has_come(const Plan& plan, int end) {
  return plan.receiving[1 - end].at == plan.sending[end].at;
}

// Some of them may end only when the next one has begun: they know this one's plan only.
int one_round(Random& random, bool full) {
  const std::uint64_t round_ms = full ? 150 : 400;
  const int memory = ::memfd_create("family", 0);
  if (memory < 0 || ::ftruncate(memory, sizeof(Plan)) != 0) return complain("memfd_create");
  Plan* const mapped = map_plan(memory);
  if (mapped == nullptr) return complain("mmap");
  Plan& plan = *new (mapped) Plan{};
  plan.full = full;
  const char* const library = std::getenv("LD_PRELOAD");
  std::snprintf(plan.library.data(), plan.library.size(), "%s", library != nullptr ? library : "");
  const Pair pair = make_pair();
  for (const int end : {0, 1}) {
    plan.members[end] = 1;
    (void)start(pair, end == 0, [&](int fd) { return Member(plan, memory, fd, end).run(), 0; });
  }
  for (const int fd : {pair.client, pair.server, memory}) ::close(fd);
  const std::uint64_t begin = now_ms();
  for (; plan.wrong == 0 && now_ms() < begin + round_ms; ::usleep(1000 + random() % 4000)) disturb(plan, random);
  plan.over = true;
  const std::uint64_t enough = now_ms() + kHangSeconds * 1000;
  while (plan.wrong == 0 && !(has_come(plan, 0) && has_come(plan, 1)) && now_ms() < enough) ::usleep(1000);
  for (const int end : {0, 1})
    if (plan.wrong == 0 && !has_come(plan, end)) {
      plan.wrong = 1;
      std::fprintf(stderr, "torture: of what end %d sent, %" PRIu64 " bytes, %" PRIu64 " have come\n", end,
                   plan.sending[end].at.load(), plan.receiving[1 - end].at.load());
    }
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  const int wrong = plan.wrong;
  ::munmap(mapped, sizeof(Plan));
  return wrong;
}

}  // namespace

int family(int rounds, unsigned seed) {
  Random random(seed);
  for (int i = 0; i < rounds; ++i)
    if (one_round(random, i % 2 != 0) != 0) return std::fprintf(stderr, "torture: in round %d\n", i), 1;
  return 0;
}

int family_member(int fd, int memory, int end, bool passed) {
  Plan* const plan = map_plan(memory);
  if (plan == nullptr) return complain("mmap");
  ::alarm(kHangSeconds);
  const int over = fd;
  if (passed) {
    fd = take_descriptor(over);
    ::close(over);
  }
  if (fd < 0) return --plan->members[end], 0;  // whoever passed it on was killed before
  Member(*plan, memory, fd, end).run();
  return 0;
}

}  // namespace viaduct::sockets::torture
