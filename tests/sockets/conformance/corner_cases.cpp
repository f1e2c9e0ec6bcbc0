// Corners of single calls: a message that is cut, the mark of urgent bytes, a socket that has had another peer, very
// many members, numbers that mean something else.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"

using namespace conformance;

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CASE(data, several_messages_cut,
     "non-blocking sendmmsg while the peer makes room: nothing goes behind a message that was cut") {
  const OwnPair pair;
  pair.warm();
  ::fcntl(pair.client, F_SETFL, O_NONBLOCK);
  // It makes a little room at a time, always.
  std::thread receiver([&] {
    for (std::array<char, 500> bytes; ::recv(pair.server, bytes.data(), bytes.size(), 0) > 0;) {
    }
  });
  constexpr std::size_t kSize = 300'000;
  std::vector<char> bytes(kSize);
  iovec piece{bytes.data(), kSize};
  bool hole = false;
  for (const auto end = Clock::now() + std::chrono::milliseconds(300); Clock::now() < end && !hole;) {
    std::array<mmsghdr, 2> messages{};
    for (mmsghdr& message : messages) message.msg_hdr.msg_iov = &piece, message.msg_hdr.msg_iovlen = 1;
    hole = ::sendmmsg(pair.client, messages.data(), 2, 0) == 2 && messages[0].msg_len < kSize;
  }
  note("a message went behind one that was cut: %d", hole);
  ::shutdown(pair.server, SHUT_RDWR);
  receiver.join();
}

CASE(data, mark_behind_bytes, "sockatmark while bytes before the mark are unread") {
  Link link = run.warm();
  run.peer_sends(link, 10);
  run.peer_says("urgent", Order::send_once, link, 1, MSG_OOB);
  pollfd entry{link.fd, POLLPRI, 0};
  call("poll", ::poll(&entry, 1, 1000));
  call("before", ::sockatmark(link.fd));
  std::array<char, 100> bytes;
  call("up to the mark", ::recv(link.fd, bytes.data(), bytes.size(), 0));
  call("there", ::sockatmark(link.fd));
  run.peer_sends(link, 5);
  call("behind it", ::recv(link.fd, bytes.data(), 5, MSG_WAITALL), bytes.data());
  call("past it", ::sockatmark(link.fd));
  ::close(link.fd);
}

namespace {

int connected_from(int own_port, int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in name{AF_INET, htons(static_cast<std::uint16_t>(own_port)), {htonl(INADDR_LOOPBACK)}, {}};
  if (::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) call("bind", -1);
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) call("connect", -1);
  return fd;
}

// One byte at a time, which the other end waits for; how many came.
int go_from_to(int from, int to, int count) {
  const timeval limit{1, 0};
  ::setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  int came = 0;
  for (char byte = 0; came < count; ++came) {
    const char sent = static_cast<char>(came);
    if (::send(from, &sent, 1, MSG_NOSIGNAL) != 1 || ::recv(to, &byte, 1, 0) != 1 || byte != sent) break;
  }
  return came;
}

}  // namespace

CASE(life, addresses_given_up,
     "connect with AF_UNSPEC before the ends have met, and elsewhere; the addresses are another connection's") {
  // Who has the lower port is the one that waits for the other: the client of the first connection, and not of the
  // second.
  struct {
    int listener, port;
  } places[3];
  for (auto& place : places) place.listener = listening(AF_INET, place.port);
  std::ranges::sort(places, {}, [](const auto& place) { return place.port; });
  const auto& [second, middle, first] = places;
  ::close(middle.listener);
  const int client = connected_from(middle.port, first.port);
  const int server = ::accept(first.listener, nullptr, nullptr);
  std::array<char, 10> bytes{};
  for (const char& byte : bytes)
    if (::send(client, &byte, 1, 0) != 1) note("send failed");
  call("one call", ::recv(server, bytes.data(), bytes.size(), MSG_WAITALL));
  ::close(server);
  call("the end", ::recv(client, bytes.data(), 1, 0));
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  call("connect AF_UNSPEC", ::connect(client, &none, sizeof none));
  sockaddr_in name{AF_INET, htons(static_cast<std::uint16_t>(second.port)), {htonl(INADDR_LOOPBACK)}, {}};
  call("connect elsewhere", ::connect(client, reinterpret_cast<sockaddr*>(&name), sizeof name));
  const int server_elsewhere = ::accept(second.listener, nullptr, nullptr);
  const int other = connected_from(middle.port, first.port);
  const int server_of_other = ::accept(first.listener, nullptr, nullptr);
  note("between the others: %d", go_from_to(server_of_other, other, 20));
  note("from the first: %d", go_from_to(client, server_elsewhere, 40));
  note("to the first: %d", go_from_to(server_elsewhere, client, 40));
  call("nothing else at the other", ::recv(server_of_other, bytes.data(), 1, MSG_DONTWAIT));
  for (const int fd : {client, server_elsewhere, other, server_of_other, first.listener, second.listener}) ::close(fd);
}

