// The MAC receive channel of the live adapter: frames that arrived, a batch at a time. Belongs to the processor of
// Receive Complete.
//
// Before the firmware sees a batch, a filter, a handler and the endpoints have looked at it. A frame that was handed to
// the processor of a queue stays with the MAC until that is done with it, whenever the firmware releases it; and since
// frames go back oldest first, so do those behind it.
#pragma once

#include <viaduct/nic.hpp>

#include <algorithm>
#include <array>

#include "nic/endpoint/endpoint_switch.hpp"
#include "nic/endpoint/handler_port.hpp"

namespace viaduct::nic {

class ReceiveChannel {
 public:
  static constexpr std::uint32_t kFrames = 64;
  static constexpr std::uint32_t kMostOut = 512;  // frames that the MAC has not got back

  ReceiveChannel(Mac& mac, Filter* filter) : mac_(mac), filter_(filter) {}
  void set_endpoints(EndpointSwitch* endpoints) { endpoints_ = endpoints; }
  void set_handler(HandlerPort* handler) { handler_ = handler; }

  bool fill() {
    if (at_ != count_) return true;
    give_back();
    at_ = 0;
    count_ = 0;
    if (handler_ != nullptr) [[unlikely]]
      handler_->run_if_due();
    if (endpoints_ != nullptr && end_ - front_ > kMostOut - kFrames) return false;
    count_ = static_cast<std::uint32_t>(mac_.receive(frames_));
    if (count_ != 0 && looks()) [[unlikely]]
      look();
    return count_ != 0;
  }
  bool peek(Frame& frame) {
    if (at_ == count_ && !fill()) return false;
    frame = frames_[at_];
    return true;
  }
  FrameFate fate() const { return fates_[at_]; }
  void take() { ++at_; }

  void release() { ++released_; }
  void give_back() {
    if (endpoints_ != nullptr) [[unlikely]]
      return give_back_what_is_done();
    if (released_ == 0) return;
    mac_.release(released_);
    released_ = 0;
  }

 private:
  bool looks() const { return filter_ != nullptr || handler_ != nullptr || endpoints_ != nullptr; }
  void look() {
    const std::span frames(frames_.data(), count_);
    const std::span fates(fates_.data(), count_);
    std::fill_n(fates_.begin(), count_, FrameFate::to_host);
    if (filter_ != nullptr) {
      std::array<bool, kFrames> keep;
      std::fill_n(keep.begin(), count_, true);
      filter_->inspect(frames, {keep.data(), count_});
      for (std::uint32_t i = 0; i < count_; ++i)
        if (!keep[i]) fates[i] = FrameFate::dropped;
    }
    if (handler_ != nullptr) handler_->handle(frames, fates);
    if (endpoints_ == nullptr) return;
    std::array<EndpointSwitch::Ticket, kFrames> tickets{};
    endpoints_->sort(frames, fates, {tickets.data(), count_});
    for (std::uint32_t i = 0; i < count_; ++i) tickets_[end_++ % kMostOut] = tickets[i];
  }
  void give_back_what_is_done() {
    std::size_t done = 0;
    for (; released_ != 0 && endpoints_->is_done(tickets_[front_ % kMostOut]); --released_, ++front_) ++done;
    if (done != 0) mac_.release(done);
  }

  Mac& mac_;
  Filter* const filter_;
  EndpointSwitch* endpoints_ = nullptr;
  HandlerPort* handler_ = nullptr;
  std::array<Frame, kFrames> frames_{};
  std::array<FrameFate, kFrames> fates_{};
  std::uint32_t at_ = 0, count_ = 0;
  std::size_t released_ = 0;  // by the firmware
  // Endpoints only: what the MAC has not got back.
  std::array<EndpointSwitch::Ticket, kMostOut> tickets_{};
  std::uint32_t front_ = 0, end_ = 0;
};

}  // namespace viaduct::nic
