#include "sockets/conformance/harness.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/segment.hpp"
#include "sockets/stream_format.hpp"

namespace conformance {

const char* own_program = "/proc/self/exe";
const char* static_program = nullptr;

// ---- the trace

void note(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  int size = std::vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  size = std::min(size, static_cast<int>(sizeof line) - 2);
  line[size] = '\n';
  [[maybe_unused]] const ssize_t written = ::write(1, line, static_cast<std::size_t>(size) + 1);
}

ssize_t call(const char* what, ssize_t result) {
  const int kept = errno;
  if (result < 0)
    note("%s = -1 %s", what, strerrorname_np(kept));
  else
    note("%s = %zd", what, result);
  errno = kept;
  return result;
}

ssize_t call(const char* what, ssize_t result, const void* data) {
  if (result <= 0) return call(what, result);
  note("%s = %zd, digest %016" PRIx64, what, result, digest(data, static_cast<std::size_t>(result)));
  return result;
}

std::uint64_t digest(const void* data, std::size_t size, std::uint64_t before) {
  for (std::size_t i = 0; i < size; ++i) before = (before ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  return before;
}

void skip() {
  note("#skip");
}

std::string poll_bits(unsigned bits) {
  static constexpr struct {
    unsigned bit;
    const char* name;
  } kNames[] = {{POLLIN, "IN"},       {POLLPRI, "PRI"},       {POLLOUT, "OUT"},
                {POLLERR, "ERR"},     {POLLHUP, "HUP"},       {POLLNVAL, "NVAL"},
                {POLLRDHUP, "RDHUP"}, {POLLRDNORM, "RDNORM"}, {POLLWRNORM, "WRNORM"}};
  std::string text;
  for (const auto& name : kNames)
    if ((bits & name.bit) != 0) text.append(text.empty() ? "" : "|").append(name.name), bits &= ~name.bit;
  if (bits != 0) text += "|" + std::to_string(bits);
  return text.empty() ? "nothing" : text;
}

namespace {

unsigned char byte_at(std::uint64_t offset) {
  return static_cast<unsigned char>((offset * 0x9e3779b97f4a7c15) >> 56);
}

}  // namespace

void fill(void* data, std::size_t size, std::uint64_t offset) {
  for (std::size_t i = 0; i < size; ++i) static_cast<unsigned char*>(data)[i] = byte_at(offset + i);
}

bool matches(const void* data, std::size_t size, std::uint64_t offset) {
  for (std::size_t i = 0; i < size; ++i)
    if (static_cast<const unsigned char*>(data)[i] != byte_at(offset + i)) return false;
  return true;
}

// ---- this end

bool Link::send(std::size_t bytes) {
  std::vector<char> data(bytes);
  fill(data.data(), bytes, sent);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t now = ::send(fd, data.data() + done, bytes - done, MSG_NOSIGNAL);
    if (now < 0) return false;
    done += static_cast<std::size_t>(now);
    sent += static_cast<std::uint64_t>(now);
  }
  return true;
}

bool Link::receive(std::size_t bytes) {
  std::vector<char> data(bytes);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t now = ::recv(fd, data.data() + done, bytes - done, 0);
    if (now <= 0) return errno = now == 0 ? ENODATA : errno, false;
    if (!matches(data.data() + done, static_cast<std::size_t>(now), received)) return errno = EBADMSG, false;
    done += static_cast<std::size_t>(now);
    received += static_cast<std::uint64_t>(now);
  }
  return true;
}

