// Section 7: links of 10 and 100 Gb/s, and more than two processors.
//
// The bus and the SRAM grow with the link, so that the processors are the bound; pads hold all code and data; clocks
// are those an adapter can cool. DMA and MAC latencies in clocks stay what they are.
#include "viaduct/nic_model.hpp"

namespace viaduct::nic::model {

namespace {

Card grown(double link_gbits, double clock_mhz) {
  Card card = tigon();
  card.clock_hz = clock_mhz * 1e6;
  card.link_bits_per_s = link_gbits * 1e9;
  card.bus_hz *= 2 * link_gbits;  // the paper's bus falls short of full duplex already at 1 Gb/s
  card.sram_bytes_per_s *= 2 * link_gbits;
  card.host_packet_us = 0.01;
  return card;
}

Variant with(Split split, unsigned processors) {
  return {"", split, processors, Code::pads, true};
}

}  // namespace

std::vector<Scaling> scale(std::uint64_t packets) {
  std::vector<Scaling> all;
  const auto add = [&](double gbits, double mhz, Split split, unsigned processors, std::uint32_t datagram) {
    const Outcome outcome = run(grown(gbits, mhz), with(split, processors), udp_both(datagram), packets);
    const double share = megabits(outcome, datagram) / (2 * ethernet_megabits(datagram, gbits * 1e9));
    all.push_back({gbits, mhz, processors, split, datagram, share});
  };
  for (const auto& [gbits, mhz] : {std::pair{10.0, 200.0}, {10.0, 500.0}, {100.0, 1000.0}})
    for (const std::uint32_t datagram : {1472u, 18u}) {
      add(gbits, mhz, Split::uniprocessor, 1, datagram);
      add(gbits, mhz, Split::parallel, 2, datagram);
      for (const unsigned processors : {2u, 4u, 8u}) add(gbits, mhz, Split::dynamic, processors, datagram);
      for (const unsigned processors : {4u, 8u, 16u}) add(gbits, mhz, Split::packet_parallel, processors, datagram);
    }
  return all;
}

}  // namespace viaduct::nic::model
