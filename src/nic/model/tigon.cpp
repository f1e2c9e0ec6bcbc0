// The card of the paper. Each parameter has one of three origins:
//
//   [card]        the paper's text, or the Tigon's data
//   [calibrated]  found by iteration so that RELEASE on the model gives
//                   C1  938 Mb/s, both ways, 1472 B                                                  (section 4)
//                   C2  the Ethernet limit when sending 1200 B, less when sending 1000 B             (figure 6, text)
//                   C3  the shares of figure 5, measured as there: RELEASE (SRAM-BOTH), both ways, 18 B
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
  cost(Event::mailbox) = {62.7, 0};
  cost(Event::dma_read_complete) = {0, 61.6};
  cost(Event::dma_write_complete) = {0, 32.0};
  cost(Event::receive_complete) = {0, 352.9};
  cost(Event::send_descriptors_ready) = {52.1, 5.1};
  cost(Event::send_data_ready) = {0, 374.3};
  cost(Event::update_send_consumer) = {114.1, 0};
  cost(Event::receive_descriptors_ready) = {27.3, 16.3};
  cost(Event::update_receive_return_producer) = {425.2, 0};
  card.fragment = 20;  // [assumed]

  // [calibrated] On C1, C2 and C3 together: the code for sending is in the pad and that for receiving is not, so their
  // proportion tells. 10 cycles for each line of 16 instructions.
  card.code_in_sram = 0.631;
  card.sram_word = 3;       // [calibrated] so that a line takes as long as its first word and seven more: (3 + 7) / 16
  card.data_in_sram = 0.2;  // [assumed] one access to bookkeeping data in 15 cycles
  card.sram_bytes_per_s = 88e6 * 8;  // [assumed] 64 bits at the processors' clock
  card.claim = 20;                   // [assumed]

  card.bus_hz = 66e6;            // [card]
  card.bus_bytes_per_clock = 8;  // [card]
  card.burst = 128;              // [card] as drivers of the Tigon set it
  card.read_burst_clocks = 28;   // [assumed] arbitration, address, a read retried once; decides PARALLEL at 1472 B
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
