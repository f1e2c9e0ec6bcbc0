// An endpoint that has a MAC for itself: every call is the MAC's own, in the caller's thread.
//
// A MAC wants its frames back oldest first, an endpoint's user gives packets back in any order: what is out is a window
// of marks, and its front moves over those that are back.
#include <sys/epoll.h>
#include <viaduct/nic_endpoint.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <vector>

#include "base/clock.hpp"
#include "nic/endpoint/wake_descriptor.hpp"

namespace viaduct::nic {

namespace {

constexpr std::uint64_t kLookEveryNs = 1'000'000;  // at a MAC that has no descriptor
constexpr std::size_t kBatch = 64;

void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {  // one writer
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

class ExclusiveEndpoint final : public Endpoint {
 public:
  ExclusiveEndpoint(std::unique_ptr<Mac> mac, const ExclusiveOptions& options, WakeDescriptor wake)
      : mac_(std::move(mac)),
        id_(options.id),
        limit_(std::max(options.hold_limit, 1u)),
        is_back_(std::bit_ceil(limit_)),
        wake_(std::move(wake)) {
    if (mac_->fd() >= 0) wake_.watch(mac_->fd(), EPOLLIN);
  }

  std::uint16_t id() const override { return id_; }
  MacAddress address() const override { return mac_->address(); }
  std::uint32_t max_frame() const override { return mac_->max_frame(); }
  Mac& mac() override { return *mac_; }

  std::size_t send(std::span<const Frame> frames) override {
    const std::size_t taken = mac_->transmit(frames);
    if (taken < frames.size()) wants_room_.store(true, std::memory_order_relaxed);
    add(sent_, taken);
    return taken;
  }
  std::size_t receive(std::span<Packet> packets) override;
  void give_back(std::span<const Packet> packets) override;

  int descriptor() const override { return wake_.get(); }
  bool arm() override;
  void disarm() override;
  void set_next_due(std::uint64_t ns) override { next_due_ns_ = ns; }
  void wake() override { wake_.ring(word_); }

  EndpointCounters counters() const override {
    EndpointCounters counters;
    counters.sent = sent_.load(std::memory_order_relaxed);
    counters.received = received_.load(std::memory_order_relaxed);
    counters.held = counters.received - released_.load(std::memory_order_relaxed);
    return counters;
  }

 private:
  std::size_t take(std::span<Frame> frames);
  Packet hand_out(const Frame& frame);
  std::size_t mask() const { return is_back_.size() - 1; }

  const std::unique_ptr<Mac> mac_;
  const std::uint16_t id_;
  const std::uint32_t limit_;

  // The receiving side's. Frames from front_ to end_ are out.
  std::vector<std::uint8_t> is_back_;  // by number, modulo a power of two
  std::uint32_t front_ = 0, end_ = 0;
  Frame found_;  // by arm(), not handed out yet
  bool has_found_ = false;
  std::uint64_t next_due_ns_ = UINT64_MAX;
  bool watches_room_ = false;
  WakeDescriptor wake_;

  alignas(64) std::atomic<std::uint64_t> received_{0}, released_{0};
  alignas(64) std::atomic<std::uint64_t> sent_{0};  // the sending side's
  std::atomic<bool> wants_room_{false};
  alignas(64) WakeDescriptor::Word word_{0};
};

std::size_t ExclusiveEndpoint::take(std::span<Frame> frames) {
  if (!has_found_) return mac_->receive(frames);
  has_found_ = false;
  frames[0] = found_;
  return 1;
}

Packet ExclusiveEndpoint::hand_out(const Frame& frame) {
  const std::uint32_t number = end_++;
  is_back_[number & mask()] = 0;
  return {.data = const_cast<std::byte*>(frame.data),
          .length = frame.length,
          .buffer = number,
          .congested = frame.congested};
}

std::size_t ExclusiveEndpoint::receive(std::span<Packet> packets) {
  std::array<Frame, kBatch> frames;
  std::size_t count = 0;
  while (count < packets.size() && end_ - front_ < limit_) {
    const std::size_t wanted = std::min({packets.size() - count, std::size_t{limit_ - (end_ - front_)}, kBatch});
    const std::size_t came = take({frames.data(), wanted});
    if (came == 0) break;
    for (const Frame& frame : std::span(frames).first(came)) packets[count++] = hand_out(frame);
    if (came < wanted) break;
  }
  if (count != 0) add(received_, count);
  return count;
}

void ExclusiveEndpoint::give_back(std::span<const Packet> packets) {
  std::uint32_t returned = 0;
  for (const Packet& packet : packets) {
    if (packet.buffer - front_ >= end_ - front_ || is_back_[packet.buffer & mask()] != 0) continue;
    is_back_[packet.buffer & mask()] = 1;
    ++returned;
  }
  std::uint32_t released = 0;
  for (; front_ != end_ && is_back_[front_ & mask()] != 0; ++front_) ++released;
  if (released != 0) mac_->release(released);
  add(released_, returned);
}

bool ExclusiveEndpoint::arm() {
  const std::uint64_t now = Clock::steady().now_ns();
  const bool may_take = end_ - front_ < limit_;
  if (next_due_ns_ <= now || (has_found_ && may_take)) return false;
  wake_.arm(word_, mac_->fd() >= 0 ? next_due_ns_ : std::min(next_due_ns_, now + kLookEveryNs));
  watches_room_ = wants_room_.exchange(false, std::memory_order_relaxed) && mac_->transmit_fd() >= 0;
  if (watches_room_) wake_.watch(mac_->transmit_fd(), EPOLLOUT | (mac_->transmit_fd() == mac_->fd() ? EPOLLIN : 0u));
  if (!may_take) return true;
  // What the MAC has taken from its descriptor already does not make that readable.
  has_found_ = mac_->receive({&found_, 1}) == 1;
  if (has_found_) disarm();
  return !has_found_;
}

void ExclusiveEndpoint::disarm() {
  wake_.disarm(word_);
  if (!watches_room_) return;
  watches_room_ = false;
  wake_.watch(mac_->transmit_fd(), mac_->transmit_fd() == mac_->fd() ? std::uint32_t{EPOLLIN} : 0);
}

}  // namespace

std::unique_ptr<Endpoint> make_exclusive_endpoint(std::unique_ptr<Mac> mac, const ExclusiveOptions& options,
                                                  Failure& why) {
  auto wake = WakeDescriptor::create();
  if (!wake) {
    why = {std::error_code(wake.error().code(), std::generic_category()), wake.error().message()};
    return nullptr;
  }
  return std::make_unique<ExclusiveEndpoint>(std::move(mac), options, std::move(*wake));
}

}  // namespace viaduct::nic
