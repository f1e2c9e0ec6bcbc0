// `viaduct bench nic-packet`: the inline adapter over the MAC `packet`, between two network namespaces joined by veth,
// against the bare packet socket it stands on and against UDP.
#include <sys/mman.h>

#include "base/clock.hpp"
#include "base/spin.hpp"
#include "base/topology.hpp"
#include "bench/packet_paths.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"
#include "bench/veth_lab.hpp"

namespace viaduct::bench {

namespace {

constexpr const char* kUs = "adapter, inline";
constexpr const char* kBare = "bare packet socket";
constexpr const char* kUdp = "UDP";

struct Who {
  const char* name;
  Kind kind;
  Result<std::unique_ptr<PacketPath>> (*make)(const PathEnd&);
};
constexpr Who kPaths[] = {{kUs, Kind::us, make_adapter_path},   {"its MAC alone", Kind::peer, make_mac_path},
                          {kBare, Kind::floor, make_bare_path}, {"the same, tuned", Kind::peer, make_tuned_path},
                          {kUdp, Kind::peer, make_udp_path},    {"UDP, batched", Kind::peer, make_batched_udp_path}};

constexpr std::uint32_t kPing = 1, kStream = 2;
constexpr std::uint64_t kQuietNs = 20'000'000;    // nothing for so long: the stream is over
constexpr std::uint64_t kGiveUpNs = 500'000'000;  // a partner that does not answer any more

std::uint64_t now() {
  return Clock::steady().now_ns();
}

// The other end's part: answers every ping until the last.
void answer_pings(PacketPath& path, std::uint64_t count) {
  for (std::uint64_t heard = now();;) {
    Mark mark;
    if (!path.receive(mark)) {
      if (now() - heard > kGiveUpNs) return;
      continue;
    }
    heard = now();
    if (mark.kind != kPing) continue;
    path.send(mark);
    if (mark.number == count) return;
  }
}

// Microseconds per round trip; 0: an answer was lost.
double round_trip(PacketPath& path, std::uint64_t count) {
  Mark mark;
  while (path.receive(mark)) continue;  // what an earlier stream left
  const std::uint64_t start = now();
  for (std::uint32_t i = 1; i <= count; ++i) {
    path.send({kPing, i});
    for (std::uint32_t spins = 0; !path.receive(mark) || mark.kind != kPing || mark.number != i;)
      if ((++spins & 0xffff) == 0 && now() - start > kGiveUpNs) return 0;
  }
  return static_cast<double>(now() - start) / 1e3 / static_cast<double>(count);
}

struct Received {  // shared by the two processes
  std::atomic<std::uint64_t> frames, last_ns;
};

void count_stream(PacketPath& path, std::uint64_t most, Received& result) {
  std::uint64_t frames = 0, first = 0, last = now();
  while (frames < most) {
    const std::uint32_t found = path.receive_batch(kStream);
    const std::uint64_t moment = now();
    if (found != 0) {
      if (first == 0) first = moment;
      last = moment;
      frames += found;
    } else if (moment - last > (first == 0 ? kGiveUpNs : kQuietNs)) {
      break;
    }
  }
  result.frames = frames;
  result.last_ns = last;
}

// Both ends of one path, and the partner processes that have the far one.
class Pair {
 public:
  static Result<std::unique_ptr<Pair>> make(const Who& who, TwoNetworks& networks, int cable) {
    VIADUCT_CHECK(networks.add_cable(cable));
    const auto end = [&](bool left) {
      networks.enter(left);
      return who.make(
          {TwoNetworks::interface(cable, left), TwoNetworks::address(cable, left), TwoNetworks::address(cable, !left)});
    };
    auto pair = std::make_unique<Pair>();
    VIADUCT_TRY(pair->near_, end(true));
    VIADUCT_TRY(pair->far_, end(false));
    void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error::from_errno("share a page with a partner");
    pair->received_ = new (memory) Received{};
    PacketPath& far = *pair->far_;
    Received& received = *pair->received_;
    // One process for both: where its ring is, is its own memory.
    VIADUCT_TRY(Partner partner, Partner::fork(placement().theirs, [&far, &received](std::uint64_t what) {
                  if (what >> 32 == kPing)
                    answer_pings(far, what & 0xffffffff);
                  else
                    count_stream(far, what & 0xffffffff, received);
                }));
    pair->partner_.emplace(std::move(partner));
    return pair;
  }

  double ping(std::uint64_t count) {
    partner_->start(std::uint64_t{kPing} << 32 | count);
    const double us = round_trip(*near_, count);
    partner_->finish();
    return us;
  }
  // Thousand frames per second that the far end received.
  double stream(std::uint64_t count) {
    partner_->start(std::uint64_t{kStream} << 32 | count);
    const std::uint64_t start = now();
    for (std::uint64_t sent = 0; sent < count;) sent += near_->send_batch({kStream, 0});
    partner_->finish();
    return static_cast<double>(received_->frames) * 1e6 / static_cast<double>(received_->last_ns - start);
  }

 private:
  std::unique_ptr<PacketPath> near_, far_;
  Received* received_ = nullptr;
  std::optional<Partner> partner_;
};

// In the lab: two measurements of each path, in the order of kPaths.
Result<Lab::Measurements> prepare(bool quick) {
  (void)pin_this_thread(placement().mine);
  VIADUCT_TRY(TwoNetworks networks, TwoNetworks::make());
  Lab::Measurements measurements;
  int cable = 0;
  for (const Who& who : kPaths) {
    VIADUCT_TRY(std::unique_ptr<Pair> made, Pair::make(who, networks, cable++));
    Pair* const pair = made.release();  // as long as the process
    measurements.push_back([=] { return pair->ping(quick ? 200 : 2'000); });
    measurements.push_back([=] { return pair->stream(quick ? 2'000 : 30'000); });
  }
  return measurements;
}

}  // namespace

Result<Report> run_nic_packet(const Options& options) {
  Suite suite("nic-packet", "Frames of 64 bytes between two network namespaces, each end on its own processor");
  auto lab = Lab::fork([&] { return prepare(options.quick); });
  if (!lab) {
    suite.note("not measured: " + lab.error().message());
    return suite.run(options, 1);
  }
  for (std::size_t i = 0; i < std::size(kPaths); ++i)
    suite.add({"64 B ping-pong", kPaths[i].name, kPaths[i].kind, "round trip", "us", Better::lower,
               [&lab, i] { return lab->measure(2 * i); }});
  for (std::size_t i = 0; i < std::size(kPaths); ++i)
    suite.add({"64 B stream", kPaths[i].name, kPaths[i].kind, "received", "thousand/s", Better::higher,
               [&lab, i] { return lab->measure(2 * i + 1); }});
  suite.note("all spin; tuned: past the queueing discipline and deaf to its own frames, as the adapter's MAC is");
  suite.expect({"64 B ping-pong", "round trip", kUs, kBare, Better::lower, 1.15});
  suite.expect({"64 B stream", "received", kUs, kBare, Better::higher, 0.9});
  return suite.run(options, 31);
}

}  // namespace viaduct::bench