CASE(life, connect_on_accepted,
     "connect() on an accepted connection whose first bytes are unread: EISCONN, and the stream goes on") {
  const OwnPair pair;
  Link client{.fd = pair.client}, server{.fd = pair.server};
  note("sent %d", server.send(1000));
  for (int i = 0; i < 40; ++i)
    if (!client.send(1) || !server.receive(1)) note("warming up failed");
  sockaddr_in name{};
  socklen_t size = sizeof name;
  ::getpeername(server.fd, reinterpret_cast<sockaddr*>(&name), &size);
  call("connect", ::connect(server.fd, reinterpret_cast<sockaddr*>(&name), size));
  note("sent %d", server.send(1000));
  const timeval limit{1, 0};
  ::setsockopt(client.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  note("received %d", client.receive(2000));
  note("sent %d", server.send(3));
  note("received %d", client.receive(3));
}

CASE(life, sigpipe_not_at_first, "SIGPIPE at a second send to a peer that has closed, and not at one large first") {
  static volatile sig_atomic_t signals;
  ::signal(SIGPIPE, [](int) { signals = signals + 1; });
  const std::vector<char> much(std::size_t{1} << 20);
  for (int i = 0; i < 3; ++i) {
    signals = 0;
    OwnPair pair;
    ::close(pair.server);
    pair.server = -1;
    ::usleep(10'000);
    note("sent some %d", ::send(pair.client, much.data(), much.size(), 0) > 0);
    note("signals %d", static_cast<int>(signals));
    ::usleep(10'000);
    call("again", ::send(pair.client, much.data(), 1, 0));
    note("signals %d", static_cast<int>(signals));
  }
}

CASE(process, accepted_as_0, "accept returns the number 0: stdio reads what comes") {
  if (!run.agent.is_process()) return skip();  // the agent would take the number
  // Not Run::warm: standard numbers stay with TCP.
  Link link = run.open_at([](int) { ::close(0); });
  note("number %d", link.fd);
  run.agent.begin(Order::echo, link.number, 40);
  for (int i = 0; i < 40; ++i)
    if (!link.send(1) || !link.receive(1)) note("echo failed");
  run.agent.end();
  run.peer_sends(link, 6);
  ::alarm(3);
  std::array<char, 6> bytes{};
  const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), stdin);
  note("read %zu, right %d", got, matches(bytes.data(), bytes.size(), link.received));
  ::alarm(0);
}

CASE(data, sendfile_out_of_a_socket, "sendfile from a connection into a pipe, after the bytes were waited for or not") {
  for (const bool waits : {false, true}) {
    Link link = run.warm();
    int pipe[2];
    if (::pipe2(pipe, O_NONBLOCK) != 0) return;
    std::thread waiter([&] {
      pollfd entry{link.fd, POLLIN, 0};
      if (waits) call("poll", ::poll(&entry, 1, 1000));
    });
    ::usleep(50'000);  // asleep by now
    run.peer_sends(link, 11);
    waiter.join();
    ::usleep(20'000);
    ::fcntl(link.fd, F_SETFL, O_NONBLOCK);
    call("sendfile", ::sendfile(pipe[1], link.fd, nullptr, 11));
    std::array<char, 64> bytes;
    call("in the pipe", ::read(pipe[0], bytes.data(), bytes.size()), bytes.data());
    call("in the socket", ::recv(link.fd, bytes.data(), bytes.size(), MSG_DONTWAIT));
    for (const int fd : {pipe[0], pipe[1], link.fd}) ::close(fd);
  }
}

CASE(wait, poll_of_very_many, "poll of 1100 entries; a connection behind the 1024th becomes fast meanwhile") {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, 4096));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Link link = run.open();
  std::atomic<bool> back = false;
  int found = -1;
  std::thread waiter([&] {
    std::vector<pollfd> entries(1100, pollfd{-1, 0, 0});
    entries[1050] = {link.fd, POLLIN, 0};
    found = ::poll(entries.data(), entries.size(), 2000);
    back = true;
  });
  ::usleep(50'000);
  constexpr int kBytes = 40;
  run.agent.begin(Order::receive, link.number, kBytes);
  for (int i = 0; i < kBytes && link.send(1); ++i) ::usleep(1000);
  note("the peer has %d", static_cast<int>(run.agent.end().result));
  note("still waits %d", !back);
  run.peer_sends(link, 2);
  waiter.join();
  note("found %d, received %d", found, link.receive(2));
  ::close(link.fd);
}

namespace {

// The number at which the library keeps what others look at; one that nobody has where there is no library.
int number_of_the_library() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find("memfd:viaduct-sockets") != std::string::npos) return std::stoi(entry.path().filename().string());
  }
  return 500;
}

}  // namespace

