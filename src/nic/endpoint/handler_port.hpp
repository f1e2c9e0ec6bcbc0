// What a FrameHandler of the firmware stands on: it runs on the processor of Receive Complete, and what it sends waits
// in a ring of its own, of the same kind as an endpoint's, for the processor that sends.
#pragma once

#include <functional>

#include "base/clock.hpp"
#include "nic/endpoint/port.hpp"
#include "nic/endpoint/rings.hpp"

namespace viaduct::nic {

class HandlerPort final : public Transmitter {
 public:
  // `sent` tells the processor that sends.
  static Result<std::unique_ptr<HandlerPort>> create(FrameHandler& handler, const Clock& clock, std::uint32_t max_frame,
                                                     std::function<void()> sent);

  // The processor of Receive Complete.
  void handle(std::span<const Frame> frames, std::span<FrameFate> fates) { handler_.handle(frames, fates, *this); }
  void run_if_due() {
    const std::uint64_t due = handler_.next_due_ns();
    if (due == UINT64_MAX) return;
    if (const std::uint64_t now = clock_.now_ns(); now >= due) handler_.on_due(now, *this);
  }
  std::uint64_t until_due_ns() const {
    const std::uint64_t due = handler_.next_due_ns();
    if (due == UINT64_MAX) return due;
    const std::uint64_t now = clock_.now_ns();
    return due > now ? due - now : 1;
  }

  bool send(std::span<const std::byte> frame) override;
  std::uint32_t max_frame() const override { return rings_.geometry().max_frame; }

  // The processor that sends.
  std::size_t drain(Mac& mac, std::uint64_t& bytes, bool& waiting) { return port_.send(mac, bytes, waiting); }

 private:
  HandlerPort(FrameHandler& handler, const Clock& clock) : handler_(handler), clock_(clock) {}

  FrameHandler& handler_;
  const Clock& clock_;
  std::function<void()> sent_;
  Port port_;
  EndpointRings rings_;
};

}  // namespace viaduct::nic
