#include "nic/driver.hpp"

#include <algorithm>

#include "base/config.hpp"
#include "base/spin.hpp"

namespace viaduct::nic {

namespace {

constexpr std::uint64_t kRingLayout = layout_hash(
    "nic rings 1: send_consumer, return_producer[16], send[256]{16}, receive[512]{16}, mini[1024]{16}, "
    "return[][2048]{32}");
constexpr std::uint64_t kBufferLayout = layout_hash("nic buffers 1");

// Whole lines, and never a multiple of a page: buffers in a row must not compete for the same lines of the cache.
std::uint32_t stride_of(std::uint32_t length) {
  const std::uint32_t lines = (length + 63) & ~std::uint32_t{63};
  return lines % 4096 == 0 ? lines + 64 : lines;
}

}  // namespace

Result<std::unique_ptr<Driver>> Driver::create(Registers& registers, HostMemory& memory, const DriverOptions& options,
                                               std::function<void()> doorbell, InlinedFirmware* inlined) {
  std::unique_ptr<Driver> driver(new Driver(registers, memory, options));
  driver->doorbell_ = std::move(doorbell);
  driver->inlined_ = inlined;
  VIADUCT_CHECK(driver->allocate().because("make the driver's memory"));
  const std::uint64_t spin_ns = viaduct::Config::process().number("VIADUCT_SPIN_US") * 1000;
  for (unsigned queue = 0; queue < options.queues; ++queue) {
    driver->queues_[queue].waiter =
        std::make_unique<Waiter>(spin_ns, options.clock != nullptr ? *options.clock : Clock::steady());
    registers.interrupt[queue].promise_heavy_fence();
  }
  driver->fill_rings();
  return driver;
}

Status Driver::allocate() {
  VIADUCT_TRY(ring_segment_, Segment::create({.name = "viaduct-nic-rings",
                                              .layout = kRingLayout,
                                              .payload_size = HostRings::bytes(options_.queues)}));
  rings_ = ring_segment_.as<HostRings>();
  const std::uint32_t standard = stride_of(options_.receive_buffer);
  const std::uint32_t mini = options_.mini_buffer == 0 ? 0 : stride_of(options_.mini_buffer);
  send_stride_ = stride_of(options_.max_frame);
  const std::size_t size =
      std::size_t{send_stride_} * kSendRing + std::size_t{standard} * kReceiveRing + std::size_t{mini} * kMiniRing;
  VIADUCT_TRY(buffer_segment_, Segment::create({.name = "viaduct-nic-buffers",
                                                .layout = kBufferLayout,
                                                .payload_size = size,
                                                .huge_pages = HugePages::prefer}));
  const auto rings_at = memory_.add(rings_, HostRings::bytes(options_.queues));
  const auto buffers_at = memory_.add(buffer_segment_.payload().data(), size);
  if (!rings_at || !buffers_at) return Error(ENOSPC, "no region of host memory is left");
  rings_at_ = *rings_at;
  send_buffers_at_ = *buffers_at;
  send_buffers_ = buffer_segment_.payload().data();

  const std::uint32_t count = kReceiveRing + (mini == 0 ? 0 : kMiniRing);
  buffers_ = std::make_unique<Buffer[]>(count);
  with_adapter_ = std::make_unique<std::atomic<bool>[]>(count);
  std::size_t offset = std::size_t{send_stride_} * kSendRing;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool is_mini = i >= kReceiveRing;
    buffers_[i] = {*buffers_at + offset, send_buffers_ + offset,
                   is_mini ? options_.mini_buffer : options_.receive_buffer, is_mini};
    offset += is_mini ? mini : standard;
  }
  return {};
}

void Driver::fill_rings() {
  const std::uint32_t count = kReceiveRing + (options_.mini_buffer == 0 ? 0 : kMiniRing);
  for (std::uint32_t i = 0; i < count; ++i) give_back_buffer(i);
  post_locked();
}

std::optional<std::uint64_t> Driver::register_memory(void* memory, std::size_t size) {
  return memory_.add(memory, size);
}

// What the adapter has consumed it has copied; it looks only at what lies between consumer and producer.
bool Driver::unregister_memory(std::uint64_t address) {
  const std::uint64_t region = HostMemory::region_of(address);
  if (region == HostMemory::region_of(rings_at_) || region == HostMemory::region_of(send_buffers_at_)) return false;
  const std::uint32_t in_flight = std::min(send_producer_ - send_consumer(), kSendRing);
  for (std::uint32_t i = 1; i <= in_flight; ++i)
    if (HostMemory::region_of(rings_->send[(send_producer_ - i) % kSendRing].address) == region) return false;
  return memory_.remove(address);
}

bool Driver::has_something(unsigned queue) const {
  std::uint32_t& producer = rings_->return_producer[queue].value;
  if (std::atomic_ref(producer).load(std::memory_order_acquire) != queues_[queue].consumer) return true;
  return queue == 0 && send_consumer() != send_known_;
}

bool Driver::wait(unsigned queue, std::uint64_t timeout_ns) {
  constexpr int kMostTurns = 64;  // between looks at the clock: others' frames may come for ever
  const Clock& clock = options_.clock != nullptr ? *options_.clock : Clock::steady();
  FutexSleeper futex;
  Sleeper& sleeper = inlined_ != nullptr ? inlined_->sleeper() : futex;
  const auto ready = [&] {
    for (int turns = 0; inlined_ != nullptr && turns < kMostTurns && inlined_->poll(); ++turns)
      if (has_something(queue)) return true;
    return has_something(queue);
  };
  return queues_[queue].waiter->wait(registers_.interrupt[queue], sleeper, Deadline::after_ns(clock, timeout_ns),
                                     ready) == WaitResult::ready;
}

bool Driver::command(Command command, std::uint32_t argument) {
  const std::uint32_t producer =
      registers_.mailbox[static_cast<unsigned>(Mailbox::command_producer)].load(std::memory_order_relaxed);
  if (producer - registers_.command_consumer.load(std::memory_order_acquire) == kCommandRing) return false;
  registers_.commands[producer % kCommandRing].store(std::uint64_t{static_cast<unsigned>(command)} << 32 | argument,
                                                     std::memory_order_relaxed);
  registers_.write_mailbox(Mailbox::command_producer, producer + 1);
  if (doorbell_) doorbell_();
  return true;
}

Host::Counters Driver::counters() const {
  Counters counters;
  counters.sent = packets_sent_.load(std::memory_order_relaxed);
  counters.reclaimed = packets_reclaimed_.load(std::memory_order_relaxed);
  for (const Queue& queue : queues_) {
    counters.received += queue.received.load(std::memory_order_relaxed);
    counters.buffers_returned_bad += queue.refused.load(std::memory_order_relaxed);
    counters.bad_returns += queue.bad.load(std::memory_order_relaxed);
  }
  return counters;
}

}  // namespace viaduct::nic
