// Sending and receiving in all their forms.
#include <aio.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/conformance/harness.hpp"

using namespace conformance;

extern "C" {
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __recv_chk(int, void*, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void*, size_t, size_t, int, sockaddr*, socklen_t*);
ssize_t __read(int, void*, size_t);
ssize_t __write(int, const void*, size_t);
ssize_t __send(int, const void*, size_t, int);
int __poll(pollfd*, nfds_t, int);
}

CASE(data, every_call, "one message through each sending and each receiving call") {
  Link link = run.warm();
  char out[100], in[200] = {};
  const auto sends = [&](const char* name, auto&& how) {
    fill(out, sizeof out, link.sent);
    const ssize_t sent = call(name, how());
    if (sent > 0) link.sent += static_cast<std::uint64_t>(sent);
    run.peer_receives(link, sizeof out);
  };
  iovec split[3] = {{out, 10}, {out + 10, 0}, {out + 10, 90}};
  msghdr message{};
  message.msg_iov = split;
  message.msg_iovlen = 3;
  sends("send", [&] { return ::send(link.fd, out, sizeof out, 0); });
  sends("sendto", [&] { return ::sendto(link.fd, out, sizeof out, 0, nullptr, 0); });
  sends("write", [&] { return ::write(link.fd, out, sizeof out); });
  sends("writev", [&] { return ::writev(link.fd, split, 3); });
  sends("__write", [&] { return __write(link.fd, out, sizeof out); });
  sends("__send", [&] { return __send(link.fd, out, sizeof out, 0); });
  sends("pwritev2", [&] { return ::pwritev2(link.fd, split, 3, -1, 0); });
  sends("sendmsg", [&] { return ::sendmsg(link.fd, &message, 0); });
  sends("sendmmsg", [&] {
    mmsghdr one{message, 0};
    const int done = ::sendmmsg(link.fd, &one, 1, 0);
    note("sendmmsg says %d message of %u", done, one.msg_len);
    return static_cast<ssize_t>(one.msg_len);
  });
  const auto receives = [&](const char* name, auto&& how) {
    run.peer_sends(link, 100);
    std::memset(in, 0, sizeof in);
    call(name, how(), in);
  };
  iovec parts[3] = {{in, 30}, {in + 30, 0}, {in + 30, 170}};
  receives("recv", [&] { return ::recv(link.fd, in, sizeof in, 0); });
  receives("read", [&] { return ::read(link.fd, in, sizeof in); });
  receives("readv", [&] { return ::readv(link.fd, parts, 3); });
  receives("preadv2", [&] { return ::preadv2(link.fd, parts, 3, -1, 0); });
  call("preadv2, not waiting", ::preadv2(link.fd, parts, 3, -1, RWF_NOWAIT));
  call("preadv2 at a place", ::preadv2(link.fd, parts, 3, 0, 0));
  receives("recvfrom", [&] {
    sockaddr_storage from;
    std::memset(&from, 7, sizeof from);
    socklen_t size = sizeof from;
    const ssize_t got = ::recvfrom(link.fd, in, sizeof in, 0, reinterpret_cast<sockaddr*>(&from), &size);
    note("recvfrom leaves a name of %u", size);
    return got;
  });
  receives("recvmsg", [&] {
    msghdr into{};
    char control[64];
    into.msg_iov = parts;
    into.msg_iovlen = 3;
    into.msg_namelen = 77;
    into.msg_control = control;
    into.msg_controllen = sizeof control;
    into.msg_flags = 99;
    const ssize_t got = ::recvmsg(link.fd, &into, MSG_CMSG_CLOEXEC);
    note("recvmsg leaves name %u control %zu flags %d", into.msg_namelen, into.msg_controllen, into.msg_flags);
    return got;
  });
  receives("recvmmsg", [&] {
    mmsghdr some[3] = {};
    for (auto& one : some) one.msg_hdr.msg_iov = parts, one.msg_hdr.msg_iovlen = 3;
    const int done = ::recvmmsg(link.fd, some, 3, MSG_WAITFORONE, nullptr);
    note("recvmmsg says %d", done);
    return static_cast<ssize_t>(some[0].msg_len);
  });
  receives("__poll and __read", [&] {
    pollfd entry{link.fd, POLLIN, 0};
    return __poll(&entry, 1, 1000) == 1 ? __read(link.fd, in, sizeof in) : -1;
  });
  receives("__read_chk", [&] { return __read_chk(link.fd, in, 150, sizeof in); });
  receives("__recv_chk", [&] { return __recv_chk(link.fd, in, 150, sizeof in, 0); });
  receives("__recvfrom_chk", [&] { return __recvfrom_chk(link.fd, in, 150, sizeof in, 0, nullptr, nullptr); });
}

