// What calls say to arguments that make no sense: on connections, and on descriptors that have nothing to do with them.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "sockets/conformance/harness.hpp"

using namespace conformance;

namespace {

// Memory that nobody may touch, and the last bytes before some.
class Forbidden {
 public:
  Forbidden() : pages_(static_cast<char*>(::mmap(nullptr, 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    ::mprotect(pages_, kPage, PROT_READ | PROT_WRITE);
  }
  ~Forbidden() { ::munmap(pages_, 2 * kPage); }
  Forbidden(const Forbidden&) = delete;
  Forbidden& operator=(const Forbidden&) = delete;

  template <class T>
  T* all() const {
    return reinterpret_cast<T*>(pages_ + kPage);
  }
  // `bytes` of it are there.
  template <class T>
  T* behind(std::size_t bytes) const {
    return reinterpret_cast<T*>(pages_ + kPage - bytes);
  }

 private:
  static constexpr std::size_t kPage = 4096;
  char* pages_;
};

// A header that says it has so many bytes, in a buffer that says so too.
ssize_t send_control(int fd, int level, int type, std::size_t length, std::size_t room) {
  alignas(cmsghdr) std::array<char, 64> control{};
  cmsghdr header{};
  header.cmsg_len = length;
  header.cmsg_level = level;
  header.cmsg_type = type;
  std::memcpy(control.data(), &header, sizeof header);
  char byte = 'x';
  iovec piece{&byte, 1};
  mmsghdr one{};
  one.msg_hdr.msg_iov = &piece;
  one.msg_hdr.msg_iovlen = 1;
  one.msg_hdr.msg_control = control.data();
  one.msg_hdr.msg_controllen = room;
  const ssize_t sent = ::sendmsg(fd, &one.msg_hdr, MSG_NOSIGNAL);
  const int error = errno;
  const int many = ::sendmmsg(fd, &one, 1, MSG_NOSIGNAL);
  if ((sent < 0) != (many < 0)) note("sendmmsg says something else: %d", many);
  errno = error;
  return sent;
}

void send_bad_controls(const char* what, int fd) {
  note("%s", what);
  for (const std::size_t length : {0UL, 1UL, 15UL, 17UL, 24UL, 1000UL, ~0UL}) {
    char text[40];
    std::snprintf(text, sizeof text, "cmsg_len %zd", static_cast<ssize_t>(length));
    call(text, send_control(fd, SOL_SOCKET, SCM_RIGHTS, length, 20));
  }
}

int udp_socket() {
  return ::socket(AF_INET, SOCK_DGRAM, 0);
}

void try_bad_waits(int fd) {
  const Forbidden memory;
  const timespec* const no_time = memory.all<timespec>();
  pollfd entry{fd, POLLIN, 0};
  call("poll", ::poll(memory.all<pollfd>(), 1, 0));
  pollfd* const half = memory.behind<pollfd>(sizeof entry);
  *half = entry;
  call("poll of two, one there", ::poll(half, 2, 0));
  pollfd* volatile nothing = nullptr;
  call("poll of nothing", ::poll(nothing, 1, 0));
  call("ppoll of nothing", ::ppoll(nothing, 1, nullptr, nullptr));
  call("poll of too many", ::poll(half, 1'000'000'000, 0));
  call("poll, waiting", ::poll(memory.all<pollfd>(), 1, 1));
  call("ppoll", ::ppoll(memory.all<pollfd>(), 1, no_time, nullptr));
  call("ppoll, its time", ::ppoll(&entry, 1, no_time, nullptr));
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  timeval at_once{};
  call("select", ::select(fd + 1, memory.all<fd_set>(), nullptr, nullptr, &at_once));
  call("select, to write", ::select(fd + 1, nullptr, memory.all<fd_set>(), nullptr, &at_once));
  call("select, its time", ::select(fd + 1, &set, nullptr, nullptr, memory.all<timeval>()));
  call("pselect", ::pselect(fd + 1, memory.all<fd_set>(), nullptr, nullptr, nullptr, nullptr));
  call("pselect, its time", ::pselect(fd + 1, &set, nullptr, nullptr, no_time, nullptr));
  const int epoll = ::epoll_create1(0);
  call("epoll_ctl ADD", ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, memory.all<epoll_event>()));
  call("epoll_ctl MOD", ::epoll_ctl(epoll, EPOLL_CTL_MOD, fd, memory.all<epoll_event>()));
  call("epoll_ctl of no descriptor", ::epoll_ctl(epoll, EPOLL_CTL_ADD, 4000, memory.all<epoll_event>()));
  call("epoll_ctl DEL", ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, memory.all<epoll_event>()));
  epoll_event event{};
  call("epoll_pwait2, its time", ::epoll_pwait2(epoll, &event, 1, no_time, nullptr));
  ::close(epoll);
}

void try_bad_transfers(int fd) {
  const Forbidden memory;
  call("sendmsg", ::sendmsg(fd, memory.all<msghdr>(), MSG_DONTWAIT | MSG_NOSIGNAL));
  call("recvmsg", ::recvmsg(fd, memory.all<msghdr>(), MSG_DONTWAIT));
  call("sendmmsg", ::sendmmsg(fd, memory.all<mmsghdr>(), 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  call("recvmmsg", ::recvmmsg(fd, memory.all<mmsghdr>(), 1, MSG_DONTWAIT, nullptr));
  call("recvmmsg, its time", ::recvmmsg(fd, memory.all<mmsghdr>(), 1, MSG_DONTWAIT, memory.all<timespec>()));
  msghdr message{};
  message.msg_iov = memory.all<iovec>();
  message.msg_iovlen = 1;
  call("sendmsg, its pieces", ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
  call("recvmsg, its pieces", ::recvmsg(fd, &message, MSG_DONTWAIT));
  char byte = 'x';
  iovec piece{&byte, 1};
  message.msg_iov = &piece;
  message.msg_control = memory.all<char>();
  message.msg_controllen = 64;
  call("sendmsg, its control", ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
  call("readv", ::readv(fd, memory.all<iovec>(), 1));
  call("writev", ::writev(fd, memory.all<iovec>(), 1));
  call("preadv2", ::preadv2(fd, memory.all<iovec>(), 1, -1, 0));
  call("pwritev2", ::pwritev2(fd, memory.all<iovec>(), 1, -1, 0));
  call("setsockopt", ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, memory.all<int>(), sizeof(int)));
  call("setsockopt of nothing", ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, nullptr, sizeof(int)));
  call("setsockopt", ::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, memory.all<int>(), sizeof(int)));
  call("setsockopt", ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, memory.all<timeval>(), sizeof(timeval)));
  int value = 0;
  socklen_t size = sizeof value;
  call("getsockopt", ::getsockopt(fd, SOL_SOCKET, SO_ERROR, memory.all<int>(), &size));
  call("getsockopt, its size", ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, memory.all<socklen_t>()));
  call("connect", ::connect(fd, memory.all<sockaddr>(), sizeof(sockaddr_in)));
}

}  // namespace

CASE(process, bad_rights, "SCM_RIGHTS headers that say nonsense of their length, on UNIX sockets and on a connection") {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
  send_bad_controls("a UNIX socket", pair[0]);
  for (const int fd : pair) ::close(fd);
  const int udp = udp_socket();
  send_bad_controls("UDP", udp);
  ::close(udp);
  Link young = run.open();
  note("a young connection");
  for (const std::size_t length : {0UL, 1UL, 15UL, 1000UL})
    call("sendmsg", send_control(young.fd, SOL_SOCKET, SCM_RIGHTS, length, 20));
  Link link = run.warm();
  note("a connection");
  for (const std::size_t length : {0UL, 1UL, 15UL, 1000UL})
    call("sendmsg", send_control(link.fd, SOL_SOCKET, SCM_RIGHTS, length, 20));
}

CASE(wait, bad_addresses, "poll, select, epoll_ctl and their kin with memory that is not there: EFAULT") {
  const int udp = udp_socket();
  note("UDP");
  try_bad_waits(udp);
  ::close(udp);
  const Link link = run.open();
  note("a young connection");
  try_bad_waits(link.fd);
  ::close(link.fd);
}

CASE(data, bad_addresses, "sendmsg, recvmsg, readv, options and connect with memory that is not there: EFAULT") {
  const int udp = udp_socket();
  note("UDP");
  try_bad_transfers(udp);
  ::close(udp);
  const Link link = run.open();
  note("a young connection");
  try_bad_transfers(link.fd);
  ::close(link.fd);
}

CASE(options, short_buffers, "getsockopt into fewer bytes than a number has, and setsockopt of fewer") {
  const Link link = run.warm();
  const int on = 1;
  const auto read = [&](const char* what) {
    note("%s", what);
    for (const int option : {TCP_NODELAY, TCP_CORK})
      for (socklen_t room = 0; room < 6; ++room) {
        std::array<unsigned char, 8> value;
        value.fill(0x77);
        socklen_t size = room;
        call("getsockopt", ::getsockopt(link.fd, IPPROTO_TCP, option, value.data(), &size));
        note("%u bytes: %02x %02x %02x %02x %02x", size, value[0], value[1], value[2], value[3], value[4]);
      }
    for (socklen_t room = 0; room < 4; ++room) {
      std::array<unsigned char, 4> value;
      value.fill(0x77);
      socklen_t size = room;
      call("LOWAT", ::getsockopt(link.fd, SOL_SOCKET, SO_RCVLOWAT, value.data(), &size));
      note("%u bytes: %02x %02x %02x", size, value[0], value[1], value[2]);
    }
    socklen_t negative = static_cast<socklen_t>(-1);
    int value = 0;
    call("a size of -1", ::getsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &value, &negative));
  };
  read("as it was");
  call("NODELAY", ::setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  const int much = 300;
  call("LOWAT", ::setsockopt(link.fd, SOL_SOCKET, SO_RCVLOWAT, &much, sizeof much));
  read("set");
}

CASE(data, more_than_many_messages, "sendmmsg of more than 1,024 messages takes 1,024") {
  Link link = run.warm();
  constexpr unsigned kMany = 1500;
  std::vector<char> bytes(kMany);
  fill(bytes.data(), bytes.size(), link.sent);
  std::vector<iovec> pieces(kMany);
  std::vector<mmsghdr> messages(kMany);
  for (unsigned i = 0; i < kMany; ++i) {
    pieces[i] = {&bytes[i], 1};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const auto sent = call("sendmmsg", ::sendmmsg(link.fd, messages.data(), kMany, 0));
  if (sent > 0) run.peer_receives(link, static_cast<std::size_t>(sent));
  messages[1].msg_hdr.msg_iovlen = IOV_MAX + 1;
  link.sent += static_cast<std::uint64_t>(sent);
  fill(bytes.data(), bytes.size(), link.sent);
  call("the second has too many pieces", ::sendmmsg(link.fd, messages.data(), 3, 0));
  run.peer_receives(link, 1);
  call("the first has", ::sendmmsg(link.fd, messages.data() + 1, 1, 0));
}

CASE(data, bad_places_in_files, "sendfile from a negative place, from beyond the end, from a pipe") {
  const Link link = run.warm();
  const int file = ::memfd_create("file", 0);
  if (::write(file, "hello", 5) != 5) note("write failed");
  for (off_t place : {off_t{-1}, off_t{INT64_MIN}, off_t{5}, off_t{1000}}) {
    errno = 0;
    call("sendfile", ::sendfile(link.fd, file, &place, 5));
    note("errno %d, place %ld", errno, static_cast<long>(place));
    errno = 0;
    call("sendfile of much", ::sendfile(link.fd, file, &place, 100'000));
    note("errno %d, place %ld", errno, static_cast<long>(place));
  }
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  off_t place = 0;
  call("a pipe, with a place", ::sendfile(link.fd, pipe[0], &place, 5));
  call("a file that cannot be read", ::sendfile(link.fd, pipe[1], nullptr, 5));
  for (const int fd : {pipe[0], pipe[1], file}) ::close(fd);
}

CASE(data, bad_address_lengths, "sendto and sendmsg with an address of -1 or 400 bytes, recvmsg with room for -1") {
  Link link = run.warm();
  std::array<char, 512> address{};
  const auto* const to = reinterpret_cast<const sockaddr*>(address.data());
  char byte = 'x';
  iovec piece{&byte, 1};
  for (const int length : {-1, 129, 400, INT_MIN}) {
    const auto size = static_cast<socklen_t>(length);
    note("%d bytes", length);
    call("sendto", ::sendto(link.fd, &byte, 1, 0, to, size));
    call("sendto of nobody", ::sendto(link.fd, &byte, 1, 0, nullptr, size));
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_name = address.data();
    message.msg_namelen = size;
    call("sendmsg", ::sendmsg(link.fd, &message, 0));
    mmsghdr one{message, 0};
    call("sendmmsg", ::sendmmsg(link.fd, &one, 1, 0));
    message.msg_name = nullptr;
    call("sendmsg of nobody", ::sendmsg(link.fd, &message, 0));
    run.agent.tell(Order::send, link.number, 1);
    message.msg_name = address.data();
    message.msg_namelen = size;
    call("recvmsg", ::recvmsg(link.fd, &message, 0));
    one.msg_hdr = message;
    call("recvmmsg", ::recvmmsg(link.fd, &one, 1, MSG_DONTWAIT, nullptr));
    note("left %zd", ::recv(link.fd, &byte, 1, MSG_DONTWAIT));
  }
}

CASE(data, bad_splices, "splice between a connection and a pipe: places, unknown flags, the wrong end, nothing") {
  Link link = run.warm();
  run.peer_sends(link, 100);
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  off64_t place = 0;
  constexpr unsigned kNoFlag = 0x100;
  note("out of the connection");
  call("its place", ::splice(link.fd, &place, pipe[1], nullptr, 10, 0));
  call("the pipe's place", ::splice(link.fd, nullptr, pipe[1], &place, 10, 0));
  call("flags", ::splice(link.fd, nullptr, pipe[1], nullptr, 10, kNoFlag));
  call("the wrong end", ::splice(link.fd, nullptr, pipe[0], nullptr, 10, 0));
  call("nothing", ::splice(link.fd, nullptr, pipe[1], nullptr, 0, kNoFlag));
  const int file = ::memfd_create("file", 0);
  call("no pipe", ::splice(link.fd, nullptr, file, nullptr, 10, 0));
  note("into it");
  if (::write(pipe[1], "hello", 5) != 5) note("write failed");
  call("its place", ::splice(pipe[0], nullptr, link.fd, &place, 5, 0));
  call("the pipe's place", ::splice(pipe[0], &place, link.fd, nullptr, 5, 0));
  call("flags", ::splice(pipe[0], nullptr, link.fd, nullptr, 5, kNoFlag));
  call("the wrong end", ::splice(pipe[1], nullptr, link.fd, nullptr, 5, 0));
  call("nothing", ::splice(pipe[0], nullptr, link.fd, nullptr, 0, kNoFlag));
  call("as it should be", ::splice(pipe[0], nullptr, link.fd, nullptr, 5, 0));
  note("and all is there: %d", link.receive(100));
  for (const int fd : {pipe[0], pipe[1], file}) ::close(fd);
}

namespace {

// Less than before, and more than nothing.
const char* what_is_left(const timespec& limit, const timespec& before) {
  const bool none = limit.tv_sec == 0 && limit.tv_nsec == 0;
  const bool same = limit.tv_sec == before.tv_sec && limit.tv_nsec == before.tv_nsec;
  return none ? "nothing" : same ? "all" : limit.tv_sec < before.tv_sec ? "a part" : "?";
}

void wait_by_number(int fd, bool ready) {
  const sigset_t mask{};
  struct {
    const sigset_t* mask;
    std::size_t size;
  } with_size{&mask, 8};
  const int epoll = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {}};
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  for (const std::size_t size : {std::size_t{8}, std::size_t{128}, std::size_t{0}}) {
    note("mask of %zu bytes", size);
    const timespec before = ready ? timespec{5, 0} : timespec{0, 20'000'000};
    timespec limit = before;
    pollfd entry{fd, POLLIN, 0};
    call("ppoll", ::syscall(SYS_ppoll, &entry, 1, &limit, &mask, size));
    note("left %s", what_is_left(limit, before));
    static const timespec at_once{};  // in memory that cannot be written to
    call("ppoll, a constant limit", ::syscall(SYS_ppoll, &entry, 1, &at_once, &mask, size));
    limit = before;
    call("ppoll, no mask", ::syscall(SYS_ppoll, &entry, 1, &limit, nullptr, size));
    note("left %s", what_is_left(limit, before));
    limit = before;
    with_size.size = size;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    call("pselect6", ::syscall(SYS_pselect6, fd + 1, &set, nullptr, nullptr, &limit, &with_size));
    note("left %s", what_is_left(limit, before));
    limit = before;
    call("epoll_pwait", ::syscall(SYS_epoll_pwait, epoll, &event, 1, 20, &mask, size));
    call("epoll_pwait, no mask", ::syscall(SYS_epoll_pwait, epoll, &event, 1, 20, nullptr, size));
    call("epoll_pwait2", ::syscall(SYS_epoll_pwait2, epoll, &event, 1, &limit, &mask, size));
    note("left %s", what_is_left(limit, before));
  }
  timespec bad{-1, 0};
  pollfd entry{fd, POLLIN, 0};
  call("ppoll of a bad time", ::syscall(SYS_ppoll, &entry, 1, &bad, nullptr, 8));
  note("left %ld", static_cast<long>(bad.tv_sec));
  ::close(epoll);
}

}  // namespace

CASE(wait, by_number, "ppoll, pselect6 and epoll_pwait by syscall(): the time that is left, the size of the mask") {
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  note("an empty pipe");
  wait_by_number(pipe[0], false);
  if (::write(pipe[1], "x", 1) != 1) note("write failed");
  note("a pipe");
  wait_by_number(pipe[0], true);
  for (const int fd : pipe) ::close(fd);
  Link link = run.warm();
  note("an idle connection");
  wait_by_number(link.fd, false);
  run.peer_sends(link, 1);
  note("a connection");
  wait_by_number(link.fd, true);
}
