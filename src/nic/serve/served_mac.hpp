// What a user of a served endpoint may ask about its MAC. It can be asked things only: frames go through the endpoint.
#pragma once

#include <atomic>

#include "nic/endpoint/memory.hpp"
#include "nic/serve/protocol.hpp"

namespace viaduct::nic {

class ServedMac final : public Mac {
 public:
  explicit ServedMac(std::string server) : server_(std::move(server)) {}
  // The one thread that connects; `memory` stays while it is not replaced.
  void connect(const ServeAnswer& answer, const EndpointMemory* memory) {
    if (memory_.load() == nullptr) first_ = answer;  // the address and the longest frame are for life
    memory_.store(memory);
    lost_.store(false);
  }
  void lose() { lost_.store(true); }
  void refuse(std::uint64_t frames) { refused_.fetch_add(frames, std::memory_order_relaxed); }
  bool fits(const ServeAnswer& answer) const {
    return memory_.load() == nullptr || (answer.max_frame == first_.max_frame && answer.id == first_.id);
  }

  std::string name() const override { return "served:" + server_; }
  MacAddress address() const override {
    MacAddress address;
    std::copy(std::begin(first_.address), std::end(first_.address), address.begin());
    return address;
  }
  std::uint32_t max_frame() const override { return first_.max_frame; }
  Link link() const override {
    if (lost_.load()) return Link::down;
    const std::uint32_t link = memory_.load()->link.load(std::memory_order_relaxed);
    return link == 0 ? Link::up : link == 1 ? Link::down : Link::gone;
  }
  MacCounters counters() const override {
    const EndpointMemory& memory = *memory_.load();
    const auto get = [](const auto& count) { return count.load(std::memory_order_relaxed); };
    return {get(memory.mac_sent), get(memory.mac_received), get(memory.mac_transmit_drops) + get(refused_),
            get(memory.mac_receive_drops)};
  }
  Capabilities capabilities() const override {
    const std::uint32_t now = memory_.load()->max_frame.load(std::memory_order_relaxed);
    return {.max_frame = std::min(first_.max_frame, now),
            .segments = first_.segments,
            .gathered_arrivals = first_.gathered_arrivals != 0,
            .checked_arrivals = first_.checked_arrivals != 0,
            .congestion_marks = first_.congestion_marks != 0,
            .probes_path_mtu = first_.probes_path_mtu != 0};
  }
  std::size_t transmit(std::span<const Frame>) override { return 0; }
  std::size_t receive(std::span<Frame>) override { return 0; }
  void release(std::size_t) override {}

 private:
  const std::string server_;
  ServeAnswer first_{};
  std::atomic<const EndpointMemory*> memory_{nullptr};
  std::atomic<bool> lost_{false};
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace viaduct::nic
