#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "bench/net_link_parts.hpp"
#include "bench/net_links.hpp"

namespace viaduct::bench {

namespace {

using namespace links;

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
      if (now() - start > kGiveUp + sent) return 0;  // 1 GB/s at least
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return static_cast<double>(sent) * 1e9 / static_cast<double>(far.last_ns.load() - start);
  }

 private:
  const Fd near_, far_;
  const int flags_;
};

}  // namespace

Result<std::unique_ptr<NetLink>> make_tcp_link(const NetEnds& ends, bool spin, std::uint16_t port) {
  const sockaddr_in address = at(ends.hosts.far, port);
  ends.hosts.enter(false);
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (::bind(listener.get(), any(address), sizeof address) != 0 || ::listen(listener.get(), 1) != 0) {
    return Error::from_errno("listen for TCP");
  }
  ends.hosts.enter(true);
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

}  // namespace viaduct::bench