CASE(process, file_on_any_number, "dup2 of a file onto any number, many sockets afterwards: the file stays as it is") {
  const int first = ::socket(AF_INET, SOCK_STREAM, 0);
  const int file = ::memfd_create("file", 0);
  if (::write(file, "hello", 5) != 5) note("write failed");
  const int number = number_of_the_library();
  call("dup2", ::dup2(file, number) == number ? 0 : -1);
  std::vector<int> sockets{first};
  for (int i = 0; i < 300; ++i) sockets.push_back(::socket(AF_INET, SOCK_STREAM, 0));
  struct stat info {};
  call("fstat", ::fstat(number, &info));
  char bytes[6] = {};
  call("pread", ::pread(number, bytes, 5, 0));
  note("%d bytes, '%s'", static_cast<int>(info.st_size), bytes);
  for (const int fd : sockets) ::close(fd);
  Link link = run.open();
  note("sent %d", link.send(5));
  run.peer_receives(link, 5);
  ::close(link.fd);
}

CASE(process, dup2_under_a_sender, "dup2 puts two connections in turn onto a number that another thread sends on") {
  OwnPair pairs[2];
  for (const OwnPair& pair : pairs) pair.warm();
  const int number = ::dup(pairs[0].client);
  std::atomic<long> sent = 0, received = 0;
  std::atomic<bool> stop = false, wrong = false;
  std::vector<std::thread> receivers;
  for (const OwnPair& pair : pairs)
    receivers.emplace_back([&, fd = pair.server] {
      std::array<char, 64> bytes;
      for (ssize_t got; (got = ::recv(fd, bytes.data(), bytes.size(), 0)) > 0; received += got)
        if (std::count(bytes.begin(), bytes.begin() + got, 'a') != got) wrong = true;
    });
  std::thread sender([&] {
    for (; !stop && ::send(number, "aaaa", 4, MSG_NOSIGNAL) == 4; sent += 4) ::usleep(30);
  });
  int failed = 0;
  unsigned turn = 0;
  for (const auto end = Clock::now() + std::chrono::milliseconds(600); Clock::now() < end; ::usleep(5))
    failed += ::dup2(pairs[++turn % 2].client, number) != number;
  stop = true;
  sender.join();
  for (int i = 0; i < 1000 && received < sent; ++i) ::usleep(1000);
  note("dup2 failed %d times", failed);
  note("some were sent %d, all came %d, another byte %d", sent > 0, received == sent, wrong.load());
  for (const OwnPair& pair : pairs) ::shutdown(pair.client, SHUT_RDWR);
  for (std::thread& receiver : receivers) receiver.join();
  ::close(number);
}

