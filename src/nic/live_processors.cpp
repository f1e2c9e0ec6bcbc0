// How the processors of a live adapter run: the caller's thread in poll(), or threads that turn, spin and sleep.
#include <pthread.h>
#include <signal.h>

#include "base/log.hpp"
#include "base/spin.hpp"
#include "base/topology.hpp"
#include "nic/live_adapter.hpp"

namespace viaduct::nic {

namespace {
constexpr std::uint32_t kPublishEvery = 8191;  // rounds, a mask

// A thread of ours must not run the program's signal handlers.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

// One function: for a single packet, calls between handlers would be a good part of what it costs.
[[gnu::flatten, gnu::noinline]] unsigned dispatch_round(Firmware<LiveHardware>& firmware, Processor& cpu) {
  return dispatch(firmware, cpu);
}
}  // namespace

unsigned LiveAdapter::turn(Place& place) {
  Processor& cpu = place.cpu;
  if (cpu.id == processor_of_[0]) {  // the one that handles mailboxes
    if (null_host_) null_host_->turn();
    if (config_.companion) config_.companion();
  }
  unsigned done = dispatch_round(*firmware_, cpu);
  if (endpoints_ != nullptr || handler_ != nullptr) [[unlikely]]
    done += static_cast<unsigned>(hardware_->send_for_endpoints(cpu));
  if (done == 0 && config_.partition == Partition::dynamic && hardware_->help()) done = 1;
  bump(cpu.statistics->rounds);
  if (done == 0) bump(cpu.statistics->idle_rounds);
  if ((cpu.rounds & kPublishEvery) == 0 && cpu.id == processor_of_[0]) publish();
  return done;
}

bool LiveAdapter::poll() {
  if (config_.partition != Partition::inlined || !turning_.try_lock()) return false;
  bool found = false;
  do {
    wanted_.store(false, std::memory_order_relaxed);
    const bool idle = turn(places_[0]) == 0;
    turned_in_vain_.store(idle, std::memory_order_relaxed);
    found |= !idle;
    turning_.unlock();
    fence::full();  // whoever left word before the lock was free is seen; whoever comes later finds it free
  } while (wanted_.load(std::memory_order_relaxed) && turning_.try_lock());
  return found;
}

void LiveAdapter::turn() {
  (void)poll();
}

void LiveAdapter::frames_wait() {
  if (inlined()) {
    wanted_.store(true);
    fence::full();
    (void)poll();
  } else if (doze_ != nullptr) {
    doze_->wake(processor_of_[static_cast<unsigned>(Event::dma_read_complete)]);
  }
}

std::size_t LiveAdapter::send_now(std::span<const Frame> frames) {
  if (!turning_.try_lock()) return 0;
  const std::size_t taken = hardware_->send_now(frames);
  turning_.unlock();
  fence::full();
  if (wanted_.load(std::memory_order_relaxed)) (void)poll();
  return taken;
}

SleepResult LiveAdapter::CallersSleep::sleep(WaitWord&, std::uint32_t, Deadline deadline, const Clock& clock) {
  if (!adapter_.turned_in_vain_.load(std::memory_order_relaxed)) return SleepResult::woken;
  constexpr std::uint64_t kLookEveryNs = 1'000'000;  // at a MAC that has no descriptor
  const std::uint64_t due = adapter_.hardware_->next_timer_ns(), now = adapter_.hardware_->now_ns();
  std::uint64_t most = due == UINT64_MAX ? UINT64_MAX : due > now ? due - now : 1;
  if (!deadline.is_never()) most = std::min(most, deadline.left_ns(clock.now_ns()));
  const int mac = adapter_.mac_->fd();
  if (mac < 0) most = std::min(most, kLookEveryNs);
  if (adapter_.handler_ != nullptr) most = std::min(most, adapter_.handler_->until_due_ns());
  const pollfd watched{mac, POLLIN, 0};
  return Doze::sleep(adapter_.bell_.get(), {&watched, 1}, most) ? SleepResult::woken : SleepResult::timeout;
}

void LiveAdapter::run(Place& place) {
  block_signals();
  ::pthread_setname_np(::pthread_self(), ("nic-" + std::to_string(place.cpu.id)).c_str());
  if (place.cpu.id < config_.cores.size())
    if (auto pinned = pin_this_thread(config_.cores[place.cpu.id]); !pinned) log::fault(pinned.error().message());
  const std::uint64_t spin_ns = config_.spin_us == UINT64_MAX ? UINT64_MAX : config_.spin_us * 1000;
  constexpr int kPatience = 64;  // idle turns between looks at the clock
  std::uint64_t idle_since = 0;
  int idle = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (turn(place) != 0) {
      idle_since = 0, idle = 0;
      continue;
    }
    cpu_relax();
    if (doze_ == nullptr || ++idle < kPatience) continue;
    idle = 0;
    const std::uint64_t now = hardware_->now_ns();
    if (idle_since == 0)
      idle_since = now;
    else if (now - idle_since > spin_ns)
      doze(place);
  }
}

void LiveAdapter::doze(Place& place) {
  if (place.cpu.id == processor_of_[0]) publish();
  const bool receives = (place.cpu.mine & bit(Event::receive_complete)) != 0;
  const bool sends = endpoints_ != nullptr && (place.cpu.mine & bit(Event::dma_read_complete)) != 0;
  const std::uint64_t due = hardware_->next_timer_ns(), now = hardware_->now_ns();
  std::uint64_t most = due == UINT64_MAX ? UINT64_MAX : due > now ? due - now : 1;
  // Nobody is the one to be woken where anybody may handle an event.
  if (config_.partition == Partition::dynamic) most = std::min<std::uint64_t>(most, 1'000'000);
  if (receives && handler_ != nullptr) most = std::min(most, handler_->until_due_ns());
  const bool full = sends && hardware_->mac_is_full();
  const pollfd watched[Doze::kMostWatched] = {{receives ? mac_->fd() : -1, POLLIN, 0},
                                              {sends ? doorbells_.get() : -1, POLLIN, 0},
                                              {full ? mac_->transmit_fd() : -1, POLLOUT, 0}};
  const bool must_look = (receives && mac_->fd() < 0) || (full && mac_->transmit_fd() < 0);
  doze_->nap(place.cpu.id, watched, must_look, most, [&] {
    if (sends) (void)endpoints_->arm();
    return stopping_.load(std::memory_order_relaxed) || turn(place) != 0;
  });
  if (sends) doorbells_.settle();
}

// What `viaduct top` shows: the sum over the adapters of a process.
void LiveAdapter::publish() {
  const Totals now = statistics().totals;
  const auto drops = [](const Totals& totals) {
    return totals.no_buffer_drops + totals.short_buffer_drops + totals.bad_frames + totals.bad_send_packets;
  };
  static Counter* const counters =
      new Counter[5]{counter("nic.packets_sent"), counter("nic.packets_received"), counter("nic.drops"),
                     counter("nic.interrupts"), counter("nic.interrupts_avoided")};
  counters[0].add(now.packets_sent - published_.packets_sent);
  counters[1].add(now.packets_received - published_.packets_received);
  counters[2].add(drops(now) - drops(published_));
  counters[3].add(now.interrupts - published_.interrupts);
  counters[4].add(now.interrupts_avoided - published_.interrupts_avoided);
  published_ = now;
}

}  // namespace viaduct::nic
