// Each case is done with the kernel's sockets and with MemNet's, and what the calls say must be the same.
#include <functional>
#include <thread>

#include "memnet/memnet_lab.hpp"

namespace viaduct::memnet::testing {
namespace {

struct Calls {
  int (*socket)(int, int, int);
  int (*bind)(int, const sockaddr*, socklen_t);
  int (*listen)(int, int);
  int (*accept)(int, sockaddr*, socklen_t*);
  int (*connect)(int, const sockaddr*, socklen_t);
  ssize_t (*send)(int, const void*, size_t, int);
  ssize_t (*recv)(int, void*, size_t, int);
  ssize_t (*sendmsg)(int, const msghdr*, int);
  ssize_t (*recvmsg)(int, msghdr*, int);
  int (*shutdown)(int, int);
  int (*close)(int);
  int (*getsockopt)(int, int, int, void*, socklen_t*);
  int (*setsockopt)(int, int, int, const void*, socklen_t);
  int (*getsockname)(int, sockaddr*, socklen_t*);
  int (*getpeername)(int, sockaddr*, socklen_t*);
  int (*poll)(pollfd*, unsigned long, int);
};

constexpr Calls kKernel{
    ::socket,     ::bind,        ::listen,      [](int fd, sockaddr* a, socklen_t* l) { return ::accept(fd, a, l); },
    ::connect,    ::send,        ::recv,        ::sendmsg,
    ::recvmsg,    ::shutdown,    ::close,       ::getsockopt,
    ::setsockopt, ::getsockname, ::getpeername, [](pollfd* p, unsigned long n, int t) { return ::poll(p, n, t); }};
constexpr Calls kMemNet{memnet_socket,     memnet_bind,        memnet_listen,      memnet_accept,
                        memnet_connect,    memnet_send,        memnet_recv,        memnet_sendmsg,
                        memnet_recvmsg,    memnet_shutdown,    memnet_close,       memnet_getsockopt,
                        memnet_setsockopt, memnet_getsockname, memnet_getpeername, memnet_poll};

// What a case did, call by call.
class Trial {
 public:
  explicit Trial(const Calls& with) : calls(with) {}
  ~Trial() {
    for (const int one : sockets_) calls.close(one);
  }
  const Calls& calls;
  std::string trace;

  template <class Result>
  Result note(const char* what, Result result) {
    const int error = errno;
    trace += std::string(what) + '=' + std::to_string(result);
    if (result < 0) trace += std::string(" ") + strerrorname_np(error);
    trace += '\n';
    return result;
  }
  void say(const std::string& what) { trace += what + '\n'; }

  int socket(int family = AF_INET, int type = SOCK_STREAM) {
    const int made = calls.socket(family, type, 0);
    if (made >= 0) sockets_.push_back(made);
    return made;
  }
  int accepted(int listener) {
    const int made = calls.accept(listener, nullptr, nullptr);
    if (made >= 0) sockets_.push_back(made);
    say(made >= 0 ? "accepted" : std::string("accept ") + strerrorname_np(errno));
    return made;
  }
  // Closed already.
  void forget(int socket) { std::erase(sockets_, socket); }
  int poll(int socket, short events, int timeout = 5000) {
    pollfd entry{socket, events, 0};
    const int count = calls.poll(&entry, 1, timeout);
    say("poll=" + std::to_string(count) + " revents " + std::to_string(entry.revents));
    return entry.revents;
  }
  int option(int socket, int level, int name) {
    int value = -7;
    socklen_t length = sizeof value;
    note("getsockopt", calls.getsockopt(socket, level, name, &value, &length));
    say("value " + std::to_string(value) + " length " + std::to_string(length));
    return value;
  }
  int set(int socket, int level, int name, int value) {
    return note("setsockopt", calls.setsockopt(socket, level, name, &value, sizeof value));
  }
  void recv(int socket, std::size_t length, int flags = 0) {
    std::string bytes(length, '?');
    const ssize_t got = note("recv", calls.recv(socket, bytes.data(), length, flags));
    if (got > 0) say(bytes.substr(0, static_cast<std::size_t>(got)));
  }
  // Connected to a kernel socket.
  struct Connected {
    KernelListener listener;
    int here = -1;
    Fd there;
  };
  Connected connected(int type = SOCK_STREAM) {
    Connected made;
    made.here = socket();
    EXPECT_EQ(calls.connect(made.here, generic(made.listener.address), sizeof made.listener.address), 0);
    made.there = made.listener.accept();
    (void)type;
    return made;
  }
  // What was sent to it has arrived.
  void settle(int socket) {
    pollfd entry{socket, POLLIN, 0};
    (void)calls.poll(&entry, 1, 5000);
  }

