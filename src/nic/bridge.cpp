#include <fmt/format.h>
#include <sys/epoll.h>
#include <viaduct/nic_bridge.hpp>

#include <atomic>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "nic/mac/forwarding_mac.hpp"

namespace viaduct::nic {

namespace {

void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {  // one writer
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// The adapter's MAC, whose descriptor is readable when the host side has something too: a processor sleeps on one.
class WatchedMac final : public ForwardingMac {
 public:
  WatchedMac(std::unique_ptr<Mac> mac, const int& watch) : ForwardingMac(std::move(mac)), watch_(watch) {}
  int fd() const override { return watch_; }
  int own_fd() const { return mac_->fd(); }

 private:
  const int& watch_;
};

class LiveBridge final : public Bridge {
 public:
  explicit LiveBridge(std::unique_ptr<Mac> host) : host_mac_(std::move(host)) {}

  Status start(Config config, std::unique_ptr<Mac> mac);

  Adapter& adapter() override { return *adapter_; }
  Mac& host_side() override { return *host_mac_; }
  bool poll() override {
    const std::uint64_t before = moved_;
    return adapter_->poll() || moved_ != before;
  }
  int fd() const override { return watch_number_; }
  Counters counters() const override {
    const auto get = [](const std::atomic<std::uint64_t>& count) { return count.load(std::memory_order_relaxed); };
    return {get(from_host_), get(to_host_), get(too_long_)};
  }

 private:
  static constexpr std::size_t kBatch = 64;
  static constexpr std::uint32_t kLookEvery = 4095;  // turns between looks at whether a descriptor died, a mask

  Status watch(int own);
  void drop_dead_descriptors();
  void turn();
  void from_host(Host& host);
  void to_host(Host& host);

  std::unique_ptr<Mac> host_mac_;
  Fd watch_;  // an epoll of both descriptors
  int watch_number_ = -1;
  int watched_[2] = {-1, -1};  // of the host side, of the MAC
  WatchedMac* mac_ = nullptr;
  std::uint32_t max_frame_ = 0;
  // R1: set once the adapter is there; pairs with A1 in turn(), on a processor that started before.
  std::atomic<Host*> host_{nullptr};

  // The processor's.
  std::uint32_t turns_ = 0;
  std::uint64_t moved_ = 0;
  std::array<Packet, kBatch> packets_{};
  std::array<Frame, kBatch> frames_{};
  std::size_t at_ = 0, count_ = 0;  // received from the adapter, not yet taken by the host side
  std::atomic<std::uint64_t> from_host_{0}, to_host_{0}, too_long_{0};

  std::unique_ptr<Adapter> adapter_;  // last: its processors stop before anything above goes
};

Status LiveBridge::watch(int own) {
  watched_[0] = host_mac_->fd(), watched_[1] = own;
  if (watched_[0] < 0 || watched_[1] < 0) return {};  // one of them must be polled: then both are
  watch_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!watch_) return Error::from_errno("make an epoll for both sides");
  for (const int fd : watched_) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(watch_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return Error::from_errno("watch both sides");
  }
  watch_number_ = watch_.get();
  return {};
}

Status LiveBridge::start(Config config, std::unique_ptr<Mac> mac) {
  if (host_mac_->max_frame() > mac->max_frame())
    return Error(EMSGSIZE,
                 fmt::format("{} sends frames of up to {} bytes, {} carries {}: give the host side an MTU of {}",
                             host_mac_->name(), host_mac_->max_frame(), mac->name(), mac->max_frame(),
                             mac->max_frame() - kEthernetHeader));
  VIADUCT_CHECK(watch(mac->fd()));
  max_frame_ = mac->max_frame();
  auto watched = std::make_unique<WatchedMac>(std::move(mac), watch_number_);
  mac_ = watched.get();
  // The host side looks at every turn: there is nothing to wait for.
  config.coalescing.receive_count = 1;
  config.companion = [this] { turn(); };
  Failure why;
  adapter_ = Adapter::create(std::move(config), std::move(watched), why);
  if (adapter_ == nullptr) return Error(why.code.value(), why.message);
  host_.store(&adapter_->host(), std::memory_order_release);  // R1
  return {};
}

void LiveBridge::turn() {
  Host* const host = host_.load(std::memory_order_acquire);  // A1
  if (host == nullptr) return;
  if ((++turns_ & kLookEvery) == 0) drop_dead_descriptors();
  from_host(*host);
  to_host(*host);
}

// The descriptor of an interface that was removed is always readable: nobody could sleep.
void LiveBridge::drop_dead_descriptors() {
  const int now[2] = {host_mac_->fd(), mac_->own_fd()};
  for (int i = 0; i < 2; ++i) {
    if (watched_[i] < 0 || now[i] == watched_[i]) continue;
    if (watch_) (void)::epoll_ctl(watch_.get(), EPOLL_CTL_DEL, watched_[i], nullptr);
    watched_[i] = -1;
  }
}

void LiveBridge::from_host(Host& host) {
  (void)host.reclaim({});
  const std::size_t room = std::min<std::size_t>(kBatch, host.send_space());
  if (room == 0) return;
  std::array<Frame, kBatch> frames;
  const std::size_t count = host_mac_->receive({frames.data(), room});
  if (count == 0) return;
  std::uint64_t sent = 0;
  for (const Frame& frame : std::span(frames.data(), count)) {
    if (frame.length > max_frame_)
      add(too_long_, 1);
    else if (host.send_copy({frame.data, frame.length}))
      ++sent;
  }
  host.ring();
  host_mac_->release(count);
  add(from_host_, sent);
  moved_ += count;
}

void LiveBridge::to_host(Host& host) {
  if (at_ == count_) {
    at_ = 0;
    count_ = host.receive(0, packets_);
    if (count_ == 0) return;
    for (std::size_t i = 0; i < count_; ++i) frames_[i] = {packets_[i].data, packets_[i].length};
  }
  const std::size_t taken = host_mac_->transmit({&frames_[at_], count_ - at_});
  for (std::size_t i = 0; i < taken; ++i) host.give_back(packets_[at_ + i]);
  host.post();
  at_ += taken;
  add(to_host_, taken);
  moved_ += taken;
}

}  // namespace

std::unique_ptr<Bridge> Bridge::create(Config config, std::unique_ptr<Mac> host, std::unique_ptr<Mac> mac,
                                       Failure& why) {
  auto bridge = std::make_unique<LiveBridge>(std::move(host));
  const Status started = bridge->start(std::move(config), std::move(mac));
  if (started) return bridge;
  why = {std::error_code(started.error().code(), std::generic_category()), started.error().message()};
  return nullptr;
}

}  // namespace viaduct::nic
