#include "bench/net_link_parts.hpp"
#include "bench/net_links.hpp"
#include "bench/packet_paths.hpp"

namespace viaduct::bench {

namespace {

using namespace links;

// The floor of what goes by frames: the kernel's receive ring and send().
class BarePacketLink final : public NetLink {
 public:
  BarePacketLink(std::unique_ptr<PacketPath> near, std::unique_ptr<PacketPath> far)
      : near_(std::move(near)), far_(std::move(far)) {}

  void serve(bool, FarEnd& far) override {
    Mark mark;
    for (std::uint32_t looks = 0; (++looks & 63) != 0 || far.stop.load(std::memory_order_acquire) == 0;) {
      if (far_->receive(mark)) far_->send(mark);
    }
  }
  double round_trip(std::uint32_t count) override {
    const std::uint64_t start = now();
    for (std::uint32_t i = 1; i <= count; ++i) {
      near_->send({1, i});
      Mark mark;
      for (std::uint32_t spins = 0; !near_->receive(mark) || mark.number != i;) {
        if ((++spins & 0xffff) == 0 && now() - start > kGiveUp) return 0;
      }
    }
    return static_cast<double>(now() - start) / 1e3 / count;
  }
  double stream(std::size_t, std::uint64_t, FarEnd&) override { return 0; }

 private:
  const std::unique_ptr<PacketPath> near_, far_;
};

}  // namespace

Result<std::unique_ptr<NetLink>> make_bare_packet_link(const NetEnds& ends) {
  ends.hosts.enter(true);
  VIADUCT_TRY(auto near, make_bare_path({ends.near_interface, ends.hosts.near, ends.hosts.far}));
  ends.hosts.enter(false);
  VIADUCT_TRY(auto far, make_bare_path({ends.far_interface, ends.hosts.far, ends.hosts.near}));
  return std::unique_ptr<NetLink>(std::make_unique<BarePacketLink>(std::move(near), std::move(far)));
}

}  // namespace viaduct::bench
