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
  if (done == 0 && config_.partition == Partition::dynamic && hardware_->help()) done = 1;
  bump(cpu.statistics->rounds);
  if (done == 0) bump(cpu.statistics->idle_rounds);
  if ((cpu.rounds & kPublishEvery) == 0 && cpu.id == processor_of_[0]) publish();
  return done;
}

bool LiveAdapter::poll() {
  if (config_.partition != Partition::inlined) return false;
  turned_in_vain_ = turn(places_[0]) == 0;
  return !turned_in_vain_;
}

SleepResult LiveAdapter::CallersSleep::sleep(WaitWord&, std::uint32_t, Deadline deadline, const Clock& clock) {
  if (!adapter_.turned_in_vain_) return SleepResult::woken;
  constexpr std::uint64_t kLookEveryNs = 1'000'000;  // at a MAC that has no descriptor
  const std::uint64_t due = adapter_.hardware_->next_timer_ns(), now = adapter_.hardware_->now_ns();
  std::uint64_t most = due == UINT64_MAX ? UINT64_MAX : due > now ? due - now : 1;
  if (!deadline.is_never()) most = std::min(most, deadline.left_ns(clock.now_ns()));
  const int mac = adapter_.mac_->fd();
  if (mac < 0) most = std::min(most, kLookEveryNs);
  return Doze::sleep(adapter_.bell_.get(), mac, most) ? SleepResult::woken : SleepResult::timeout;
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
  const std::uint64_t due = hardware_->next_timer_ns(), now = hardware_->now_ns();
  std::uint64_t most = due == UINT64_MAX ? UINT64_MAX : due > now ? due - now : 1;
  // Nobody is the one to be woken where anybody may handle an event.
  if (config_.partition == Partition::dynamic) most = std::min<std::uint64_t>(most, 1'000'000);
  doze_->nap(place.cpu.id, receives, mac_->fd(), most,
             [&] { return stopping_.load(std::memory_order_relaxed) || turn(place) != 0; });
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