CASE(options, zero_copy_receive, "TCP_ZEROCOPY_RECEIVE of a few bytes, which are copied") {
  Link link = run.warm();
  run.peer_sends(link, 5);
  pollfd entry{link.fd, POLLIN, 0};
  call("poll", ::poll(&entry, 1, 1000));
  std::array<char, 64> bytes{};
  // As linux/tcp.h has it, which cannot be included beside netinet/tcp.h.
  struct {
    std::uint64_t address;
    std::uint32_t length, receive_skip_hint, in_queue;
    std::int32_t error;
    std::uint64_t copy_address;
    std::int32_t copy_length;
    std::uint32_t flags;
    std::uint64_t control_address, control_length;
    std::uint32_t message_flags, reserved;
  } order{};
  order.copy_address = reinterpret_cast<std::uintptr_t>(bytes.data());
  order.copy_length = bytes.size();
  socklen_t size = sizeof order;
  constexpr int kZeroCopyReceive = 35;
  call("getsockopt", ::getsockopt(link.fd, IPPROTO_TCP, kZeroCopyReceive, &order, &size));
  note("copied %d, right %d", order.copy_length, matches(bytes.data(), 5, link.received));
  ::close(link.fd);
}

namespace {

// How many there are in the end, connections that are used and others.
[[noreturn]] void fill_all_numbers(void*) {
  int port = 0, made = 0;
  const int listener = listening(AF_INET, port);
  for (bool ok = true; ok;) {
    const int client = connect_to(AF_INET, port, ok);
    const int server = ok ? ::accept(listener, nullptr, nullptr) : -1;
    ok = ok && server >= 0;
    made += ok ? 2 : 0;
    for (int i = 0; ok && i < 10; ++i) {
      char byte = 'x';
      ok = ::send(client, &byte, 1, 0) == 1 && ::recv(server, &byte, 1, 0) == 1 && ::send(server, &byte, 1, 0) == 1 &&
           ::recv(client, &byte, 1, 0) == 1;
    }
  }
  while (::dup(0) >= 0) ++made;
  ::_exit(made);
}

}  // namespace

CASE(life, last_descriptor, "as many connections as the limit of descriptors allows, all in use, and nothing is left") {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int free = ::dup(0);
  ::close(free);
  const rlimit few{static_cast<rlim_t>(free) + 40, limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  note_exit("made", spawn_child(fill_all_numbers, nullptr));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

CASE(life, memory_of_closed, "a process with threads has closed all its connections and sleeps: their memory is gone") {
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) ::usleep(10'000);
  });
  std::vector<char> much(std::size_t{1} << 20);
  for (int i = 0; i < 4; ++i) {
    const OwnPair pair;
    pair.warm();
    if (::send(pair.client, much.data(), much.size(), 0) < 1 || ::recv(pair.server, much.data(), much.size(), 0) < 1)
      note("not sent");
  }
  const int set = ::epoll_create1(0);
  epoll_event event{};
  call("epoll_wait", ::epoll_wait(set, &event, 1, 300));
  std::ifstream status("/proc/self/status");
  long kilobytes = -1;
  for (std::string word; status >> word;)
    if (word == "RssShmem:") status >> kilobytes;
  note("little is shared: %d", kilobytes >= 0 && kilobytes < 1024);
  over = true;
  other.join();
  ::close(set);
}

CASE(data, errno_of_success, "calls that succeed, after a wait or at once, leave errno alone") {
  Link link = run.warm();
  const auto keeps = [](const char* what, auto&& use) {
    errno = 0;
    const bool done = use();
    note("%s %d, errno %d", what, done, errno);
  };
  std::vector<char> much(std::size_t{8} << 20);
  for (int i = 0; i < 5; ++i) {
    std::thread later([&] {
      ::usleep(20'000);
      run.agent.tell(Order::send, link.number, 100);
    });
    keeps("recv", [&] { return ::recv(link.fd, much.data(), 100, MSG_WAITALL) == 100; });
    later.join();
    link.received += 100;
    run.agent.begin(Order::receive, link.number, static_cast<std::int64_t>(much.size()));
    fill(much.data(), much.size(), link.sent);
    keeps("send", [&] { return ::send(link.fd, much.data(), much.size(), 0) == static_cast<ssize_t>(much.size()); });
    link.sent += much.size();
    note("the peer has all %d", run.agent.end().result > 0);
  }
  run.peer_says("the peer ends", Order::shutdown, link, SHUT_WR);
  keeps("the end", [&] { return ::recv(link.fd, much.data(), 1, 0) == 0; });
  ::close(link.fd);
}
