// An adapter in virtual time: firmware on simulated hardware, driver, processors that run when the test says so.
#pragma once

#include "nic/driver.hpp"
#include "nic/firmware/dispatch.hpp"
#include "nic/simulated_hardware.hpp"

namespace viaduct::nic {

struct SimulatedOptions {
  SimulatedHardware::Options hardware;
  unsigned processors = 1;
  unsigned queues = 1;
  Coalescing coalescing;
  std::optional<Steering> steering;
  std::uint32_t mini_buffer = 128;
  bool hold_when_empty = false;
  unsigned batch = 64;
};

class SimulatedAdapter {
 public:
  SimulatedAdapter(std::unique_ptr<Mac> mac, const MockClock& clock, const SimulatedOptions& options)
      : mac_(std::move(mac)),
        statistics_(std::move(make_statistics(options.processors)).value()),
        hardware_(registers_, memory_, *mac_, clock, options.hardware),
        driver_(std::move(Driver::create(registers_, memory_,
                                         {.queues = options.queues,
                                          .max_frame = mac_->max_frame(),
                                          .receive_buffer = mac_->max_frame(),
                                          .mini_buffer = options.mini_buffer,
                                          .direct_send_consumer = options.processors > 1,
                                          .clock = &clock},
                                         nullptr, nullptr))
                    .value()),
        firmware_(hardware_,
                  {.rings = driver_->rings(),
                   .queues = options.queues,
                   .coalescing = options.coalescing,
                   .steering = options.steering,
                   .max_frame = mac_->max_frame(),
                   .most_mini = options.mini_buffer,
                   .direct_send_consumer = options.processors > 1,
                   .hold_when_empty = options.hold_when_empty,
                   .batch = options.batch},
                  *statistics_.as<StatisticsBlock>()),
        cpus_(options.processors) {
    for (unsigned i = 0; i < options.processors; ++i) {
      cpus_[i].id = i;
      cpus_[i].mine = 0;
      cpus_[i].statistics = &statistics_.as<StatisticsBlock>()->processor[i];
      for (unsigned event = 0; event < kEvents; ++event)
        if (options.hardware.processor_of[event] == i) cpus_[i].mine |= Events{1} << event;
    }
  }

  unsigned turn(unsigned processor) { return dispatch(firmware_, cpus_[processor]); }
  unsigned processors() const { return static_cast<unsigned>(cpus_.size()); }
  Totals totals() const { return read_block(*statistics_.as<StatisticsBlock>(), processors()).totals; }
  Driver& driver() { return *driver_; }
  Registers& registers() { return registers_; }
  Mac& mac() { return *mac_; }
  SimulatedHardware& hardware() { return hardware_; }
  Firmware<SimulatedHardware>& firmware() { return firmware_; }

 private:
  Registers registers_;
  HostMemory memory_;
  std::unique_ptr<Mac> mac_;
  Segment statistics_;
  SimulatedHardware hardware_;
  std::unique_ptr<Driver> driver_;
  Firmware<SimulatedHardware> firmware_;
  std::vector<Processor> cpus_;
};

}  // namespace viaduct::nic
