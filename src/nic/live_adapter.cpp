#include "nic/live_adapter.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <cstring>

#include "base/log.hpp"
#include "base/topology.hpp"

namespace viaduct::nic {

Result<std::unique_ptr<LiveAdapter>> LiveAdapter::create(Config config, std::unique_ptr<Mac> mac) {
  std::unique_ptr<LiveAdapter> adapter(new LiveAdapter(std::move(config), std::move(mac)));
  const std::string what = fmt::format("make the adapter {}", adapter->config_.name);
  VIADUCT_CHECK(adapter->settle_partition().because(what));
  VIADUCT_CHECK(adapter->make_parts().because(what));
  VIADUCT_CHECK(adapter->start().because(what));
  return adapter;
}

Status LiveAdapter::settle_partition() {
  const auto cores = static_cast<unsigned>(config_.cores.size());
  switch (config_.partition) {
    case Partition::inlined:
      processors_ = 1;
      break;
    case Partition::release:
      processors_ = 1;
      break;
    case Partition::parallel:
      processors_ = 2, processor_of_ = parallel_assignment();
      break;
    case Partition::dynamic:
      processors_ = config_.processors != 0 ? config_.processors : cores;
      break;
    case Partition::custom:
      processors_ = config_.processors != 0 ? config_.processors : cores;
      processor_of_ = config_.processor_of;
      break;
  }
  if (processors_ == 0 || processors_ > kMostProcessors)
    return Error(EINVAL, fmt::format("{} processors: say 1 to {}", processors_, kMostProcessors));
  if (config_.partition != Partition::inlined && cores != 0 && cores != processors_)
    return Error(EINVAL, fmt::format("{} cores for {} processors", cores, processors_));
  for (const int core : config_.cores)
    if (!Topology::machine().exists(core)) return Error(EINVAL, fmt::format("there is no processor {}", core));
  if (config_.queues == 0 || config_.queues > kMostQueues)
    return Error(EINVAL, fmt::format("{} receive queues: say 1 to {}", config_.queues, kMostQueues));
  if (config_.partition == Partition::custom)
    if (const auto fault = fault_of(processor_of_, processors_)) return Error(EINVAL, *fault);
  return {};
}

Status LiveAdapter::make_parts() {
  if (config_.null_host) config_.mini_buffer = 0, config_.hold_when_empty = true;
  registers_ = std::make_unique<Registers>();
  memory_ = std::make_unique<HostMemory>();
  VIADUCT_TRY(statistics_segment_, make_statistics(processors_));
  auto& block = *statistics_segment_.as<StatisticsBlock>();
  std::strncpy(block.name, config_.name.c_str(), sizeof block.name - 1);
  std::strncpy(block.mac, mac_->name().c_str(), sizeof block.mac - 1);
  std::strncpy(block.partition, name_of(config_.partition).data(), sizeof block.partition - 1);
  block.processors = processors_;
  block.queues = config_.queues;
  for (unsigned queue = 0; queue < kMostQueues; ++queue) block.queue_core[queue] = core_of_queue(queue);

  const bool sleeps = config_.partition != Partition::inlined && config_.spin_us != UINT64_MAX;
  if (sleeps) {
    VIADUCT_TRY(doze_, Doze::create(processors_));
  }
  if (config_.partition == Partition::inlined) {
    bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bell_) return Error::from_errno("make an eventfd for whoever waits");
  }
  const bool spread = config_.partition == Partition::dynamic || processors_ > 1;
  hardware_ = std::make_unique<LiveHardware>(
      *registers_, *memory_, *mac_, doze_.get(),
      LiveHardware::Options{processor_of_, config_.partition == Partition::dynamic,
                            config_.partition == Partition::inlined, mac_->max_frame(), config_.filter,
                            config_.measure_time, config_.trace, config_.clock, bell_.get()});

