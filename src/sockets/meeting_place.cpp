#include "sockets/meeting_place.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "sockets/kernel.hpp"
#include "sockets/stream_format.hpp"

namespace viaduct::sockets {

namespace {

// ---- names

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;
};

Name name_of(const MeetingPlace& place) {
  constexpr char kDigits[] = "0123456789abcdef";
  Name name;
  name.address.sun_family = AF_UNIX;
  char* const text = name.address.sun_path + 1;  // abstract: gone with its socket
  char* at =
      text + std::snprintf(text, sizeof name.address.sun_path - 1, "viaduct-stream-1/%" PRIx64 "/", place.network);
  for (const std::uint8_t byte : place.addresses) {
    *at++ = kDigits[byte >> 4];
    *at++ = kDigits[byte & 15];
  }
  name.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + static_cast<std::size_t>(at - name.address.sun_path));
  return name;
}
static_assert(sizeof("viaduct-stream-1/") + 16 + 1 + 2 * std::tuple_size_v<decltype(MeetingPlace::addresses)> <
              sizeof(sockaddr_un::sun_path));

int new_socket() {
  return kernel::libc().socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

template <class Use>
int socket_that(Use&& uses) {
  const int fd = new_socket();
  if (fd < 0 || uses(fd)) return fd;
  const int fault = errno;
  kernel::libc().close(fd);
  return errno = fault, -1;
}

// ---- words

// One byte says what it is, eight what is said; the memory comes with one byte of its own.
constexpr char kHello = 'H', kNo = 'N', kMemory = 'S';
struct [[gnu::packed]] Word {
  char kind;
  std::uint64_t said;  // kHello: the layout of the caller's memory; kNo: a Refusal
};
static_assert(sizeof(Word) == 9);

enum class Refusal : std::uint64_t { keeps_tcp, other_user, other_processes, other_version };

Refusal refusal_for(Why why) {
  return why == Why::other_user        ? Refusal::other_user
         : why == Why::other_processes ? Refusal::other_processes
         : why == Why::wrong_version   ? Refusal::other_version
                                       : Refusal::keeps_tcp;
}

Why why_refused(std::uint64_t said) {
  switch (static_cast<Refusal>(said)) {
    case Refusal::other_user:
      return Why::other_user;
    case Refusal::other_processes:
      return Why::other_processes;
    case Refusal::other_version:
      return Why::wrong_version;
    default:
      return Why::peer_keeps_tcp;
  }
}

bool say(int line, const Word& word) {
  return kernel::libc().send(line, &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof word;
}

}  // namespace

std::uint64_t network_of(int socket) {
#ifndef SO_NETNS_COOKIE
  constexpr int SO_NETNS_COOKIE = 71;
#endif
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return kernel::libc().getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

int listen_at(const MeetingPlace& place) {
  const Name name = name_of(place);
  return socket_that([&](int fd) {
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&name.address), name.size) == 0 &&
           kernel::libc().listen(fd, 1) == 0;
  });
}

int call_at(const MeetingPlace& place) {
  const Name name = name_of(place);
  return socket_that([&](int fd) {
    return kernel::libc().connect(fd, reinterpret_cast<const sockaddr*>(&name.address), name.size) == 0;
  });
}

bool say_hello(int line) {
  return say(line, {kHello, kStreamLayout});
}

bool say_no(int line, Why why) {
  return say(line, {kNo, static_cast<std::uint64_t>(refusal_for(why))});
}

Heard hear(int line, int wait_ms, Why& why) {
  pollfd entry{line, POLLIN, 0};
  if (wait_ms > 0 && kernel::libc().poll(&entry, 1, wait_ms) != 1) return Heard::nothing;
  Word word{};
  const ssize_t got = kernel::libc().recv(line, &word, sizeof word, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::nothing;
  if (got <= 0) return Heard::nobody;
  if (word.kind == kMemory) return Heard::memory;
  const bool whole = got == sizeof word;
  if (whole && word.kind == kHello && word.said == kStreamLayout) return Heard::hello;
  why = whole && word.kind == kNo ? why_refused(word.said) : Why::wrong_version;
  return Heard::no;
}

}  // namespace viaduct::sockets
