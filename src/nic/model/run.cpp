// A run: the calendar, and everybody it calls.
#include "nic/firmware/dispatch.hpp"
#include "nic/model/host.hpp"

namespace viaduct::nic::model {

namespace {

struct Release {
  void operator()(void* memory) const { ::operator delete (memory, std::align_val_t{64}); }
};

class Simulation {
 public:
  Simulation(const Card& card, const Variant& variant, const Traffic& traffic)
      : card_(card),
        variant_(variant),
        block_memory_(::operator new (StatisticsBlock::bytes(variant.processors), std::align_val_t{64})),
        block_(new (block_memory_.get()) StatisticsBlock{}),
        registers_(std::make_unique<Registers>()),
        hardware_(card_, variant_, memory_, *registers_, calendar_),
        host_(card_, traffic, variant.split != Split::uniprocessor, memory_, *registers_, calendar_, hardware_),
        nic_(std::make_unique<Firmware<ModelHardware>>(hardware_, settings(traffic), *block_)),
        processors_(variant.processors),
        idle_(variant.processors, true) {
    for (unsigned i = 0; i < variant.processors; ++i) processors_[i].id = i;
  }

  Outcome run(std::uint64_t packets) {
    host_.start();
    std::uint64_t steps = 0;
    while (!calendar_.empty() && host_.transmitted + host_.delivered < packets) {
      if (!measuring_ && (host_.transmitted + host_.delivered) * 10 >= packets) begin_measuring();
      happen(calendar_.next());
      if (++steps > packets * 1000 + 1'000'000) break;  // nothing moves any more: the outcome shows it
    }
    return outcome();
  }

 private:
  FirmwareSettings settings(const Traffic& traffic) const {
    FirmwareSettings settings;
    settings.rings = host_.rings();
    settings.coalescing = traffic.coalescing;
    settings.direct_send_consumer = variant_.split != Split::uniprocessor;
    settings.batch = 1;
    return settings;
  }

  void happen(const Entry& entry) {
    switch (entry.what) {
      case What::processor_free:
        idle_[entry.argument] = true;
        break;
      case What::raised:
        hardware_.set_raised(static_cast<Event>(entry.argument));
        break;
      case What::timer:
        if (hardware_.timer_rings(static_cast<Event>(entry.argument), entry.value))
          hardware_.set_raised(static_cast<Event>(entry.argument));
        break;
      case What::bus_wanted:
        hardware_.bus.start();
        break;
      case What::transfer_done:
        hardware_.bus.finish(entry.argument);
        hardware_.transmits.start(hardware_.bus.completed(kRead));
        break;
      case What::transmit_ready:
        hardware_.transmits.start(hardware_.bus.completed(kRead));
        break;
      case What::frame_sent:
        frame_sent();
        break;
      case What::frame_arrives:
        host_.frame_arrives();
        break;
      case What::mailbox_written:
        registers_->write_mailbox(static_cast<Mailbox>(entry.argument), static_cast<std::uint32_t>(entry.value));
        hardware_.set_raised(Event::mailbox);
        break;
      case What::host_interrupted:
        host_.interrupted();
        break;
      case What::host_may_send:
        host_.may_send();
        break;
    }
    for (unsigned i = 0; i < variant_.processors; ++i)
      if (idle_[i]) work(processors_[i]);
  }

  void frame_sent() {
    host_.packet_left(hardware_.transmits.finish());
    hardware_.transmit_may_have_space();
    hardware_.transmits.start(hardware_.bus.completed(kRead));
  }

  // One event, if there is one.
  void work(Processor& cpu) {
    int next = hardware_.next_event(cpu);
    if (next < 0) {
      hardware_.begin_round(cpu);
      next = hardware_.next_event(cpu);
    }
    if (next < 0) return;
    const auto event = static_cast<Event>(next);
    hardware_.start_event(cpu, event);
    const unsigned items = handle(*nic_, cpu, event);
    hardware_.end_event(cpu, event, items);
    idle_[cpu.id] = false;
    calendar_.enter(hardware_.time_of(cpu), What::processor_free, cpu.id);
    // Others may have waited for its claim.
    if (hardware_.dynamic()) calendar_.enter(hardware_.claimed_until(group_of(event)), What::bus_wanted);
    if (event == Event::dma_write_complete) host_.offer_frame();  // MAC buffers are free
  }

