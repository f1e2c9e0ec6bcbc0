// The card of the paper. Each parameter has one of three origins:
//
//   [card]        the paper's text, the Tigon's drivers or its object code
//   [calibrated]  found by iteration so that RELEASE on the model gives
//                   C1  938 Mb/s, both ways, 1472 B                                                  (section 4)
//                   C2  the Ethernet limit when sending 1200 B, less when sending 1000 B             (figure 6, text)
//                   C3  the shares of figure 5, measured as there: RELEASE (SRAM-BOTH), both ways, 18 B
//                   C4  when sending less, packets per second that do not depend on the size         (figure 6, text)
//                   C5  the router's RELEASE column                                                  (table 3)
//   [assumed]     not in the paper, and RELEASE does not tell: plausible for the hardware, and rounded
//
// No number of PARALLEL went into the iteration. But the assumed values, and the form of the model, were settled by
// somebody who knew the paper's PARALLEL results and saw the model's: what the model says of PARALLEL is a prediction
// of the calibration, not a blind one. docs/nic-model.md lists what was tried and how far each result moves with it.
#include "viaduct/nic_model.hpp"

namespace viaduct::nic::model {

Card tigon() {
  Card card;
  card.clock_hz = 88e6;  // [card]

  // [calibrated] The proportions on C3, the level on C1. Where a handler has a cost per call and one per item, their
  // proportion is [assumed].
  const auto cost = [&](Event event) -> HandlerCost& { return card.handler[static_cast<unsigned>(event)]; };
  cost(Event::mailbox) = {48.3, 0};
  cost(Event::dma_read_complete) = {0, 50.1};
  cost(Event::dma_write_complete) = {0, 24.9};
  cost(Event::receive_complete) = {0, 283.2};
  cost(Event::send_descriptors_ready) = {29.1, 2.8};
  cost(Event::send_data_ready) = {0, 310.1};
  cost(Event::update_send_consumer) = {93.2, 0};
  cost(Event::receive_descriptors_ready) = {11.8, 7.0};
  cost(Event::update_receive_return_producer) = {364.1, 0};
  card.fragment = 20;            // [assumed]
  card.data_in_sram = 1.0 / 15;  // [assumed]
  card.claim = 20;               // [assumed]

  card.sram_latency = 2;  // [assumed] as burst SRAM has it, 3-1-1-1: a word in 3 cycles, a line of 64 bytes in 10
  card.sram_bytes_per_s = 88e6 * 8;  // [assumed] 64 bits at the processors' clock
  card.sram_per_transfer = 1.7;      // [calibrated] less misses C2 and C5, more misses C4

  card.bus_hz = 66e6;            // [card]
  card.bus_bytes_per_clock = 8;  // [card]
  card.burst = 256;  // [assumed] drivers set no limit; the shortest with which the Intel card gets its 1882 Mb/s
  card.read_burst_clocks = 30;   // [assumed] 450 ns until the host's memory answers
  card.write_burst_clocks = 10;  // [assumed] arbitration, address, a posted write
  card.transfer_clocks = 20;     // [assumed]

  card.link_bits_per_s = 1e9;  // [card]

  card.host_packet_us = 2;  // [assumed] never the bound
  card.interrupt_us = 5;    // [assumed]
  card.turnaround_us = 80;  // [assumed] the paper's ping times are only drawn
  return card;
}

Variant release() {
  return {"RELEASE", Split::uniprocessor, 1, Code::released, false};
}
Variant release_sram_both() {
  return {"RELEASE (SRAM-BOTH)", Split::uniprocessor, 1, Code::sram, false};
}
Variant parallel() {
  return {"PARALLEL", Split::parallel, 2, Code::pads, true};
}
Variant parallel_sram_code() {
  return {"PARALLEL (SRAM-CODE)", Split::parallel, 2, Code::sram, true};
}
Variant parallel_sram_data() {
  return {"PARALLEL (SRAM-DATA)", Split::parallel, 2, Code::pads, false};
}
Variant parallel_sram_both() {
  return {"PARALLEL (SRAM-BOTH)", Split::parallel, 2, Code::sram, false};
}

}  // namespace viaduct::nic::model
