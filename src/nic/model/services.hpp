// Table 3: a web server and a router, as traffic.
//
// The paper says which traces were replayed, not their packet sizes. What is assumed of each:
//   thttpd  full segments of two fragments (headers, data) go out, acknowledgements and requests come in; how many of
//           them per segment is calibrated on the RELEASE column.
//   Click   each of two cards on one PCI bus receives as much as it sends, so each has half the bus. Sizes: 60, 576 and
//           1514 bytes, a quarter of them 576; the mean is what lets the ASIC's column come out if the bus alone bounds
//           it. How many packets the driver collects for one mailbox write is calibrated on the RELEASE column.
#pragma once

#include <span>

#include "viaduct/nic_model.hpp"

namespace viaduct::nic::model {

struct WebTrace {
  const char* name;
  double receives_per_segment;     // calibrated on `release`
  double release, parallel, asic;  // the paper's, Mb/s of content
};
struct RouterTrace {
  const char* name;
  double release, parallel, asic;  // the paper's, thousand packets/s
};
std::span<const WebTrace> web_traces();
std::span<const RouterTrace> router_traces();

double web_megabits(const Card& card, const Variant& variant, const WebTrace& trace, std::uint64_t packets);
double routed_kpps(const Card& card, const Variant& variant, const RouterTrace& trace, std::uint64_t packets);
// Mean frame length with which a card that moves one packet in and one out, and 16-byte descriptors in batches of
// eight, reaches the ASIC's rate on the card's bus.
double mean_frame(const Card& card, const RouterTrace& trace);

}  // namespace viaduct::nic::model
