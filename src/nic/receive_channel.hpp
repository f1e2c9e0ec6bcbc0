// The MAC receive channel of the live adapter: frames that arrived, a batch at a time. Belongs to the processor of
// Receive Complete.
#pragma once

#include <viaduct/nic.hpp>

#include <algorithm>
#include <array>

namespace viaduct::nic {

class ReceiveChannel {
 public:
  static constexpr std::uint32_t kFrames = 64;

  ReceiveChannel(Mac& mac, Filter* filter) : mac_(mac), filter_(filter) { keep_.fill(true); }

  bool fill() {
    if (at_ != count_) return true;
    give_back();
    at_ = 0;
    count_ = static_cast<std::uint32_t>(mac_.receive(frames_));
    if (count_ != 0 && filter_ != nullptr) {
      std::fill_n(keep_.begin(), count_, true);
      filter_->inspect({frames_.data(), count_}, {keep_.data(), count_});
    }
    return count_ != 0;
  }
  bool peek(Frame& frame) {
    if (at_ == count_ && !fill()) return false;
    frame = frames_[at_];
    return true;
  }
  bool kept() const { return keep_[at_]; }
  void take() { ++at_; }

  void release() { ++released_; }
  void give_back() {
    if (released_ == 0) return;
    mac_.release(released_);
    released_ = 0;
  }

 private:
  Mac& mac_;
  Filter* const filter_;
  std::array<Frame, kFrames> frames_{};
  std::array<bool, kFrames> keep_{};
  std::uint32_t at_ = 0, count_ = 0;
  std::size_t released_ = 0;
};

}  // namespace viaduct::nic
