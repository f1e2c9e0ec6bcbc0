// Hears over the network of those who want to connect, for the ready queue of an endpoint: also while no connection is
// there that would look at the network. Those who poll pay for it now and then only.
#pragma once

#include <unistd.h>

#include <memory>

#include "base/fd.hpp"
#include "via/channel/ready_source.hpp"
#include "via/port/network.hpp"

namespace viaduct::mx {

constexpr std::uint64_t kAlarmTag = 0;
constexpr std::uint64_t kDoorTag = 1;

class Doorkeeper final : public via::ReadySource {
 public:
  // Connections are a source with the same descriptor.
  explicit Doorkeeper(std::shared_ptr<via::Network> network)
      : network_(std::move(network)), descriptor_(::dup(network_->engine().descriptor())) {}

  bool is_good() const { return static_cast<bool>(descriptor_); }

  std::size_t take(std::span<std::uint64_t> tags) override {
    if (++looks_ % kLooksPerTurn != 0 && !soon_) [[likely]]
      return 0;
    soon_ = false;
    (void)network_->engine().progress();
    const std::uint64_t news = network_->engine().news();
    if (news == seen_ || tags.empty()) return 0;
    seen_ = news;
    tags[0] = kDoorTag;
    return 1;
  }
  bool prepare_to_sleep() override {
    if (network_->engine().prepare_to_sleep(seen_)) return true;
    soon_ = true;
    return false;
  }
  void woke() override {
    network_->engine().woke();
    soon_ = true;
  }
  int descriptor() const override { return descriptor_.get(); }

 private:
  static constexpr std::uint32_t kLooksPerTurn = 1024;
  const std::shared_ptr<via::Network> network_;
  Fd descriptor_;
  std::uint64_t seen_ = 0;
  std::uint32_t looks_ = 0;
  bool soon_ = false;
};

}  // namespace viaduct::mx
