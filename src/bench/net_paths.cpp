#include "bench/net_paths.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <tuple>
#include <utility>

#include "base/topology.hpp"
#include "bench/conduit_vipl.hpp"
#include "bench/net_links.hpp"
#include "bench/partner.hpp"
#include "bench/processor_time.hpp"

namespace viaduct::bench {

namespace {

class LinkPath final : public NetPath {
 public:
  static Result<std::unique_ptr<NetPath>> make(Result<std::unique_ptr<NetLink>> link) {
    if (!link) return link.error();
    std::unique_ptr<LinkPath> path(new LinkPath(std::move(*link)));
    void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error::from_errno("share a page with a partner");
    path->far_ = new (memory) FarEnd{};
    NetLink& near = *path->link_;
    FarEnd& far = *path->far_;
    VIADUCT_TRY(Partner partner,
                Partner::fork(placement().theirs, [&near, &far](std::uint64_t what) { near.serve(what != 0, far); }));
    path->partner_.emplace(std::move(partner));
    return std::unique_ptr<NetPath>(std::move(path));
  }

  double round_trip_us(std::uint32_t count) override {
    return with_partner(false, [&] { return link_->round_trip(count); });
  }

 protected:
  double gigabits(std::size_t size, std::uint64_t bytes) override {
    return with_partner(true, [&] { return link_->stream(size, bytes, *far_) * 8 / 1e9; });
  }
  pid_t far_process() const override { return partner_->process(); }

 private:
  explicit LinkPath(std::unique_ptr<NetLink> link) : link_(std::move(link)) {}

  template <class Measure>
  double with_partner(bool stream, Measure&& measure) {
    far_->stop = 0;
    far_->bytes = far_->last_ns = 0;
    partner_->start(stream ? 1 : 0);
    const double value = measure();
    far_->stop.store(1, std::memory_order_release);
    partner_->finish();
    return value;
  }

  const std::unique_ptr<NetLink> link_;
  FarEnd* far_ = nullptr;
  std::optional<Partner> partner_;
};

class ConduitPath final : public NetPath {
 public:
  static Result<std::unique_ptr<NetPath>> make(Result<std::unique_ptr<Conduit>> conduit) {
    if (!conduit) return conduit.error();
    VIADUCT_TRY(auto link, ConduitLink::make(std::move(*conduit)));
    return std::unique_ptr<NetPath>(new ConduitPath(std::move(link)));
  }

  double round_trip_us(std::uint32_t count) override { return link_->one_way_ns(count, 4) * 2 / 1e3; }

 protected:
  double gigabits(std::size_t size, std::uint64_t bytes) override {
    const auto count = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bytes / size));
    return static_cast<double>(size) * 8 / link_->per_message_ns(count, size);
  }
  pid_t far_process() const override { return link_->partner(); }

 private:
  explicit ConduitPath(std::unique_ptr<ConduitLink> link) : link_(std::move(link)) {}
  const std::unique_ptr<ConduitLink> link_;
};

NetEnds ends_of(const TwoNetworks& networks, int cable) {
  return {hosts_of(networks, cable), TwoNetworks::interface(cable, true), TwoNetworks::interface(cable, false)};
}

std::uint16_t next_port() {
  static std::uint16_t port = 7200;
  return port++;
}

NetWho fabric_path(const char* name, const char* provider) {
  return {name, Kind::peer, [provider](const TwoNetworks& networks, int cable) {
            return ConduitPath::make(make_fabric({provider, hosts_of(networks, cable)}));
          }};
}

}  // namespace

TwoEnds hosts_of(const TwoNetworks& networks, int cable) {
  return {TwoNetworks::address(cable, true), TwoNetworks::address(cable, false),
          [&networks](bool near) { networks.enter(near); }};
}

NetPath::Streamed NetPath::stream(std::size_t size, std::uint64_t bytes) {
  const auto used = [&] { return own_processor_time_ns(::getpid()) + own_processor_time_ns(far_process()); };
  const double before = used();
  const double rate = gigabits(size, bytes);
  return {rate, (used() - before) * 1024 / static_cast<double>(bytes)};
}

double TwoNumbers::take(std::optional<double>& wanted, std::optional<double>& other) {
  if (!wanted) {
    std::tie(first_, second_) = run_();
  } else {
    other.reset();
  }
  return *std::exchange(wanted, std::nullopt);
}

NetWho session_path(bool spin) {
  return {spin ? kSession : kSessionAsleep, Kind::us, [spin](const TwoNetworks& networks, int cable) {
            return LinkPath::make(make_session_link(ends_of(networks, cable), spin, next_port()));
          }};
}
NetWho session_by_packet_path() {
  return {kSessionByPacket, Kind::us, [](const TwoNetworks& networks, int cable) {
            return LinkPath::make(make_packet_session_link(ends_of(networks, cable)));
          }};
}
NetWho vipl_path() {
  return {kViplByNet, Kind::us, [](const TwoNetworks& networks, int cable) -> Result<std::unique_ptr<NetPath>> {
            VIADUCT_TRY(std::unique_ptr<Conduit> conduit,
                        make_vipl({.transfer = ViplOptions::Transfer::rdma_write, .hosts = hosts_of(networks, cable)}));
            return ConduitPath::make(std::move(conduit));
          }};
}
NetWho tcp_path(bool spin) {
  return {spin ? kTcpSpinning : kTcpBlocking, Kind::peer, [spin](const TwoNetworks& networks, int cable) {
            return LinkPath::make(make_tcp_link(ends_of(networks, cable), spin, next_port()));
          }};
}
NetWho bare_udp_path() {
  return {kBareUdp, Kind::floor, [](const TwoNetworks& networks, int cable) {
            return LinkPath::make(make_bare_udp_link(ends_of(networks, cable)));
          }};
}
NetWho bare_packet_path() {
  return {kBarePacket, Kind::floor, [](const TwoNetworks& networks, int cable) {
            return LinkPath::make(make_bare_packet_link(ends_of(networks, cable)));
          }};
}

std::vector<NetWho> fabric_paths(Suite& suite) {
  std::vector<NetWho> found;
  for (const auto& [name, provider] : {std::pair{kRxd, "udp;ofi_rxd"}, std::pair{kRxm, "tcp;ofi_rxm"}}) {
    if (const Status here = look_for_fabric(provider); here.ok())
      found.push_back(fabric_path(name, provider));
    else
      suite.note(std::string(name) + " was not measured: " + here.error().message());
  }
  return found;
}

Result<NetPath*> add_path(const NetWho& who, const TwoNetworks& networks, int cable) {
  auto path = who.make(networks, cable);
  if (!path) return path.error().because(who.name);
  return path->release();
}

Result<TwoNetworks*> join_networks(const std::vector<unsigned>& mtus) {
  (void)pin_this_thread(placement().mine);
  VIADUCT_TRY(TwoNetworks made, TwoNetworks::make());
  auto* const networks = new TwoNetworks(std::move(made));
  for (std::size_t i = 0; i < mtus.size(); ++i) VIADUCT_CHECK(networks->add_cable(static_cast<int>(i), mtus[i]));
  return networks;
}

}  // namespace viaduct::bench
