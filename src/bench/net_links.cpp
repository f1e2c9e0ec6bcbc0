#include "bench/net_links.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "net/ping.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint64_t kGiveUp = 2'000'000'000;  // ns: a partner that does not answer any more
constexpr std::uint64_t kQuiet = 20'000'000;      // nothing for so long: a stream of datagrams is over
constexpr std::size_t kMessage = 4;
constexpr int kBuffer = 4 << 20;

std::uint64_t now() {
  return Clock::steady().now_ns();
}

sockaddr_in at(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}
const sockaddr* any(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// The far end is made in the partner, which enters its host itself: a node belongs to one process.
class SessionLink final : public NetLink {
 public:
  SessionLink(NetEnds ends, bool spin, std::uint16_t port) : ends_(std::move(ends)), spin_(spin), port_(port) {}

  void serve(bool, FarEnd& far) override {
    if (answerer_ == nullptr) {
      ends_.enter(false);
      auto opened = net::PingAnswerer::open(port_);
      if (!opened) return;
      answerer_ = std::move(*opened);
    }
    while (far.stop.load(std::memory_order_acquire) == 0) answerer_->turn(spin_ ? 0 : 5'000'000);
  }
  double round_trip(std::uint32_t count) override {
    if (!connect()) return 0;
    const std::uint64_t start = now();
    const bool good = static_cast<bool>(pinger_->round_trips(count, spin_));
    const double us = static_cast<double>(now() - start) / 1e3 / count;
    return pinger_->drain() && good ? us : 0;
  }
  double stream(std::size_t size, std::uint64_t bytes, FarEnd&) override {
    if (!connect()) return 0;
    const auto rate = pinger_->bulk(net::Pinger::Way::put, size, bytes, kGiveUp);
    return pinger_->drain() && rate ? *rate : 0;
  }

 private:
  bool connect() {
    if (pinger_ != nullptr) return true;
    ends_.enter(true);
    auto opened = net::Pinger::open(fmt::format("{}:{}", ends_.far, port_), kGiveUp);
    if (!opened) return false;
    pinger_ = std::move(*opened);
    return true;
  }

  const NetEnds ends_;
  const bool spin_;
  const std::uint16_t port_;
  std::unique_ptr<net::PingAnswerer> answerer_;
  std::unique_ptr<net::Pinger> pinger_;
};

// As programs that want latency use it: no delay, and non-blocking where it spins.
class TcpLink final : public NetLink {
 public:
  TcpLink(Fd near, Fd far, bool spin) : near_(std::move(near)), far_(std::move(far)), flags_(spin ? MSG_DONTWAIT : 0) {}

  void serve(bool stream, FarEnd& far) override {
    std::vector<std::byte> buffer(stream ? 1 << 20 : kMessage);
    std::uint64_t bytes = 0;
    std::uint32_t looks = 0;
    while (stream || (++looks & 63) != 0 || far.stop.load(std::memory_order_acquire) == 0) {
      const ssize_t size = ::recv(far_.get(), buffer.data(), buffer.size(), flags_);
      if (size <= 0) {
        if (stream && far.stop.load(std::memory_order_acquire) != 0) return;
        continue;  // blocking: its time-out
      }
      bytes += static_cast<std::uint64_t>(size);
      if (stream) {
        far.last_ns.store(now(), std::memory_order_relaxed);
        far.bytes.store(bytes, std::memory_order_release);
      } else {
        (void)::send(far_.get(), buffer.data(), static_cast<std::size_t>(size), 0);
      }
    }
  }
  double round_trip(std::uint32_t count) override {
    const std::uint64_t start = now();
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t back = 0;
      if (::send(near_.get(), &i, sizeof i, 0) != sizeof i) return 0;
      for (std::uint32_t spins = 0; ::recv(near_.get(), &back, sizeof back, flags_) != sizeof back;) {
        if ((++spins & 0xffff) == 0 && now() - start > kGiveUp) return 0;
      }
      if (back != i) return 0;
    }
    return static_cast<double>(now() - start) / 1e3 / count;
  }
  double stream(std::size_t size, std::uint64_t bytes, FarEnd& far) override {
    const std::vector<std::byte> buffer(size);
    const std::uint64_t start = now();
    std::uint64_t sent = 0;
    while (sent < bytes) {
      const ssize_t taken = ::send(near_.get(), buffer.data(), buffer.size(), 0);
      if (taken <= 0) return 0;
      sent += static_cast<std::uint64_t>(taken);
    }
    while (far.bytes.load(std::memory_order_acquire) < sent) {
      if (now() - start > kGiveUp) return 0;
    }
    return static_cast<double>(sent) * 1e9 / static_cast<double>(far.last_ns.load() - start);
  }

 private:
  const Fd near_, far_;
  const int flags_;
};