namespace {

struct Name {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Name loopback(int family, int port) {
  Name name;
  if (family == AF_INET) {
    auto& in = reinterpret_cast<sockaddr_in&>(name.storage);
    in = {AF_INET, htons(static_cast<std::uint16_t>(port)), {htonl(INADDR_LOOPBACK)}, {}};
    name.size = sizeof in;
  } else {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(name.storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(static_cast<std::uint16_t>(port));
    in6.sin6_addr = in6addr_loopback;
    name.size = sizeof in6;
  }
  return name;
}

}  // namespace

int listening(int family, int& port, int type) {
  const int fd = ::socket(family, type, 0);
  Name name = loopback(family, 0);
  if (fd < 0 || ::bind(fd, name.get(), name.size) != 0 || ::listen(fd, 64) != 0) return -1;
  name.size = sizeof name.storage;
  ::getsockname(fd, name.get(), &name.size);
  port = ntohs(reinterpret_cast<sockaddr_in&>(name.storage).sin_port);  // the same place in both families
  return fd;
}

int connect_to(int family, int port, bool& ok) {
  const int fd = ::socket(family, SOCK_STREAM, 0);
  Name name = loopback(family, port);
  ok = ::connect(fd, name.get(), name.size) == 0;
  return fd;
}

Link Run::open(Opening opening, int family) {
  if (opening == Opening::accept) return open_at([](int) {}, family);
  Link link;
  link.number = links_++;
  const auto port = agent.tell(Order::listen, link.number, family).result;
  bool ok;
  link.fd = connect_to(family, static_cast<int>(port), ok);
  if (!ok) note("connect failed: %s", strerrorname_np(errno));
  agent.tell(Order::accept, link.number);
  return link;
}

Link Run::open_at(void (*prepare)(int listener), int family) {
  Link link;
  link.number = links_++;
  int port = 0;
  const int listener = listening(family, port);
  prepare(listener);
  agent.tell(Order::connect, link.number, family, port);
  link.fd = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  return link;
}

void Run::warm_up(Link& link) {
  constexpr int kRounds = 40;
  const int before = on_ring();
  agent.begin(Order::echo, link.number, kRounds);
  for (int i = 0; i < kRounds; ++i)
    if (!link.send(1) || !link.receive(1)) note("warming up failed: %s", strerrorname_np(errno));
  agent.end();
  ++warmed_;
  if (on_ring() <= before) ++missed_;
}

void Run::ask_while_another_waits(Link& link, const std::function<int()>& wait) {
  constexpr int kRounds = 60;
  int woken = 0;
  std::thread reader([&] {
    while (woken < kRounds && wait() == 1 && link.receive(1)) ++woken;
  });
  agent.begin(Order::echo, link.number, kRounds);
  for (int i = 0; i < kRounds && link.send(1); ++i) ::usleep(1000);
  reader.join();
  note("answers %d", woken);
  agent.end();
}

Link Run::warm(Opening opening, int family) {
  Link link = open(opening, family);
  warm_up(link);
  return link;
}

void Run::peer_sends(Link& link, std::size_t bytes) {
  const Answer answer = agent.tell(Order::send, link.number, static_cast<std::int64_t>(bytes));
  if (answer.result != static_cast<std::int64_t>(bytes)) note("peer could not send: %s", strerrorname_np(answer.error));
}

void Run::peer_receives(Link& link, std::size_t bytes) {
  peer_says("peer receives", Order::receive, link, static_cast<std::int64_t>(bytes));
}

void Run::peer_says(const char* what, Order order, const Link& link, std::int64_t a, std::int64_t b, std::int64_t c) {
  const Answer answer = agent.tell(order, link.number, a, b, c);
  if (answer.result < 0)
    note("%s = -1 %s", what, strerrorname_np(answer.error));
  else
    note("%s = %" PRId64 ", digest %016" PRIx64, what, answer.result, answer.digest);
}

void start_plain_program() {
  pid_t pid = 0;
  char name[] = "true";
  char* const words[] = {name, nullptr};
  char* const nothing[] = {nullptr};
  if (::posix_spawn(&pid, "/bin/true", nullptr, nullptr, words, nothing) == 0) ::waitpid(pid, nullptr, 0);
}

int on_ring() {
  using namespace viaduct::sockets;
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return 0;
  int found = 0;
  char line[512];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    std::uintptr_t start = 0;
    if (std::strstr(line, "memfd:viaduct-stream") == nullptr || std::sscanf(line, "%" SCNxPTR, &start) != 1) continue;
    const auto* control = reinterpret_cast<const StreamControl*>(start + viaduct::kSegmentPayloadOffset);
    if (control->direction[0].path.mode.load() == kRing && control->direction[1].path.mode.load() == kRing) ++found;
  }
  std::fclose(maps);
  return found;
}

// ---- children

int spawn_child(void (*body)(void*), void* argument) {
  const int pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(8);
  body(argument);
  ::_exit(0);
}

void note_exit(const char* what, int pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    note("%s ended by %s", what, sigabbrev_np(WTERMSIG(status)));
  else if (WEXITSTATUS(status) != 0)
    note("%s ended with %d", what, WEXITSTATUS(status));
}

// ---- cases

namespace {

std::vector<Case>& registry() {
  static auto* const all = new std::vector<Case>;
  return *all;
}

}  // namespace

const std::vector<Case>& cases() {
  return registry();
}

Register::Register(const char* group, const char* name, const char* what, void (*body)(Run&)) {
  // Behind the others of its group, which may be in another file.
  std::vector<Case>& all = registry();
  const auto same = [&](const Case& one) { return std::string_view(one.group) == group; };
  const auto last = std::find_if(all.rbegin(), all.rend(), same);
  all.insert(last == all.rend() ? all.end() : last.base(), {group, name, what, body});
}

}  // namespace conformance