  DriverOptions options{.queues = config_.queues,
                        .max_frame = mac_->max_frame(),
                        .receive_buffer = config_.receive_buffer != 0 ? config_.receive_buffer : mac_->max_frame(),
                        .mini_buffer = config_.mini_buffer,
                        .direct_send_consumer = spread,
                        .clock = config_.clock};
  std::function<void()> doorbell;
  const unsigned listener = processor_of_[static_cast<unsigned>(Event::mailbox)];
  if (doze_ != nullptr) doorbell = [this, listener] { doze_->wake(listener); };
  InlinedFirmware* const inlined = config_.partition == Partition::inlined ? this : nullptr;
  VIADUCT_TRY(driver_, Driver::create(*registers_, *memory_, options, std::move(doorbell), inlined));

  FirmwareSettings settings{.rings = driver_->rings(),
                            .queues = config_.queues,
                            .coalescing = config_.coalescing,
                            .steering = config_.steering,
                            .max_frame = mac_->max_frame(),
                            .most_mini = config_.mini_buffer,
                            .direct_send_consumer = spread,
                            .hold_when_empty = config_.hold_when_empty};
  firmware_ = std::make_unique<Firmware<LiveHardware>>(*hardware_, settings, block);
  if (config_.null_host)
    null_host_.emplace(*config_.null_host, *registers_, driver_->host_rings(), driver_->send_buffers(), spread);
  return make_endpoints(block);
}

Status LiveAdapter::make_endpoints(StatisticsBlock& block) {
  const unsigned sender = processor_of_[static_cast<unsigned>(Event::dma_read_complete)];
  if (config_.handler != nullptr) {
    std::function<void()> sent;
    if (doze_ != nullptr && processors_ > 1) sent = [this, sender] { doze_->wake(sender); };
    VIADUCT_TRY(handler_,
                HandlerPort::create(*config_.handler, config_.clock != nullptr ? *config_.clock : Clock::steady(),
                                    mac_->max_frame(), std::move(sent)));
  }
  if (config_.endpoint_at) {
    EndpointSwitch::Options options{.place = *config_.endpoint_at,
                                    .delivery = inlined() ? Delivery::together : config_.delivery,
                                    .queues = config_.queues,
                                    .cores = config_.queue_core,
                                    .spin_us = config_.spin_us};
    endpoints_ = std::make_unique<EndpointSwitch>(options, firmware_->steering);
    VIADUCT_TRY(doorbells_, Doorbells::create());
  }
  hardware_->set_endpoints(endpoints_.get(), handler_.get(), block.send);
  return {};
}

Status LiveAdapter::start() {
  auto& block = *statistics_segment_.as<StatisticsBlock>();
  places_ = std::vector<Place>(processors_);
  for (unsigned i = 0; i < processors_; ++i) {
    Processor& cpu = places_[i].cpu;
    cpu.id = i;
    cpu.statistics = &block.processor[i];
    cpu.statistics->core.store(i < config_.cores.size() ? config_.cores[i] : -1, std::memory_order_relaxed);
    if (config_.partition == Partition::dynamic) continue;
    cpu.mine = 0;
    for (unsigned event = 0; event < kEvents; ++event)
      if (processor_of_[event] == i) cpu.mine |= Events{1} << event;
  }
  if (config_.partition == Partition::inlined) return {};
  for (Place& place : places_) place.thread = std::thread([this, &place] { run(place); });
  return {};
}

LiveAdapter::~LiveAdapter() {
  stopping_.store(true, std::memory_order_relaxed);
  for (Place& place : places_) {
    if (doze_ != nullptr) doze_->wake(place.cpu.id);
    if (place.thread.joinable()) place.thread.join();
  }
}

Reading LiveAdapter::statistics() const {
  return read_block(*statistics_segment_.as<StatisticsBlock>(), processors_);
}

std::vector<TraceEntry> LiveAdapter::trace() const {
  return read_block_trace(*statistics_segment_.as<StatisticsBlock>(), processors_);
}

int LiveAdapter::core_of_queue(unsigned queue) const {
  return queue < config_.queue_core.size() ? config_.queue_core[queue] : -1;
}

std::unique_ptr<Adapter> Adapter::create(Config config, std::unique_ptr<Mac> mac, Failure& why) {
  auto adapter = LiveAdapter::create(std::move(config), std::move(mac));
  if (adapter) return std::move(*adapter);
  why = {std::error_code(adapter.error().code(), std::generic_category()), adapter.error().message()};
  return nullptr;
}

}  // namespace viaduct::nic
