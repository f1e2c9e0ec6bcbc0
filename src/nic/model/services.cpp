#include "nic/model/services.hpp"

#include <algorithm>

namespace viaduct::nic::model {

namespace {

constexpr WebTrace kWeb[] = {
    {"NASA", 0.555, 636, 944, 942},
    {"Rice", 0.605, 616, 932, 925},
    {"WC", 0.81, 550, 702, 870},
};
constexpr RouterTrace kRouter[] = {
    {"ADV", 113, 150, 166},
    {"AIX", 115, 173, 198},
    {"MEM", 119, 247, 276},
};
constexpr std::uint32_t kSegment = 1460, kShort = 60, kMiddle = 576, kLong = 1514;
constexpr double kMiddleShare = 0.25;
constexpr unsigned kPerMailbox = 8;

// A hundred lengths whose mean is that, well mixed.
std::vector<std::uint32_t> mix(double mean) {
  const double longs =
      std::clamp((mean - (1 - kMiddleShare) * kShort - kMiddleShare * kMiddle) / (kLong - kShort), 0.0, 0.75);
  std::vector<std::uint32_t> lengths;
  for (unsigned i = 0; i < 100; ++i) {
    const double at = (i * 37 % 100 + 0.5) / 100;
    lengths.push_back(at < longs ? kLong : at < longs + kMiddleShare ? kMiddle : kShort);
  }
  return lengths;
}

}  // namespace

std::span<const WebTrace> web_traces() {
  return kWeb;
}
std::span<const RouterTrace> router_traces() {
  return kRouter;
}

double web_megabits(const Card& card, const Variant& variant, const WebTrace& trace, std::uint64_t packets) {
  Traffic traffic;
  traffic.send = {kSegment + 54};
  traffic.receive = {kShort};
  traffic.receives_per_send = trace.receives_per_segment;
  traffic.fragments = 2;
  return run(card, variant, traffic, packets).send_pps * kSegment * 8 / 1e6;
}

double mean_frame(const Card& card, const RouterTrace& trace) {
  const double clocks_per_packet = card.bus_hz / (trace.asic * 1e3);
  const double write_back = card.transfer_clocks + card.write_burst_clocks + 2;  // each receive descriptor
  const double batch = (card.transfer_clocks + card.read_burst_clocks + 128 / card.bus_bytes_per_clock) / 8;
  const double fixed = 2 * card.transfer_clocks + write_back + 3 * batch;  // three other kinds of descriptor, by eights
  const double per_byte =
      (card.read_burst_clocks + card.write_burst_clocks) / card.burst + 2 / card.bus_bytes_per_clock;
  return (clocks_per_packet - fixed) / per_byte;
}

double routed_kpps(const Card& card, const Variant& variant, const RouterTrace& trace, std::uint64_t packets) {
  Card half = card;
  half.bus_hz /= 2;
  Traffic traffic;
  traffic.send = traffic.receive = mix(mean_frame(card, trace));
  traffic.per_mailbox = kPerMailbox;
  const Outcome outcome = run(half, variant, traffic, packets);
  return (outcome.send_pps + outcome.receive_pps) / 1e3;  // a packet is received by one card and sent by the other
}

}  // namespace viaduct::nic::model
