// The PCI bus: both DMA channels share it, one transfer at a time, in turn. A channel keeps order. A transfer takes as
// long as the slower of bus and SRAM.
#pragma once

#include <cmath>
#include <cstring>
#include <deque>

#include "nic/hardware.hpp"
#include "nic/host_memory.hpp"
#include "nic/model/sram.hpp"
#include "viaduct/nic_model.hpp"

namespace viaduct::nic::model {

constexpr unsigned kRead = 0, kWrite = 1;

class Bus {
 public:
  static constexpr std::uint32_t kChannelSpace = 64;  // transfers of a channel, those included whose completion waits

  Bus(const Card& card, const HostMemory& memory, Calendar& calendar, Sram& sram)
      : card_(card), memory_(memory), calendar_(calendar), sram_(sram) {}

  std::uint32_t space(unsigned channel) const {
    return kChannelSpace - static_cast<std::uint32_t>(queue_[channel].size() + done_[channel].size());
  }
  void enqueue(unsigned channel, Time at, const DmaDescriptor& descriptor) {
    const Time after = queue_[channel].empty() ? at : std::max(at, queue_[channel].back().at);
    queue_[channel].push_back({after, descriptor});
    ++enqueued_[channel];
    calendar_.enter(after, What::bus_wanted);
  }

  void start() {
    if (busy_) return;
    for (const unsigned channel : {1 - last_, last_}) {
      if (queue_[channel].empty() || queue_[channel].front().at > calendar_.now()) continue;
      const std::uint32_t length = queue_[channel].front().descriptor.length;
      const Time duration = std::max(duration_of(channel, length), sram_.dma_time(calendar_.now(), length));
      busy_ = true;
      last_ = channel;
      busy_time_ += duration;
      calendar_.enter(calendar_.now() + duration, What::transfer_done, channel);
      return;
    }
  }
  void finish(unsigned channel) {
    const DmaDescriptor descriptor = queue_[channel].front().descriptor;
    queue_[channel].pop_front();
    busy_ = false;
    move(channel, descriptor);
    done_[channel].push_back({descriptor.what, descriptor.queue, descriptor.argument});
    ++completed_[channel];
    sram_.moved(calendar_.now(), Sram::kDma, descriptor.length);
    start();
  }

  bool has_completion(unsigned channel) const { return !done_[channel].empty(); }
  bool take_completion(unsigned channel, DmaCompletion& completion) {
    if (done_[channel].empty()) return false;
    completion = done_[channel].front();
    done_[channel].pop_front();
    return true;
  }
  std::uint64_t enqueued(unsigned channel) const { return enqueued_[channel]; }
  std::uint64_t completed(unsigned channel) const { return completed_[channel]; }
  Time busy_time() const { return busy_time_; }

 private:
  static constexpr std::uint32_t kTag = 16;  // of a packet's data, only its first bytes are worth moving

  Time duration_of(unsigned channel, std::uint32_t length) const {
    if (length == 0) return 0;
    const double bursts = std::ceil(static_cast<double>(length) / card_.burst);
    const double before = channel == kRead ? card_.read_burst_clocks : card_.write_burst_clocks;
    const double clocks = card_.transfer_clocks + bursts * before + std::ceil(length / card_.bus_bytes_per_clock);
    return seconds_to_time(clocks / card_.bus_hz);
  }
  void move(unsigned channel, const DmaDescriptor& descriptor) const {
    if (descriptor.length == 0) return;
    std::byte* const host = memory_.at(descriptor.host, descriptor.length);
    if (host == nullptr) return;
    const bool data = descriptor.what == Transfer::packet || descriptor.what == Transfer::fragment ||
                      descriptor.what == Transfer::frame;
    const std::size_t length = data ? std::min(descriptor.length, kTag) : descriptor.length;
    const void* const local = descriptor.local != nullptr ? descriptor.local : &descriptor.argument;
    if (channel == kRead)
      std::memcpy(descriptor.local, host, length);
    else
      std::memcpy(host, local, length);
  }

  const Card& card_;
  const HostMemory& memory_;
  Calendar& calendar_;
  Sram& sram_;
  struct Job {
    Time at;
    DmaDescriptor descriptor;
  };
  std::deque<Job> queue_[2];
  std::deque<DmaCompletion> done_[2];
  std::uint64_t enqueued_[2] = {}, completed_[2] = {};
  bool busy_ = false;
  unsigned last_ = kWrite;
  Time busy_time_ = 0;
};

}  // namespace viaduct::nic::model
