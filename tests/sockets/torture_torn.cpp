// Receivers that are killed at any point of a receive while another process has the same end open: that one goes on
// where they were. What was in their hands is gone; whatever comes behind it comes whole, once, and in order, also over
// TCP at last.
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr std::size_t kLargest = 20'000;
constexpr int kVictims = 20;
constexpr int kSender = 0;

struct Plan {
  std::atomic<std::uint64_t> received;  // by those who came back from recv()
  std::atomic<bool> over;
  std::atomic<bool> wrong;
};

int send_stream(int fd, Plan& plan, unsigned seed) {
  Random random(seed);
  if (!warm(fd, true)) return 0;
  std::vector<unsigned char> bytes(kLargest);
  for (std::uint64_t at = 0; !plan.over;) {
    const unsigned kind = random() % 20;
    const std::size_t size = 1 + random() % (kind < 14 ? 100 : kind < 19 ? 3000 : kLargest);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = byte_at(kSender, at + i);
    if (::send(fd, bytes.data(), size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) return 1;
    at += size;
    if (random() % 64 == 0) ::usleep(random() % 200);  // so that somebody sleeps
  }
  return 0;
}

bool wrong_byte(Plan& plan, std::uint64_t at) {
  std::fprintf(stderr, "torture: a wrong byte at %" PRIu64 "\n", at);
  plan.wrong = true;
  return false;
}

bool receive_some(int fd, Plan& plan, Random& random, std::vector<unsigned char>& bytes) {
  const std::size_t most = random() % 4 != 0 ? 1 + random() % 120 : 1 + random() % kLargest;
  const std::uint64_t at = plan.received;
  const ssize_t got = ::recv(fd, bytes.data(), most, 0);
  for (ssize_t i = 0; i < got; ++i)
    if (bytes[static_cast<std::size_t>(i)] != byte_at(kSender, at + static_cast<std::uint64_t>(i)))
      return wrong_byte(plan, at + static_cast<std::uint64_t>(i));
  if (got < 0) std::fprintf(stderr, "torture: recv: errno %d\n", errno), plan.wrong = true;
  if (got > 0) plan.received = at + static_cast<std::uint64_t>(got);
  return got > 0;
}

// Somebody may have taken as much as one call takes, and did not come to say so.
bool find_place(int fd, Plan& plan) {
  std::array<unsigned char, 64> next{};
  const ssize_t got = ::recv(fd, next.data(), next.size(), MSG_WAITALL);
  if (got != static_cast<ssize_t>(next.size())) {
    std::fprintf(stderr, "torture: recv gives %zd behind a victim: errno %d\n", got, errno);
    return false;
  }
  for (std::uint64_t at = plan.received, last = at + kLargest; at <= last; ++at) {
    std::size_t same = 0;
    while (same < next.size() && next[same] == byte_at(kSender, at + same)) ++same;
    if (same != next.size()) continue;
    plan.received = at + same;
    return true;
  }
  return wrong_byte(plan, plan.received);
}

bool survive_victims(int fd, Plan& plan, Random& random) {
  std::vector<unsigned char> bytes(kLargest);
  for (int victim = 0; victim < kVictims; ++victim) {
    const unsigned seed = random();
    const pid_t child = ::fork();
    if (child == 0) {
      Random own(seed);
      while (receive_some(fd, plan, own, bytes)) continue;
      ::_exit(0);
    }
    ::usleep(random() % 2000);
    ::kill(child, SIGKILL);
    wait_for(child);
    if (plan.wrong || !find_place(fd, plan)) return false;
    for (int i = 0; i < 20; ++i)
      if (!receive_some(fd, plan, random, bytes)) return false;
  }
  if (const StreamOf stream(::getpid()); stream)
    for (End& end : stream->end) end.request.fetch_or(kHandBack);
  for (int i = 0; i < 200; ++i)
    if (!receive_some(fd, plan, random, bytes)) return false;
  plan.over = true;
  while (receive_some(fd, plan, random, bytes)) continue;
  return !plan.wrong;
}

}  // namespace

int torn(int rounds, unsigned seed) {
  Random random(seed);
  void* const shared = ::mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return complain("mmap");
  for (int round = 0; round < rounds; ++round) {
    ::alarm(kHangSeconds);
    Plan& plan = *new (shared) Plan{};
    const Pair pair = make_pair();
    const unsigned senders_seed = random();
    const pid_t sender = start(pair, true, [&](int fd) { return send_stream(fd, plan, senders_seed); });
    ::close(pair.client);
    const bool fine = warm(pair.server, false) && survive_victims(pair.server, plan, random);
    ::close(pair.server);
    if (!fine) ::kill(sender, SIGKILL);
    if (const int status = wait_for(sender); !fine || status != 0)
      return std::fprintf(stderr, "torture: seed %u, round %d, sender %d\n", seed, round, status), 1;
  }
  ::munmap(shared, sizeof(Plan));
  return 0;
}

}  // namespace viaduct::sockets::torture