CASE(data, asynchronous, "aio_write and aio_read, then calls again") {
  Link link = run.warm();
  char bytes[100] = {};
  fill(bytes, sizeof bytes, link.sent);
  aiocb control{};
  control.aio_fildes = link.fd;
  control.aio_buf = bytes;
  control.aio_nbytes = sizeof bytes;
  const aiocb* const list[] = {&control};
  call("aio_write", ::aio_write(&control));
  while (::aio_error(&control) == EINPROGRESS) ::aio_suspend(list, 1, nullptr);
  call("written", ::aio_return(&control));
  link.sent += sizeof bytes;
  run.peer_receives(link, sizeof bytes);
  call("aio_read", ::aio_read(&control));
  run.peer_sends(link, sizeof bytes);
  while (::aio_error(&control) == EINPROGRESS) ::aio_suspend(list, 1, nullptr);
  call("read", ::aio_return(&control), bytes);
  run.peer_sends(link, 7);
  call("recv", ::recv(link.fd, bytes, sizeof bytes, 0), bytes);
}

CASE(data, refused, "pieces and control messages that no kernel takes") {
  Link link = run.warm();
  char bytes[10] = {};
  iovec huge[2] = {{bytes, 5}, {bytes, ~std::size_t{0}}};
  call("writev", ::writev(link.fd, huge, 2));
  call("readv", ::readv(link.fd, huge, 2));
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec piece{bytes, sizeof bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_len = CMSG_LEN(sizeof(int));
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = 999;
  call("sendmsg, unknown control", ::sendmsg(link.fd, &message, 0));
  mmsghdr one{message, 0};
  call("sendmmsg, unknown control", ::sendmmsg(link.fd, &one, 1, 0));
  run.peer_sends(link, 7);
  call("recv", ::recv(link.fd, bytes, sizeof bytes, 0), bytes);
}

CASE(data, urgent_while_young, "MSG_OOB on a connection that is young, unread while it is used on: all in order") {
  Link link = run.open();
  char in[1];
  for (int i = 0; i < 12; ++i) {
    char out[10];
    std::memset(out, 'a' + i, sizeof out);
    ::send(link.fd, out, sizeof out, 0);
    if (i == 2) call("urgent", ::send(link.fd, "!", 1, MSG_OOB));
    run.agent.tell(Order::send, link.number, 1);  // at this the other end may find the ring, or look for it
    ::recv(link.fd, in, 1, 0);
  }
  for (int i = 0; i < 3; ++i) run.peer_says("peer receives", Order::receive_once, link, 60, 0);
}

CASE(data, more_while_young, "MSG_MORE on a connection that is young: nothing is held back for long") {
  Link link = run.open();
  const int one = 1;
  ::setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  char in[1], out[10] = {};
  int slow = 0;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    ::send(link.fd, out, 10, MSG_MORE);
    run.peer_sends(link, 1);  // at this the other end may find the ring
    ::recv(link.fd, in, 1, 0);
    ::send(link.fd, out, 4, 0);
    (void)run.agent.tell(Order::receive_once, link.number, 14, MSG_WAITALL);
    slow += std::chrono::steady_clock::now() - start > std::chrono::milliseconds(150) ? 1 : 0;
  }
  note("%d of 20 waited for a timer", slow);
}

