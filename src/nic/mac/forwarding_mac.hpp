// A MAC that is another MAC, but for what a derived class changes.
#pragma once

#include <viaduct/nic_mac.hpp>

namespace viaduct::nic {

class ForwardingMac : public Mac {
 public:
  explicit ForwardingMac(std::unique_ptr<Mac> mac) : mac_(std::move(mac)) {}

  std::string name() const override { return mac_->name(); }
  MacAddress address() const override { return mac_->address(); }
  std::uint32_t max_frame() const override { return mac_->max_frame(); }
  Link link() const override { return mac_->link(); }
  MacCounters counters() const override { return mac_->counters(); }
  std::size_t transmit(std::span<const Frame> frames) override { return mac_->transmit(frames); }
  std::size_t receive(std::span<Frame> frames) override { return mac_->receive(frames); }
  void release(std::size_t count) override { mac_->release(count); }
  int fd() const override { return mac_->fd(); }
  int transmit_fd() const override { return mac_->transmit_fd(); }
  Capabilities capabilities() const override { return mac_->capabilities(); }

 protected:
  const std::unique_ptr<Mac> mac_;
};

}  // namespace viaduct::nic
