#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "base/fd.hpp"
#include "bench/net_link_parts.hpp"
#include "bench/net_links.hpp"

namespace viaduct::bench {

namespace {

using namespace links;

constexpr std::uint64_t kQuiet = 20'000'000;  // nothing for so long: a stream of datagrams is over
constexpr int kBuffer = 4 << 20;

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

Result<std::unique_ptr<NetLink>> make_bare_udp_link(const NetEnds& ends) {
  const sockaddr_in near_address = at(ends.hosts.near, 7102), far_address = at(ends.hosts.far, 7102);
  const auto open = [&](bool left, const sockaddr_in& mine, const sockaddr_in& theirs) -> Result<Fd> {
    ends.hosts.enter(left);
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