CASE(data, empty, "messages and buffers of no bytes") {
  Link link = run.warm();
  char byte = 0;
  call("send 0", ::send(link.fd, &byte, 0, 0));
  call("write 0", ::write(link.fd, &byte, 0));
  call("writev 0", ::writev(link.fd, nullptr, 0));
  call("read 0", ::read(link.fd, &byte, 0));
  call("recv 0, not waiting, nothing there", ::recv(link.fd, &byte, 0, MSG_DONTWAIT));
  run.peer_sends(link, 5);
  call("recv 0, something there", ::recv(link.fd, &byte, 0, 0));
  call("recv 1", ::recv(link.fd, &byte, 1, 0), &byte);
}

CASE(data, peek, "MSG_PEEK, alone and with MSG_WAITALL and MSG_TRUNC") {
  Link link = run.warm();
  char in[64] = {};
  run.peer_sends(link, 20);
  run.peer_sends(link, 20);
  run.peer_sends(link, 20);
  call("peek 10", ::recv(link.fd, in, 10, MSG_PEEK), in);
  call("peek 50", ::recv(link.fd, in, 50, MSG_PEEK), in);
  call("recv 10", ::recv(link.fd, in, 10, 0), in);
  call("peek all of 50", ::recv(link.fd, in, 50, MSG_PEEK | MSG_WAITALL), in);
  std::memset(in, 0, sizeof in);
  call("peek and truncate 30", ::recv(link.fd, in, 30, MSG_PEEK | MSG_TRUNC), in);
  call("recv 50", ::recv(link.fd, in, 50, 0), in);
  call("peek nothing", ::recv(link.fd, in, 50, MSG_PEEK | MSG_DONTWAIT));
  run.agent.begin(Order::send, link.number, 30);
  call("peek, waiting for all of 30", ::recv(link.fd, in, 30, MSG_PEEK | MSG_WAITALL), in);
  run.agent.end();
  const timeval limit{0, 50'000};
  ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  call("peek, waiting for 40 until the time is over", ::recv(link.fd, in, 40, MSG_PEEK | MSG_WAITALL), in);
}

CASE(data, flags, "MSG_DONTWAIT, MSG_WAITALL, MSG_TRUNC, MSG_MORE, MSG_NOSIGNAL") {
  Link link = run.warm();
  char in[256] = {};
  call("recv DONTWAIT, nothing", ::recv(link.fd, in, 10, MSG_DONTWAIT));
  run.peer_sends(link, 40);
  call("recv WAITALL 30", ::recv(link.fd, in, 30, MSG_WAITALL), in);
  call("recv WAITALL|DONTWAIT 30", ::recv(link.fd, in, 30, MSG_WAITALL | MSG_DONTWAIT), in);
  run.peer_sends(link, 40);
  std::memset(in, 0, sizeof in);
  call("recv TRUNC 25", ::recv(link.fd, in, 25, MSG_TRUNC));
  note("buffer untouched: %s", in[0] == 0 && in[24] == 0 ? "yes" : "no");
  call("recv TRUNC into nothing", ::recv(link.fd, nullptr, 5, MSG_TRUNC));
  call("recv the rest", ::recv(link.fd, in, sizeof in, 0), in);
  fill(in, 60, link.sent);
  call("send MORE", ::send(link.fd, in, 20, MSG_MORE));
  call("send MORE", ::send(link.fd, in + 20, 20, MSG_MORE));
  call("send", ::send(link.fd, in + 40, 20, MSG_NOSIGNAL));
  run.peer_receives(link, 60);
  run.agent.begin(Order::send, link.number, 200);
  call("recv WAITALL 200", ::recv(link.fd, in, 200, MSG_WAITALL), in);
  run.agent.end();
  run.peer_sends(link, 10);
  call("recv ERRQUEUE", ::recv(link.fd, in, 200, MSG_ERRQUEUE | MSG_DONTWAIT));
}

CASE(data, urgent, "MSG_OOB: sent, seen by poll, received out of line, the stream around it") {
  Link link = run.warm();
  char in[64] = {};
  call("recv OOB, none", ::recv(link.fd, in, 1, MSG_OOB));
  run.peer_sends(link, 10);
  call("recv OOB, none but data", ::recv(link.fd, in, 1, MSG_OOB));
  const Answer sent = run.agent.tell(Order::send_once, link.number, 1, MSG_OOB);
  note("peer sends OOB = %d", static_cast<int>(sent.result));
  run.peer_sends(link, 10);
  pollfd entry{link.fd, POLLIN | POLLPRI, 0};
  ::poll(&entry, 1, 1000);
  note("poll says %s", poll_bits(static_cast<unsigned>(entry.revents)).c_str());
  int at = 0;
  ::ioctl(link.fd, SIOCATMARK, &at);
  note("at the mark before reading: %d", at);
  call("recv up to the mark", ::recv(link.fd, in, sizeof in, 0), in);
  ::ioctl(link.fd, SIOCATMARK, &at);
  note("at the mark: %d", at);
  call("recv OOB", ::recv(link.fd, in, 1, MSG_OOB), in);
  call("recv after the mark", ::recv(link.fd, in, sizeof in, 0), in);
  fill(in, 1, link.sent);
  call("send OOB", ::send(link.fd, in, 1, MSG_OOB));
  run.peer_says("peer receives OOB", Order::receive_once, link, 1, MSG_OOB);
  link.sent += 1;
  run.peer_sends(link, 30);
  call("recv", ::recv(link.fd, in, 30, MSG_WAITALL), in);
}

CASE(data, urgent_whole, "MSG_WAITALL ends at the mark of urgent data") {
  Link link = run.warm();
  char in[64] = {};
  run.peer_sends(link, 10);
  run.agent.tell(Order::send_once, link.number, 1, MSG_OOB);
  run.peer_sends(link, 10);
  pollfd entry{link.fd, POLLPRI, 0};
  ::poll(&entry, 1, 1000);
  call("recv of more than is before the mark", ::recv(link.fd, in, 20, MSG_WAITALL), in);
  call("recv OOB", ::recv(link.fd, in, 1, MSG_OOB), in);
  call("recv of what is behind it", ::recv(link.fd, in, 10, MSG_WAITALL), in);
}

CASE(data, stdio, "fdopen on a socket: fprintf, fgets and fread, then plain calls again") {
  Link link = run.warm();
  run.peer_sends(link, 40);
  const int copy = ::dup(link.fd);
  std::FILE* const reader = ::fdopen(link.fd, "r");
  std::FILE* const writer = ::fdopen(copy, "w");
  char in[64];
  call("fread", static_cast<ssize_t>(std::fread(in, 1, 40, reader)), in);
  fill(in, 50, link.sent);
  call("fwrite", static_cast<ssize_t>(std::fwrite(in, 1, 50, writer)));
  call("fflush", std::fflush(writer));
  run.peer_receives(link, 50);
  run.peer_sends(link, 10);
  call("fread", static_cast<ssize_t>(std::fread(in, 1, 10, reader)), in);
  std::fclose(writer);
  std::fclose(reader);
  run.peer_says("peer reads on", Order::receive_to_end, link);
}

CASE(data, dprintf, "dprintf between calls of send keeps its place") {
  Link link = run.warm();
  call("send", ::send(link.fd, "one", 3, 0));
  call("dprintf", ::dprintf(link.fd, "%s", "two"));
  call("send", ::send(link.fd, "three", 5, 0));
  run.peer_says("peer receives", Order::receive_once, link, 11, MSG_WAITALL);
}

CASE(data, standard_descriptors, "a socket as standard input and output, used by stdio") {
  Link link = run.warm();
  const int kept_in = ::dup(0), kept_out = ::fcntl(1, F_DUPFD, 30);
  call("send", ::send(link.fd, "before ", 7, 0));
  ::dup2(link.fd, 0);
  ::dup2(link.fd, 1);
  run.peer_sends(link, 20);
  std::printf("by printf ");
  std::fflush(stdout);
  char in[20];
  const auto got = static_cast<ssize_t>(std::fread(in, 1, sizeof in, stdin));
  ::dup2(kept_out, 1);
  ::dup2(kept_in, 0);
  call("fread from standard input", got, in);
  call("send", ::send(link.fd, "after", 5, 0));
  run.peer_says("peer receives", Order::receive_once, link, 22, MSG_WAITALL);
}

CASE(data, sendfile, "sendfile with and without an offset, past the end, between sends") {
  Link link = run.warm();
  const int file = ::memfd_create("conformance", 0);
  std::vector<char> content(300'000);
  fill(content.data(), content.size(), 1);
  if (::write(file, content.data(), content.size()) < 0) return;
  call("send", ::send(link.fd, "head", 4, 0));
  off_t at = 1000;
  call("sendfile 5000 from 1000", ::sendfile(link.fd, file, &at, 5000));
  note("offset now %lld, position %lld", static_cast<long long>(at),
       static_cast<long long>(::lseek(file, 0, SEEK_CUR)));
  ::lseek(file, 10, SEEK_SET);
  call("sendfile 100 from the position", ::sendfile(link.fd, file, nullptr, 100));
  note("position %lld", static_cast<long long>(::lseek(file, 0, SEEK_CUR)));
  call("send", ::send(link.fd, "tail", 4, 0));
  at = 299'000;
  call("sendfile past the end", ::sendfile(link.fd, file, &at, 5000));
  call("sendfile at the end", ::sendfile(link.fd, file, &at, 5000));
  run.peer_says("peer receives", Order::receive_once, link, 6108, MSG_WAITALL);
  run.agent.begin(Order::receive_to_end, link.number);
  at = 0;
  ssize_t total = 0;
  while (at < 300'000) {
    const ssize_t sent = ::sendfile(link.fd, file, &at, 300'000);
    if (sent <= 0) break;
    total += sent;
  }
  call("sendfile all", total);
  ::shutdown(link.fd, SHUT_WR);
  const Answer answer = run.agent.end();
  note("peer got %d, digest %llx", static_cast<int>(answer.result), static_cast<unsigned long long>(answer.digest));
  int pipe[2];
  if (::pipe(pipe) == 0) call("sendfile of a pipe to a closed half", ::sendfile(link.fd, 9999, nullptr, 10));
}

CASE(data, splice, "splice out of and into a socket, unread bytes before it") {
  Link link = run.warm();
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  char in[200] = {};
  run.peer_sends(link, 120);
  call("recv 20", ::recv(link.fd, in, 20, 0), in);
  ssize_t moved = 0;
  while (moved < 100) {
    const ssize_t now = ::splice(link.fd, nullptr, pipe[1], nullptr, static_cast<std::size_t>(100 - moved), 0);
    if (now <= 0) break;
    moved += now;
  }
  call("splice socket to pipe", moved);
  call("read pipe", ::read(pipe[0], in, sizeof in), in);
  ::fcntl(link.fd, F_SETFL, O_NONBLOCK);
  call("splice, nothing there", ::splice(link.fd, nullptr, pipe[1], nullptr, 100, 0));
  ::fcntl(link.fd, F_SETFL, 0);
  fill(in, 60, link.sent);
  call("write pipe", ::write(pipe[1], in, 60));
  call("splice pipe to socket", ::splice(pipe[0], nullptr, link.fd, nullptr, 60, 0));
  run.peer_receives(link, 60);
  run.peer_sends(link, 50);
  call("recv", ::recv(link.fd, in, 50, MSG_WAITALL), in);
}

CASE(data, boundary, "bytes left on TCP when the sender goes over to the ring, then its end of stream") {
  Link link = run.open();
  // The peer sends without our reading anything: its bytes pile up while both ends are used enough.
  for (int i = 0; i < 60; ++i) {
    run.peer_sends(link, 10);
    if (!link.send(1)) note("send failed");
    const Answer answer = run.agent.tell(Order::receive, link.number, 1);
    if (answer.result != 1) note("peer receives %d", static_cast<int>(answer.result));
  }
  int ready = 0;
  ::ioctl(link.fd, FIONREAD, &ready);
  note("FIONREAD %d", ready);
  std::vector<char> in(1000);
  call("peek over the boundary", ::recv(link.fd, in.data(), 600, MSG_PEEK), in.data());
  run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
  ssize_t total = 0;
  for (ssize_t got; (got = ::recv(link.fd, in.data() + total, 1000 - static_cast<std::size_t>(total), 0)) > 0;)
    total += got;
  call("all of it", total, in.data());
  call("then", ::recv(link.fd, in.data(), 10, 0));
  call("send still", ::send(link.fd, "x", 1, 0));
}

CASE(data, big, "16 MB each way in chunks of every size, verified") {
  Link link = run.warm();
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  run.agent.begin(Order::receive, link.number, kBytes);
  std::vector<char> data(std::size_t{1} << 20);
  std::uint64_t left = kBytes;
  for (std::size_t size = 1; left != 0; size = size * 3 / 2 + 1) {
    if (size > data.size()) size = 1;
    const std::size_t now = std::min<std::size_t>(size, left);
    fill(data.data(), now, link.sent);
    for (std::size_t done = 0; done < now;) {
      const ssize_t sent = ::send(link.fd, data.data() + done, now - done, 0);
      if (sent < 0) return (void)call("send", sent);
      done += static_cast<std::size_t>(sent);
    }
    link.sent += now;
    left -= now;
  }
  note("peer verified %lld", static_cast<long long>(run.agent.end().result));
  run.agent.begin(Order::send, link.number, kBytes);
  note("received and verified: %s", link.receive(kBytes) ? "yes" : "no");
  run.agent.end();
}

CASE(data, backlog, "a megabyte sent by a blocking call before anybody reads") {
  Link link = run.warm();
  note("sent: %s", link.send(std::size_t{1} << 20) ? "yes" : "no");
  for (int i = 0; i < 1000; ++i)
    if (!link.send(3)) note("send failed");
  run.peer_receives(link, (std::size_t{1} << 20) + 3000);
}

CASE(data, many_pieces, "sendmsg and recvmsg with 1024 pieces, and with more than are allowed") {
  Link link = run.warm();
  std::vector<char> bytes(1025 * 7);
  fill(bytes.data(), bytes.size(), link.sent);
  std::vector<iovec> pieces;
  for (std::size_t i = 0; i < 1025; ++i) pieces.push_back({&bytes[i * 7], 7});
  call("writev 1024", ::writev(link.fd, pieces.data(), 1024));
  run.peer_receives(link, 1024 * 7);
  link.sent += 1024 * 7;
  call("writev 1025", ::writev(link.fd, pieces.data(), 1025));
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = 1025;
  call("sendmsg 1025", ::sendmsg(link.fd, &message, 0));
  run.peer_sends(link, 1024 * 7);
  message.msg_iovlen = 1024;
  call("recvmsg 1024", ::recvmsg(link.fd, &message, MSG_WAITALL), bytes.data());
  call("readv 1025", ::readv(link.fd, pieces.data(), 1025));
}

CASE(data, several_messages, "sendmmsg and recvmmsg with several messages at once") {
  Link link = run.warm();
  char out[60], in[60] = {};
  fill(out, sizeof out, link.sent);
  iovec pieces[3] = {{out, 10}, {out + 10, 20}, {out + 30, 30}};
  mmsghdr some[3] = {};
  for (int i = 0; i < 3; ++i) some[i].msg_hdr.msg_iov = &pieces[i], some[i].msg_hdr.msg_iovlen = 1;
  call("sendmmsg", ::sendmmsg(link.fd, some, 3, 0));
  note("lengths %u %u %u", some[0].msg_len, some[1].msg_len, some[2].msg_len);
  run.peer_receives(link, 60);
  run.peer_sends(link, 60);
  iovec parts[3] = {{in, 10}, {in + 10, 20}, {in + 30, 30}};
  for (int i = 0; i < 3; ++i) some[i].msg_hdr.msg_iov = &parts[i];
  call("recvmmsg", ::recvmmsg(link.fd, some, 3, 0, nullptr));
  note("lengths %u %u %u, digest %llx", some[0].msg_len, some[1].msg_len, some[2].msg_len,
       static_cast<unsigned long long>(digest(in, sizeof in)));
  run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
  call("recvmmsg at the end", ::recvmmsg(link.fd, some, 3, 0, nullptr));
}