 private:
  std::vector<int> sockets_;
};

void reset(Fd& fd) {
  const linger abort{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  fd.reset();
}

struct Case {
  const char* name;
  void (*run)(Trial&);
};

const Case kCases[] = {
    {"Unconnected",
     [](Trial& run) {
       const int s = run.socket();
       char byte;
       sockaddr_in address{};
       socklen_t length = sizeof address;
       run.note("send", run.calls.send(s, "x", 1, MSG_NOSIGNAL));
       run.note("recv", run.calls.recv(s, &byte, 1, 0));
       run.note("getpeername", run.calls.getpeername(s, generic(address), &length));
       run.note("shutdown", run.calls.shutdown(s, SHUT_WR));
       run.note("accept", run.calls.accept(s, nullptr, nullptr));
       run.poll(s, POLLIN | POLLOUT | POLLRDHUP, 0);
       run.option(s, SOL_SOCKET, SO_ERROR);
       run.note("getsockname", run.calls.getsockname(s, generic(address), &length));
       run.say("family " + std::to_string(address.sin_family) + " port " + std::to_string(address.sin_port));
     }},
    {"Refused",
     [](Trial& run) {
       sockaddr_in nobody;
       { nobody = KernelListener().address; }
       const int s = run.socket();
       run.note("connect", run.calls.connect(s, generic(nobody), sizeof nobody));
       run.option(s, SOL_SOCKET, SO_ERROR);
       run.note("connect", run.calls.connect(s, generic(nobody), sizeof nobody));
       KernelListener listener;
       run.note("connect", run.calls.connect(s, generic(listener.address), sizeof listener.address));
       run.note("send", run.calls.send(s, "x", 1, 0));
     }},
    {"ConnectsLater",
     [](Trial& run) {
       KernelListener listener;
       const int s = run.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
       run.note("connect", run.calls.connect(s, generic(listener.address), sizeof listener.address));
       run.poll(s, POLLOUT);
       run.option(s, SOL_SOCKET, SO_ERROR);
       run.recv(s, 4);
       const Fd there = listener.accept();
       EXPECT_TRUE(write_all(there.get(), "late"));
       run.poll(s, POLLIN);
       run.recv(s, 8);
     }},
    {"RefusedLater",
     [](Trial& run) {
       sockaddr_in nobody;
       { nobody = KernelListener().address; }
       const int s = run.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
       run.note("connect", run.calls.connect(s, generic(nobody), sizeof nobody));
       run.poll(s, POLLOUT | POLLIN);
       run.option(s, SOL_SOCKET, SO_ERROR);
       run.option(s, SOL_SOCKET, SO_ERROR);
     }},
    {"ConnectsTwice",
     [](Trial& run) {
       auto c = run.connected();
       run.note("connect", run.calls.connect(c.here, generic(c.listener.address), sizeof c.listener.address));
       run.note("listen", run.calls.listen(c.here, 1));
       run.note("bind", run.calls.bind(c.here, generic(loopback()), sizeof(sockaddr_in)));
     }},
    {"Binds",
     [](Trial& run) {
       KernelListener taken;
       const int s = run.socket();
       run.note("bind", run.calls.bind(s, generic(taken.address), sizeof taken.address));
       sockaddr_in elsewhere = loopback();
       elsewhere.sin_addr.s_addr = htonl(0x08080808);
       run.note("bind", run.calls.bind(s, generic(elsewhere), sizeof elsewhere));
       run.note("bind", run.calls.bind(s, generic(elsewhere), 4));
       sockaddr_in any = loopback();
       run.note("bind", run.calls.bind(s, generic(any), sizeof any));
       run.note("bind", run.calls.bind(s, generic(any), sizeof any));
       sockaddr_in6 six{};
       six.sin6_family = AF_INET6;
       const int t = run.socket();
       run.note("bind", run.calls.bind(t, reinterpret_cast<sockaddr*>(&six), sizeof six));
     }},
    {"Listens",
     [](Trial& run) {
       const int s = run.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
       sockaddr_in address = loopback();
       socklen_t length = sizeof address;
       EXPECT_EQ(run.calls.bind(s, generic(address), sizeof address), 0);
       run.option(s, SOL_SOCKET, SO_ACCEPTCONN);
       run.note("listen", run.calls.listen(s, 8));
       run.note("listen", run.calls.listen(s, 16));
       run.option(s, SOL_SOCKET, SO_ACCEPTCONN);
       EXPECT_EQ(run.calls.getsockname(s, generic(address), &length), 0);
       run.note("accept", run.calls.accept(s, nullptr, nullptr));
       run.poll(s, POLLIN | POLLOUT, 0);
       run.recv(s, 1);
       run.note("connect", run.calls.connect(s, generic(address), sizeof address));
       const Fd one = kernel_connect(address), two = kernel_connect(address);
       run.poll(s, POLLIN);
       const int first = run.accepted(s);
       run.poll(s, POLLIN);
       run.accepted(s);
       run.note("accept", run.calls.accept(s, nullptr, nullptr));
       EXPECT_TRUE(write_all(one.get(), "first"));
       run.settle(first);
       run.recv(first, 16);
     }},
    {"AcceptGivesTheAddress",
     [](Trial& run) {
       const int s = run.socket();
       sockaddr_in address = loopback();
       socklen_t length = sizeof address;
       EXPECT_EQ(run.calls.bind(s, generic(address), sizeof address), 0);
       EXPECT_EQ(run.calls.listen(s, 8), 0);
       EXPECT_EQ(run.calls.getsockname(s, generic(address), &length), 0);
       const Fd one = kernel_connect(address), two = kernel_connect(address);
       sockaddr_in from{}, own{};
       length = sizeof from;
       const int here = run.calls.accept(s, generic(from), &length);
       EXPECT_EQ(::getsockname(one.get(), generic(own), &length), 0);
       run.say(from.sin_port == own.sin_port && from.sin_addr.s_addr == own.sin_addr.s_addr ? "its own" : "another");
       run.say("length " + std::to_string(length));
       sockaddr_in peer{};
       run.note("getpeername", run.calls.getpeername(here, generic(peer), &length));
       run.say(peer.sin_port == own.sin_port ? "its own" : "another");
       run.note("getsockname", run.calls.getsockname(here, generic(peer), &length));
       run.say(peer.sin_port == address.sin_port ? "the listener's" : "another");
       unsigned char few[4] = {9, 9, 9, 9};
       length = 2;
       const int there = run.calls.accept(s, reinterpret_cast<sockaddr*>(few), &length);
       run.say("length " + std::to_string(length) + " third byte " + std::to_string(few[2]));
       run.calls.close(here);
       run.calls.close(there);
     }},
    {"PeerEnds",
     [](Trial& run) {
       auto c = run.connected();
       run.poll(c.here, POLLIN | POLLOUT | POLLRDHUP, 0);
       EXPECT_TRUE(write_all(c.there.get(), "bye"));
       ::shutdown(c.there.get(), SHUT_WR);
       std::this_thread::sleep_for(std::chrono::milliseconds(20));
       run.poll(c.here, POLLIN | POLLOUT | POLLRDHUP);
       run.recv(c.here, 16);
       run.recv(c.here, 16);
       run.recv(c.here, 16, MSG_PEEK);
       run.poll(c.here, POLLIN | POLLOUT | POLLRDHUP);
       run.note("send", run.calls.send(c.here, "still", 5, 0));
       run.note("shutdown", run.calls.shutdown(c.here, SHUT_WR));
       std::this_thread::sleep_for(std::chrono::milliseconds(20));
       run.poll(c.here, POLLIN | POLLOUT | POLLRDHUP);
       run.note("send", run.calls.send(c.here, "x", 1, MSG_NOSIGNAL));
       std::string got(5, 0);
       EXPECT_TRUE(read_all(c.there.get(), got));
       run.say(got);
     }},
    {"PeerResets",
     [](Trial& run) {
       auto c = run.connected();
       EXPECT_TRUE(write_all(c.there.get(), "x"));
       run.settle(c.here);
       run.recv(c.here, 1);
       reset(c.there);
       run.poll(c.here, POLLIN);
       run.recv(c.here, 1);
       run.recv(c.here, 1);
       run.note("send", run.calls.send(c.here, "x", 1, MSG_NOSIGNAL));
       run.option(c.here, SOL_SOCKET, SO_ERROR);
     }},
    {"PeerResetsAndOptionTells",
     [](Trial& run) {
       auto c = run.connected();
       reset(c.there);
       run.poll(c.here, POLLIN);
       run.option(c.here, SOL_SOCKET, SO_ERROR);
       run.option(c.here, SOL_SOCKET, SO_ERROR);
       run.recv(c.here, 1);
     }},
    {"ShutsReading",
     [](Trial& run) {
       auto c = run.connected();
       run.note("shutdown", run.calls.shutdown(c.here, SHUT_RD));
       run.recv(c.here, 4);
       run.note("send", run.calls.send(c.here, "out", 3, 0));
       std::string got(3, 0);
       EXPECT_TRUE(read_all(c.there.get(), got));
       run.say(got);
       run.note("shutdown", run.calls.shutdown(c.here, 7));
     }},
    {"ShutsWriting",
     [](Trial& run) {
       auto c = run.connected();
       run.note("send", run.calls.send(c.here, "last", 4, 0));
       run.note("shutdown", run.calls.shutdown(c.here, SHUT_WR));
       run.note("send", run.calls.send(c.here, "x", 1, MSG_NOSIGNAL));
       std::string got(4, 0);
       EXPECT_TRUE(read_all(c.there.get(), got));
       char byte;
       run.note("peer reads", ::read(c.there.get(), &byte, 1));
       EXPECT_TRUE(write_all(c.there.get(), "in"));
       run.settle(c.here);
       run.recv(c.here, 4);
     }},
    {"Flags",
     [](Trial& run) {
       auto c = run.connected();
       run.recv(c.here, 4, MSG_DONTWAIT);
       EXPECT_TRUE(write_all(c.there.get(), "abcdef"));
       run.settle(c.here);
       run.recv(c.here, 3, MSG_PEEK);
       run.recv(c.here, 3);
       run.recv(c.here, 0);
       run.recv(c.here, 3, MSG_WAITALL);
       run.note("send", run.calls.send(c.here, "", 0, 0));
       std::thread later([&] {
         EXPECT_TRUE(write_all(c.there.get(), "12"));
         std::this_thread::sleep_for(std::chrono::milliseconds(20));
         EXPECT_TRUE(write_all(c.there.get(), "34"));
       });
       run.recv(c.here, 4, MSG_WAITALL);
       later.join();
       run.note("send", run.calls.send(c.here, "m", 1, MSG_MORE));
       run.note("send", run.calls.send(c.here, "n", 1, MSG_DONTWAIT));
       std::string got(2, 0);
       EXPECT_TRUE(read_all(c.there.get(), got));
       run.say(got);
     }},
    {"TimesOut",
     [](Trial& run) {
       auto c = run.connected();
       const timeval soon{0, 30'000};
       run.note("setsockopt", run.calls.setsockopt(c.here, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
       run.recv(c.here, 4);
       EXPECT_TRUE(write_all(c.there.get(), "ab"));
       run.recv(c.here, 4, MSG_WAITALL);
     }},
    {"FillsUp",
     [](Trial& run) {
       auto c = run.connected();
       const std::string bytes = pattern(1 << 16);
       ssize_t sent = 0, all = 0;
       for (int idle = 0; idle < 3;) {
         while ((sent = run.calls.send(c.here, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) all += sent, idle = 0;
         run.poll(c.here, POLLOUT, 20) == 0 ? ++idle : 0;
       }
       run.trace.clear();
       run.note("send", sent);
       run.poll(c.here, POLLOUT, 0);
       std::string got(static_cast<std::size_t>(all), 0);
       std::thread reader([&] { EXPECT_TRUE(read_all(c.there.get(), got)); });
       run.poll(c.here, POLLOUT);
       reader.join();
       run.note("send", run.calls.send(c.here, "x", 1, MSG_DONTWAIT));
     }},
    {"Options",
     [](Trial& run) {
       const int s = run.socket();
       run.option(s, SOL_SOCKET, SO_TYPE);
       run.option(s, SOL_SOCKET, SO_DOMAIN);
       run.option(s, SOL_SOCKET, SO_PROTOCOL);
       run.option(s, IPPROTO_TCP, TCP_NODELAY);
       run.set(s, IPPROTO_TCP, TCP_NODELAY, 1);
       run.option(s, IPPROTO_TCP, TCP_NODELAY);
       run.set(s, SOL_SOCKET, SO_REUSEADDR, 1);
       run.option(s, SOL_SOCKET, SO_REUSEADDR);
       run.set(s, SOL_SOCKET, SO_KEEPALIVE, 1);
       run.set(s, IPPROTO_TCP, TCP_KEEPIDLE, 77);
       run.option(s, IPPROTO_TCP, TCP_KEEPIDLE);
       run.set(s, IPPROTO_TCP, TCP_KEEPIDLE, -1);
       run.set(s, SOL_SOCKET, 12345, 1);
       run.option(s, SOL_SOCKET, 12345);
       run.set(s, SOL_SOCKET, SO_TYPE, 1);
       char tiny = 1;
       run.note("setsockopt", run.calls.setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &tiny, 1));
       run.note("setsockopt", run.calls.setsockopt(s, IPPROTO_TCP, TCP_NODELAY, nullptr, sizeof(int)));
     }},
    {"Messages",
     [](Trial& run) {
       auto c = run.connected();
       char one[] = "over", two[] = "the", three[] = "viaduct";
       iovec out[] = {{one, 4}, {nullptr, 0}, {two, 3}, {three, 7}};
       msghdr message{};
       message.msg_iov = out;
       message.msg_iovlen = 4;
       run.note("sendmsg", run.calls.sendmsg(c.here, &message, 0));
       std::string got(14, 0);
       EXPECT_TRUE(read_all(c.there.get(), got));
       run.say(got);
       EXPECT_TRUE(write_all(c.there.get(), "andback"));
       run.settle(c.here);
       char a[3], b[8];
       iovec in[] = {{a, sizeof a}, {b, sizeof b}};
       message.msg_iov = in;
       message.msg_iovlen = 2;
       run.note("recvmsg", run.calls.recvmsg(c.here, &message, 0));
       run.say(std::string(a, 3) + '|' + std::string(b, 4) + " flags " + std::to_string(message.msg_flags));
       message.msg_iovlen = 5000;
       run.note("sendmsg", run.calls.sendmsg(c.here, &message, 0));
     }},
    {"SixthVersion",
     [](Trial& run) {
       const int s = run.socket(AF_INET6);
       sockaddr_in6 address{};
       address.sin6_family = AF_INET6;
       address.sin6_addr = in6addr_loopback;
       socklen_t length = sizeof address;
       auto* const a = reinterpret_cast<sockaddr*>(&address);
       run.set(s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
       run.note("bind", run.calls.bind(s, a, length));
       run.note("listen", run.calls.listen(s, 4));
       run.note("getsockname", run.calls.getsockname(s, a, &length));
       const int t = run.socket(AF_INET6);
       run.note("connect", run.calls.connect(t, a, length));
       const int here = run.accepted(s);
       run.note("send", run.calls.send(t, "six", 3, 0));
       run.settle(here);
       run.recv(here, 8);
       sockaddr_in6 from{};
       length = sizeof from;
       run.note("getpeername", run.calls.getpeername(here, reinterpret_cast<sockaddr*>(&from), &length));
       run.say("family " + std::to_string(from.sin6_family) + " length " + std::to_string(length));
     }},
    {"ClosedAndNeverOpened",
     [](Trial& run) {
       const int s = run.socket();
       run.note("close", run.calls.close(s));
       run.forget(s);
       run.note("close", run.calls.close(s));
       char byte = 0;
       sockaddr_in address = loopback();
       socklen_t length = sizeof address;
       run.note("send", run.calls.send(s, &byte, 1, 0));
       run.note("recv", run.calls.recv(s, &byte, 1, 0));
       run.note("bind", run.calls.bind(s, generic(address), length));
       run.note("listen", run.calls.listen(s, 1));
       run.note("accept", run.calls.accept(s, nullptr, nullptr));
       run.note("connect", run.calls.connect(-1, generic(address), length));
       run.note("shutdown", run.calls.shutdown(s, SHUT_RD));
       run.note("getsockname", run.calls.getsockname(s, generic(address), &length));
       pollfd entries[] = {{s, POLLIN, 0}, {-1, POLLIN, 7}};
       run.note("poll", run.calls.poll(entries, 2, 0));
       run.say(std::to_string(entries[0].revents) + ' ' + std::to_string(entries[1].revents));
     }},
};

class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  HangGuard guard;
};

TEST_P(Conformance, IsAsTheKernel) {
  ServerProcess server;
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  std::string natively, through;
  {
    Trial run(kKernel);
    GetParam().run(run);
    natively = run.trace;
  }
  {
    Trial run(kMemNet);
    GetParam().run(run);
    through = run.trace;
  }
  EXPECT_EQ(through, natively);
  memnet_shut();
}

INSTANTIATE_TEST_SUITE_P(Sockets, Conformance, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return one.param.name; });

TEST(Differences, UrgentDataIsRefused) {
  const HangGuard guard;
  ServerProcess server;
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  {
    Pair pair;
    EXPECT_EQ(memnet_send(pair.here, "!", 1, MSG_OOB), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    char byte;
    EXPECT_EQ(memnet_recv(pair.here, &byte, 1, MSG_OOB), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  EXPECT_EQ(memnet_socket(AF_UNIX, SOCK_STREAM, 0), -1);
  EXPECT_EQ(errno, EAFNOSUPPORT);
  EXPECT_EQ(memnet_socket(AF_INET, SOCK_DGRAM, 0), -1);
  EXPECT_EQ(errno, ESOCKTNOSUPPORT);
  memnet_shut();
}

}  // namespace
}  // namespace viaduct::memnet::testing
