#include <fmt/format.h>

#include "bench/net_link_parts.hpp"
#include "bench/net_links.hpp"
#include "net/ping.hpp"

namespace viaduct::bench {

namespace {

using namespace links;

// The far end is made in the partner, which enters its host itself: a node belongs to one process.
class SessionLink final : public NetLink {
 public:
  struct Way {
    bool spin = true;
    std::uint16_t port = 0;  // 0: over the MAC `packet`
  };
  SessionLink(NetEnds ends, Way way) : ends_(std::move(ends)), way_(way) {}

  void serve(bool, FarEnd& far) override {
    if (answerer_ == nullptr) {
      ends_.hosts.enter(false);
      auto opened = open_answerer();
      if (!opened) return;
      answerer_ = std::move(*opened);
    }
    while (far.stop.load(std::memory_order_acquire) == 0) answerer_->turn(way_.spin ? 0 : 5'000'000);
  }
  double round_trip(std::uint32_t count) override {
    if (!connect()) return 0;
    const std::uint64_t start = now();
    const bool good = static_cast<bool>(pinger_->round_trips(count, way_.spin));
    const double us = static_cast<double>(now() - start) / 1e3 / count;
    return pinger_->drain() && good ? us : 0;
  }
  double stream(std::size_t size, std::uint64_t bytes, FarEnd&) override {
    if (!connect()) return 0;
    const auto rate = pinger_->bulk(net::Pinger::Way::put, size, bytes, kGiveUp, way_.spin);
    return pinger_->drain() && rate ? *rate : 0;
  }

 private:
  Result<std::unique_ptr<net::PingAnswerer>> open_answerer() const {
    if (way_.port != 0) return net::PingAnswerer::open(way_.port);
    VIADUCT_TRY(auto mac, net::open_frames(ends_.far_interface));
    return net::PingAnswerer::over(std::move(mac), net::kPingName);
  }
  Result<std::unique_ptr<net::Pinger>> open_pinger() const {
    if (way_.port != 0) return net::Pinger::open(fmt::format("{}:{}", ends_.hosts.far, way_.port), kGiveUp);
    VIADUCT_TRY(auto mac, net::open_frames(ends_.near_interface));
    return net::Pinger::over(std::move(mac), net::kPingName, kGiveUp);
  }
  bool connect() {
    if (pinger_ != nullptr) return true;
    ends_.hosts.enter(true);
    auto opened = open_pinger();
    if (!opened) return false;
    pinger_ = std::move(*opened);
    return true;
  }

  const NetEnds ends_;
  const Way way_;
  std::unique_ptr<net::PingAnswerer> answerer_;
  std::unique_ptr<net::Pinger> pinger_;
};

}  // namespace

Result<std::unique_ptr<NetLink>> make_session_link(const NetEnds& ends, bool spin, std::uint16_t port) {
  return std::unique_ptr<NetLink>(std::make_unique<SessionLink>(ends, SessionLink::Way{spin, port}));
}

Result<std::unique_ptr<NetLink>> make_packet_session_link(const NetEnds& ends) {
  return std::unique_ptr<NetLink>(std::make_unique<SessionLink>(ends, SessionLink::Way{}));
}

}  // namespace viaduct::bench
