// A channel over the network: a flow of an engine. A fragment is an item with 8 bytes in front
// (docs/formats/via-net.md).
//
// What the engine tells of the flow is taken in by whoever looks: the sending thread, the receiving thread, or the one
// that asks for ends of transfers.
#pragma once

#include <viaduct/via.hpp>

#include <atomic>
#include <deque>
#include <memory>

#include "base/spin_lock.hpp"
#include "base/spinner.hpp"
#include "via/port/network.hpp"

namespace viaduct::via {

struct NetFragmentHeader {
  std::uint32_t immediate;
  std::uint32_t flags;  // kNetMore
};
static_assert(sizeof(NetFragmentHeader) == 8);
constexpr std::uint32_t kNetMore = 1;  // the message goes on

// What a side of such a channel holds for the other's fragments.
net::FlowLimits flow_limits(const ChannelOptions& options);

class NetChannel final : public Channel {
 public:
  // The flow is open, and `user` its word.
  NetChannel(std::shared_ptr<Network> network, net::FlowId flow, std::uint64_t user);
  ~NetChannel() override;

  Sent try_send(std::span<const iovec> pieces, std::uint32_t immediate, bool more) override;
  std::size_t largest_fragment() const override { return largest_; }
  std::size_t credits(std::size_t length) override;
  std::uint64_t delivered() const override { return engine().delivered(flow_); }
  std::uint64_t taken() const override { return taken_.load(std::memory_order_relaxed); }
  void tell_when_delivered(std::uint64_t fragments) override { engine().tell_when_delivered(flow_, fragments); }
  Got peek(Fragment& fragment) override;
  void consume() override;
  void finish_sending() override;
  CloseReason close_reason() const override;
  std::error_code wait_to_receive(int timeout_ms) override;
  std::error_code wait_to_send(std::size_t length, int timeout_ms) override;
  bool progress() override { return engine().progress(); }
  Statistics statistics() const override;
  std::error_code enter(ReadyEntrance& entrance, std::uint64_t tag) override;
  void leave(ReadyEntrance& entrance) override;

  // For the reach, which stands on the same flow.
  Network& network() { return *network_; }
  std::uint64_t user() const { return user_; }
  net::FlowId flow() const { return flow_; }
  void count_taken() { taken_.fetch_add(1, std::memory_order_relaxed); }  // an item that is no fragment
  bool take_transferred(net::FlowEvent& event);
  // Nothing is sent while a transfer is half begun: it would overtake the rest.
  void hold_back(bool on) { held_back_ = on; }
  void take_events();

 private:
  net::Engine& engine() const { return network_->engine(); }
  void ended_with(CloseReason reason);
  bool sending_is_over();
  template <class Ready>
  std::error_code wait_for(Spinner& spinner, int timeout_ms, Ready ready);

  const std::shared_ptr<Network> network_;
  const net::FlowId flow_;
  const std::uint64_t user_;
  const std::size_t largest_;

  std::atomic<std::uint64_t> taken_{0}, bytes_sent_{0}, fragments_sent_{0}, fragments_received_{0}, bytes_received_{0},
      refused_full_{0};
  std::atomic<CloseReason> end_{CloseReason::open};  // on the peer's side, or of the way there
  std::atomic<bool> ended_{false};                   // the peer sends nothing more
  std::atomic<bool> closed_{false};                  // nor takes anything
  std::atomic<bool> finished_{false};                // this side sends nothing more
  bool held_back_ = false;
  bool peeked_ = false;
  std::size_t peeked_bytes_ = 0;
  SpinLock events_lock_;
  std::deque<net::FlowEvent> transferred_;
  Spinner receive_spinner_;
  Spinner send_spinner_;
};

}  // namespace viaduct::via