// The floor: datagrams without promises.
class BareUdpLink final : public NetLink {
 public:
  BareUdpLink(Fd near, Fd far, std::uint32_t segment)
      : near_(std::move(near)), far_(std::move(far)), segment_(segment) {}

  void serve(bool stream, FarEnd& far) override {
    std::vector<std::byte> buffer(65536);
    std::uint64_t bytes = 0;
    for (std::uint32_t looks = 0; (++looks & 63) != 0 || far.stop.load(std::memory_order_acquire) == 0;) {
      const ssize_t size = ::recv(far_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (size <= 0) continue;
      if (!stream) {
        (void)::send(far_.get(), buffer.data(), static_cast<std::size_t>(size), MSG_DONTWAIT);
        continue;
      }
      bytes += static_cast<std::uint64_t>(size);
      far.last_ns.store(now(), std::memory_order_relaxed);
      far.bytes.store(bytes, std::memory_order_release);
    }
  }
  double round_trip(std::uint32_t count) override {
    const std::uint64_t start = now();
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t back = 0;
      (void)::send(near_.get(), &i, sizeof i, MSG_DONTWAIT);
      for (std::uint32_t spins = 0;
           ::recv(near_.get(), &back, sizeof back, MSG_DONTWAIT) != sizeof back || back != i;) {
        if ((++spins & 0xffff) == 0 && now() - start > kGiveUp) return 0;
      }
    }
    return static_cast<double>(now() - start) / 1e3 / count;
  }
  // What arrives, of as much as is sent.
  double stream(std::size_t, std::uint64_t bytes, FarEnd& far) override {
    const std::size_t whole = 65'000 / segment_ * segment_;
    std::vector<std::byte> buffer(whole);
    const std::uint64_t start = now();
    for (std::uint64_t sent = 0; sent < bytes;) {
      const ssize_t taken = ::send(near_.get(), buffer.data(), buffer.size(), 0);
      if (taken <= 0) return 0;
      sent += static_cast<std::uint64_t>(taken);
    }
    for (std::uint64_t seen = 0; now() - std::max(far.last_ns.load(), start) < kQuiet;) {
      if (const std::uint64_t bytes_now = far.bytes.load(); bytes_now != seen) seen = bytes_now;
    }
    const std::uint64_t last = far.last_ns.load();
    return last > start ? static_cast<double>(far.bytes.load()) * 1e9 / static_cast<double>(last - start) : 0;
  }

 private:
  const Fd near_, far_;
  const std::uint32_t segment_;
};

}  // namespace

Result<std::unique_ptr<NetLink>> make_session_link(const NetEnds& ends, bool spin, std::uint16_t port) {
  return std::unique_ptr<NetLink>(std::make_unique<SessionLink>(ends, spin, port));
}

Result<std::unique_ptr<NetLink>> make_tcp_link(const NetEnds& ends, bool spin) {
  const std::uint16_t port = spin ? 7100 : 7101;
  const sockaddr_in address = at(ends.far, port);
  ends.enter(false);
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (::bind(listener.get(), any(address), sizeof address) != 0 || ::listen(listener.get(), 1) != 0) {
    return Error::from_errno("listen for TCP");
  }
  ends.enter(true);
  Fd near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(near.get(), any(address), sizeof address) != 0) return Error::from_errno("connect by TCP");
  Fd far(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!far) return Error::from_errno("accept by TCP");
  const timeval patience{0, 5000};
  for (const Fd* end : {&near, &far}) {
    (void)::setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)::setsockopt(end->get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  return std::unique_ptr<NetLink>(std::make_unique<TcpLink>(std::move(near), std::move(far), spin));
}

Result<std::unique_ptr<NetLink>> make_bare_udp_link(const NetEnds& ends) {
  const sockaddr_in near_address = at(ends.near, 7102), far_address = at(ends.far, 7102);
  const auto open = [&](bool left, const sockaddr_in& mine, const sockaddr_in& theirs) -> Result<Fd> {
    ends.enter(left);
    Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof kBuffer);
    if (::bind(socket.get(), any(mine), sizeof mine) != 0 || ::connect(socket.get(), any(theirs), sizeof theirs) != 0) {
      return Error::from_errno("join two UDP sockets");
    }
    return socket;
  };
  VIADUCT_TRY(Fd near, open(true, near_address, far_address));
  VIADUCT_TRY(Fd far, open(false, far_address, near_address));
  int mtu = 1500;
  socklen_t length = sizeof mtu;
  (void)::getsockopt(near.get(), IPPROTO_IP, IP_MTU, &mtu, &length);
  const int segment = mtu - 28, yes = 1;
  (void)::setsockopt(near.get(), SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
  (void)::setsockopt(far.get(), SOL_UDP, UDP_GRO, &yes, sizeof yes);
  return std::unique_ptr<NetLink>(
      std::make_unique<BareUdpLink>(std::move(near), std::move(far), static_cast<std::uint32_t>(segment)));
}

}  // namespace viaduct::bench