  struct Mark {
    Time at = 0, bus = 0;
    double sram = 0;
    std::uint64_t transmitted = 0, delivered = 0;
    std::array<Time, kEvents> handlers{};
    std::array<std::uint64_t, kEvents> calls{};
    std::vector<Time> busy;
  };
  Mark mark() const {
    Mark mark{calendar_.now(),
              hardware_.bus.busy_time(),
              hardware_.sram.total(Sram::kDma) + hardware_.sram.total(Sram::kMac),
              host_.transmitted,
              host_.delivered,
              {},
              {},
              {}};
    for (unsigned i = 0; i < kEvents; ++i) {
      mark.handlers[i] = hardware_.handler_time(static_cast<Event>(i));
      mark.calls[i] = hardware_.handler_calls(static_cast<Event>(i));
    }
    for (unsigned i = 0; i < variant_.processors; ++i) mark.busy.push_back(hardware_.busy_time(i));
    return mark;
  }
  void begin_measuring() {
    measuring_ = true;
    begin_ = mark();
  }

  Outcome outcome() const {
    const Mark end = mark();
    Outcome outcome;
    const double time = static_cast<double>(end.at - begin_.at);
    outcome.seconds = time * 1e-12;
    outcome.send_pps = static_cast<double>(end.transmitted - begin_.transmitted) / outcome.seconds;
    outcome.receive_pps = static_cast<double>(end.delivered - begin_.delivered) / outcome.seconds;
    outcome.ping_us = host_.pings == 0 ? 0 : host_.ping_us_sum / static_cast<double>(host_.pings);
    double all = 0;
    const auto packets = static_cast<double>(end.transmitted - begin_.transmitted + end.delivered - begin_.delivered);
    for (unsigned i = 0; i < kEvents; ++i) {
      outcome.profile[i] = static_cast<double>(end.handlers[i] - begin_.handlers[i]);
      outcome.calls[i] = static_cast<double>(end.calls[i] - begin_.calls[i]) / packets;
      all += outcome.profile[i];
    }
    for (double& share : outcome.profile) share /= all;
    for (unsigned i = 0; i < variant_.processors; ++i)
      outcome.busy.push_back(begin_.busy.empty() ? 0 : static_cast<double>(end.busy[i] - begin_.busy[i]) / time);
    outcome.bus_busy = static_cast<double>(end.bus - begin_.bus) / time;
    outcome.sram_busy = (end.sram - begin_.sram) / time;
    outcome.posted = host_.posted;
    outcome.transmitted = host_.transmitted;
    outcome.sent_out_of_order = host_.sent_out_of_order;
    outcome.arrived = host_.arrived;
    outcome.delivered = host_.delivered;
    outcome.lost = host_.lost + block_->receive.no_buffer.load() + block_->receive.short_buffer.load() +
                   block_->receive.bad_frames.load() + block_->send.bad_packets.load();
    outcome.delivered_out_of_order = host_.delivered_out_of_order;
    outcome.inside = (host_.posted - host_.transmitted) + (host_.arrived - host_.lost - host_.delivered);
    return outcome;
  }

  const Card card_;
  const Variant variant_;
  std::unique_ptr<void, Release> block_memory_;
  StatisticsBlock* block_;
  HostMemory memory_;
  std::unique_ptr<Registers> registers_;
  Calendar calendar_;
  ModelHardware hardware_;
  ModelHost host_;
  std::unique_ptr<Firmware<ModelHardware>> nic_;
  std::vector<Processor> processors_;
  std::vector<bool> idle_;
  bool measuring_ = false;
  Mark begin_;
};

}  // namespace

Outcome run(const Card& card, const Variant& variant, const Traffic& traffic, std::uint64_t packets) {
  return Simulation(card, variant, traffic).run(packets);
}

double megabits(const Outcome& outcome, std::uint32_t datagram) {
  return (outcome.send_pps + outcome.receive_pps) * datagram * 8 / 1e6;
}

double ethernet_megabits(std::uint32_t datagram, double link_bits_per_s) {
  const double on_wire = std::max<std::uint32_t>(datagram + kUdpHeaders, 60) + 4 + 20;
  return link_bits_per_s / 1e6 * datagram / on_wire;
}

Traffic udp_send(std::uint32_t datagram) {
  Traffic traffic;
  traffic.send = {datagram + kUdpHeaders};
  return traffic;
}
Traffic udp_receive(std::uint32_t datagram) {
  Traffic traffic;
  traffic.receive = {datagram + kUdpHeaders};
  return traffic;
}
Traffic udp_both(std::uint32_t datagram) {
  Traffic traffic;
  traffic.send = traffic.receive = {datagram + kUdpHeaders};
  return traffic;
}
Traffic udp_ping(std::uint32_t datagram) {
  Traffic traffic = udp_both(datagram);
  traffic.ping = true;
  traffic.coalescing = Coalescing::none();
  return traffic;
}

}  // namespace viaduct::nic::model
