// nic_model.hpp: the adapter's firmware in virtual time, on the card of the paper.
//
//   auto outcome = nic::model::run(card, nic::model::parallel(), nic::model::udp_both(1472));
//   outcome.send_pps, outcome.profile[...], ...
//
// The handlers are those that run live (src/nic/firmware); only the hardware below them is a model: processors that
// take cycles, scratch pads and SRAM, one PCI bus for both DMA channels, a MAC at its rate. A run is a pure function of
// its arguments. docs/nic-model.md tells how the parameters were found and how far the results can be trusted.
#pragma once

#include <viaduct/api.h>
#include <viaduct/nic.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace viaduct::nic::model {

// Cycles of a handler with its code and its data in a scratch pad, without what it must fetch from SRAM and registers.
struct HandlerCost {
  double call = 0;  // per call
  double item = 0;  // per frame, packet, completion or descriptor
};

struct Card {
  // Processors.
  double clock_hz = 88e6;
  std::array<HandlerCost, kEvents> handler{};
  double fragment = 0;      // of a packet, each after the first
  double data_in_sram = 0;  // accesses to bookkeeping data per cycle of work, where it is not in a pad
  double claim = 0;         // cycles to take and release the semaphore (dynamic only)

  // SRAM: shared by the processors, both DMA channels and both MAC channels.
  double sram_latency = 0;       // cycles that a processor waits before the first word; a register takes no more
  double sram_bytes_per_s = 0;   // of a processor's words, eight bytes each
  double sram_per_transfer = 1;  // what a byte of DMA or MAC takes, in bytes of a processor

  // PCI: clocks of the bus.
  double bus_hz = 66e6;
  double bus_bytes_per_clock = 8;
  std::uint32_t burst = 128;     // bytes
  double read_burst_clocks = 0;  // before the first byte of each burst
  double write_burst_clocks = 0;
  double transfer_clocks = 0;  // per transfer: taking its descriptor, reporting its completion

  // MAC.
  double link_bits_per_s = 1e9;

  // Host.
  double host_packet_us = 0;  // driver and stack, per packet, either way
  double interrupt_us = 0;    // from the card to the driver
  double turnaround_us = 0;   // ping only: the other host and the switch, without the time of bits on wires
};
VIADUCT_API Card tigon();

enum class Code { sram, released, pads };  // released: the part that the manufacturer put into the one pad it used
enum class Split {
  uniprocessor,     // RELEASE
  parallel,         // PARALLEL: the static partition over two processors
  dynamic,          // any event on any processor, one handler of a group at a time
  packet_parallel,  // the same, and of a handler only the share that touches common state excludes others
};
struct Variant {
  std::string_view name;
  Split split = Split::uniprocessor;
  unsigned processors = 1;
  Code code = Code::released;
  bool data_in_pads = false;
};
VIADUCT_API Variant release();
VIADUCT_API Variant release_sram_both();
VIADUCT_API Variant parallel();
VIADUCT_API Variant parallel_sram_code();
VIADUCT_API Variant parallel_sram_data();
VIADUCT_API Variant parallel_sram_both();

// What host and peer do. Both offer as much as is accepted, evenly spaced, unless said otherwise.
struct Traffic {
  std::vector<std::uint32_t> send;     // lengths of the frames sent, in turn; none: nothing is sent
  std::vector<std::uint32_t> receive;  // and received
  double receives_per_send = 1;        // where there are both
  unsigned fragments = 1;              // of each packet sent
  unsigned per_mailbox = 1;            // packets or buffers that the driver collects before it writes a mailbox
  double offered_receive_pps = 0;  // 0: as accepted (the MAC pauses its peer); else frames that find no room are lost
  bool ping = false;               // one frame out, then one back, and so on
  Coalescing coalescing;
};
constexpr std::uint32_t kUdpHeaders = 42;  // Ethernet, IP, UDP
VIADUCT_API Traffic udp_send(std::uint32_t datagram);
VIADUCT_API Traffic udp_receive(std::uint32_t datagram);
VIADUCT_API Traffic udp_both(std::uint32_t datagram);
VIADUCT_API Traffic udp_ping(std::uint32_t datagram);

struct Outcome {
  double seconds = 0;  // of virtual time, after the start
  double send_pps = 0, receive_pps = 0;
  double ping_us = 0;
  std::array<double, kEvents> profile{};  // share of the handlers' time
  std::array<double, kEvents> calls{};    // per packet, both ways together
  std::vector<double> busy;               // share of the time, each processor
  double bus_busy = 0, sram_busy = 0;     // the latter by DMA and MAC
  // From the very start:
  std::uint64_t posted = 0, transmitted = 0, sent_out_of_order = 0;
  std::uint64_t arrived = 0, delivered = 0, lost = 0, delivered_out_of_order = 0;
  std::uint64_t inside = 0;  // frames and packets still in the card at the end
};
// Stops after so many packets, both ways together; the first tenth is not measured.
VIADUCT_API Outcome run(const Card& card, const Variant& variant, const Traffic& traffic, std::uint64_t packets = 4000);

// Datagram bits per second of an outcome, both ways together, in Mb/s.
VIADUCT_API double megabits(const Outcome& outcome, std::uint32_t datagram);
// The most that Ethernet carries, one way.
VIADUCT_API double ethernet_megabits(std::uint32_t datagram, double link_bits_per_s = 1e9);

// The paper against the model.
enum class Basis {
  calibrated,  // the parameters were chosen so that this comes out
  predicted,   // follows from them
};
struct Comparison {
  std::string what;
  std::string unit;  // "x": a gain of 65 % is 1.65
  double paper = 0, model = 0;
  Basis basis = Basis::predicted;
  bool throughput = false;  // a rate, or a ratio of two; a predicted one is held to 10 %
  std::string remark;       // why it misses, where it does

  double deviation() const { return model / paper - 1; }
  bool holds() const { return deviation() >= -0.1 && deviation() <= 0.1; }
};
struct Ordering {
  std::string what;
  bool holds = false;
};
struct Point {     // of a figure
  int figure = 0;  // 6, 8, 10, 12; those between show the same runs
  std::string_view variant;
  std::uint32_t datagram = 0;
  double value = 0;  // Mb/s; microseconds in figure 12
};
struct Comparisons {
  std::vector<Comparison> rows;
  std::vector<Ordering> orderings;
  std::vector<Point> points;
};
VIADUCT_API Comparisons compare_with_paper(std::uint64_t packets = 12000);

// Beyond the paper: faster links, more processors (bus and SRAM grow with the link, the clock as given).
struct Scaling {
  double link_gbits = 0, clock_mhz = 0;
  unsigned processors = 0;
  Split split{};
  std::uint32_t datagram = 0;
  double of_line_rate = 0;  // both ways at once
};
VIADUCT_API std::vector<Scaling> scale(std::uint64_t packets = 4000);

}  // namespace viaduct::nic::model
