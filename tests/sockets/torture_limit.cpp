// A process that has nearly as many descriptors open as it may: another socket costs it what one costs with a few.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <vector>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr std::size_t kBatches = 31;
constexpr int kInBatch = 20;

// Nanoseconds for one, in the middle one of many batches: the others may have been interrupted. Negative: it failed.
double socket_costs() {
  std::array<double, kBatches> took{};
  for (double& batch : took) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kInBatch; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      if (fd < 0 || ::close(fd) != 0) return -1;
    }
    batch = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kInBatch;
  }
  std::ranges::nth_element(took, took.begin() + kBatches / 2);
  return took[kBatches / 2];
}

// On the ring, with both ends here. What nobody has read must not be given away.
int make_busy_pair(int listener, const sockaddr_in& name, bool leave_unread) {
  Pair pair;
  pair.client = connect_to(name);
  pair.server = ::accept(listener, nullptr, nullptr);
  char byte = 'b';
  for (int i = 0; i < 12; ++i)
    for (const auto& [from, to] : {std::pair{pair.client, pair.server}, std::pair{pair.server, pair.client}})
      if (::send(from, &byte, 1, MSG_NOSIGNAL) != 1 || ::recv(to, &byte, 1, 0) != 1) return -1;
  if (leave_unread && ::send(pair.client, &byte, 1, MSG_NOSIGNAL) != 1) return -1;
  return std::max(pair.client, pair.server);
}

}  // namespace

int limit(int hundreds) {
  constexpr double kMost = 8;
  constexpr int kUnreadEvery = 16;
  const int count = hundreds * 100;
  const rlimit wanted{static_cast<rlim_t>(count) * 43 / 42, static_cast<rlim_t>(count) * 43 / 42};
  if (::setrlimit(RLIMIT_NOFILE, &wanted) != 0) return kSkipped;
  sockaddr_in name;
  const int listener = listen_somewhere(name);
  if (make_busy_pair(listener, name, true) < 0) return complain("a pair");
  const double few = socket_costs();
  for (int highest = 0, pairs = 0; highest < count; ++pairs) {
    highest = make_busy_pair(listener, name, pairs % kUnreadEvery == 0);
    if (highest < 0) return complain("a pair");
  }
  // Numbers that became free among them are taken: the next one is high.
  while (const int filler = ::dup(0)) {
    if (filler < 0) return complain("dup");
    if (filler >= count) break;
  }
  const double many = socket_costs();
  std::fprintf(stderr, "torture: a socket costs %.0f ns, and %.0f ns near the limit of %d\n", few, many,
               static_cast<int>(wanted.rlim_cur));
  return few > 0 && many > 0 && many < kMost * few ? 0 : 1;
}

}  // namespace viaduct::sockets::torture
