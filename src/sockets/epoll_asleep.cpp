// What a set has to tell, and sleeping on it: for those who wait for it, and for those outside (sets around it, poll).
#include <poll.h>

#include <algorithm>
#include <utility>

#include "sockets/epoll_set_state.hpp"
#include "sockets/kernel.hpp"

namespace viaduct::sockets {

namespace {

constexpr int kDeepest = 5;  // sets in sets, as the kernel has it
// Silent for so many sleeps, an active member is no longer looked at after each: many that speak in turn stay.
constexpr std::uint32_t kIdleSleeps = 8, kIdleSleepsForEachMember = 4;

// For edge-triggered members: how far data was reported, and how far it is there.
std::uint64_t reported(const EpollItem& item) {
  return item.resumed == item.connection->resumed.load(std::memory_order_relaxed) ? item.reported : 0;
}
std::uint64_t reportable(const EpollItem& item) {
  return Receiver(item.connection->memory, item.connection->in()).frontier(reported(item));
}

}  // namespace

bool has_new_data(const EpollItem& item) {
  return reportable(item) != reported(item);
}
bool has_new_data_behind_tcp(const EpollItem& item) {
  const Connection& connection = *item.connection;
  if ((item.events & EPOLLET) == 0 || (item.events & kEpollData) == 0 || item.fired || receives_on_ring(connection))
    return false;
  const Direction& in = connection.incoming();
  return in.path.mode.load(std::memory_order_acquire) == kRing &&
         in.receiving.stage.load(std::memory_order_relaxed) <= kReadRest && has_new_data(item);
}
void note_reported(EpollItem& item) {
  item.reported = reportable(item);
  item.resumed = item.connection->resumed.load(std::memory_order_relaxed);
}

std::uint64_t contents(EpollSet& set, int depth) {
  constexpr std::uint64_t kFactor = 0x100000001b3;
  const BriefLock::Hold hold(set.lock);
  std::uint64_t sum = 1 + set.changes * kFactor;
  for (int i = 0; depth < kDeepest && i < set.nested_count; ++i)
    if (EpollSet* const inner = find_set(set.nested[i].fd); inner != nullptr && inner != &set)
      sum += contents(*inner, depth + 1) * kFactor;
  for (int i = 0; i < set.active_count; ++i) {
    const EpollItem& item = *set.active[i];
    if (item.deleted || item.fired || !item.connection->attached()) continue;
    const std::uint64_t data = Receiver(item.connection->memory, item.connection->in()).frontier(0);
    const std::uint64_t room = EpollSet::has_room_to_tell(item) ? 1 : 0;
    sum += (static_cast<std::uint64_t>(item.id) << 32 ^ data << 1 ^ room) * kFactor;
  }
  return sum;
}

EpollSet* nested_with_news(const EpollSet& set, const EpollSet::Nested& entry, int depth) {
  EpollSet* const inner = (entry.events & kEpollData) != 0 ? find_set(entry.fd) : nullptr;
  if (inner == nullptr || inner == &set || !set_ready(*inner, depth)) return nullptr;
  return (entry.events & EPOLLET) == 0 || contents(*inner) != entry.told ? inner : nullptr;
}

bool set_ready(EpollSet& set, int depth) {
  const BriefLock::Hold hold(set.lock);
  for (int i = 0; i < set.active_count; ++i) {
    EpollItem& item = *set.active[i];
    if (!item.deleted && item.connection->attached() && EpollSet::has_room_to_tell(item)) return true;
    if (!item.fired && !item.deleted && item.connection->attached() && (item.events & kEpollData) != 0 &&
        ring_readable(*item.connection, item.fd) && ((item.events & EPOLLET) == 0 || has_new_data(item)))
      return true;
    if (!item.deleted && item.connection->attached() && has_new_data_behind_tcp(item)) return true;
  }
  for (int i = 0; depth < kDeepest && i < set.nested_count; ++i)
    if (nested_with_news(set, set.nested[i], depth + 1) != nullptr) return true;
  return false;
}

namespace {

// Under the lock. Who slept on the set was woken by something else, and its bell lies there: for nobody, and seen by
// whoever waits for the set itself. The bell that others are to be rung with again, whose it may be, should there be
// anything; 0: none.
std::uint64_t take_late_bell(EpollSet& set, bool asleep) {
  if (set.bell == nullptr || !set.may_have_bell()) return 0;
  hear_bell(*set.bell);
  return set.sleeping.load() > (asleep ? 1 : 0) ? set.bell->id.load() : 0;
}

}  // namespace

bool set_ready_after_all(EpollSet& set, int fd, bool asleep, int depth) {
  constexpr int kMostLookedAt = 256;  // of a larger set that bell may be told
  if (set_ready(set, depth)) return true;
  std::uint64_t late = 0;
  {
    const BriefLock::Hold hold(set.lock);
    late = take_late_bell(set, asleep);
    int left = kMostLookedAt;
    set.items.each([&](int member, EpollItem* item) {
      if (left-- <= 0 || item->deleted || (item->events & kEpollData) == 0 || item->connection == nullptr) return;
      if (!item->connection->attached()) return;
      const Direction& in = item->connection->incoming();
      if (!receives_on_ring(*item->connection) || in.path.rung.load() == in.receiving.drained.load()) return;
      const bool only_ours = item->armed && set.sleeping.load() <= 1;
      (void)readable_after_all(*item->connection, member, true, only_ours ? 1 : 0);
      set.activate(*item);  // it is armed no more
    });
    for (int i = 0; depth < kDeepest && i < set.nested_count; ++i)
      if (EpollSet* const inner = find_set(set.nested[i].fd); inner != nullptr && inner != &set)
        (void)set_ready_after_all(*inner, set.nested[i].fd, asleep, depth + 1);
  }
  pollfd entry{fd, POLLIN, 0};
  const bool ready = kernel::libc().poll(&entry, 1, 0) > 0 || set_ready(set, depth);
  if (ready && late != 0) ring_bell(late);
  return ready;
}

void set_tell_kernel(EpollSet& set, int depth) {
  const BriefLock::Hold hold(set.lock);
  for (int i = set.active_count - 1; i >= 0; --i) tell_kernel(*set.active[i]);  // may take itself out
  for (int i = 0; depth < kDeepest && i < set.nested_count; ++i)
    if (EpollSet* const inner = find_set(set.nested[i].fd); inner != nullptr && inner != &set)
      set_tell_kernel(*inner, depth + 1);
}

void set_expect(EpollSet& set, Sleep sleep) {
  if (set.inherited.load(std::memory_order_relaxed)) [[unlikely]]
    wake_inherited(set);
  const BriefLock::Hold hold(set.lock);
  const bool by_own_bell = set.bell != nullptr && sleep.bell == set.bell->id.load(std::memory_order_relaxed);
  if (by_own_bell && set.forked_to.load() != 0) sleep = without_bell(sleep);  // a fork has just begun
  const std::uint32_t most_idle =
      kIdleSleeps + kIdleSleepsForEachMember * static_cast<std::uint32_t>(set.active_count.load());
  for (int i = 0; i < set.active_count;) {
    EpollItem& item = *set.active[i];
    if (item.deleted || !item.connection->attached() ||
        (++item.idle_sleeps > most_idle && !EpollSet::lacks_room(item))) {
      if (set.put_to_sleep(item)) continue;  // the last one takes its place in the list
    }
    set.arm(item, sleep);
    ++i;
  }
  for (int i = 0; i < set.nested_count; ++i) {
    EpollSet* const inner = find_set(set.nested[i].fd);
    if (inner == nullptr || inner == &set) continue;
    if (!set.nested[i].counted.is(*inner)) set.nested[i].counted = SetAsleep(*inner);
    set_expect(*inner, sleep.bell != 0 && inner->sleeping.load() == 1 ? sleep : Sleep{});
  }
}

// A member that waits for room may miss the bell that says so, where others read its socket; and none rings where both
// sides wait for room.
int nap_for_room(EpollSet& set, int depth) {
  const BriefLock::Hold hold(set.lock);
  int nap = 0;
  const auto at_most = [&nap](int ms) { nap = nap == 0 || ms == 0 ? std::max(nap, ms) : std::min(nap, ms); };
  for (int i = 0; i < set.active_count; ++i) {
    const EpollItem& item = *set.active[i];
    if (!EpollSet::lacks_room(item)) continue;
    relieve_stalled(*item.connection, item.fd);
    at_most(nap_for_room(*item.connection));
  }
  for (int i = 0; depth < kDeepest && i < set.nested_count; ++i)
    if (EpollSet* const inner = find_set(set.nested[i].fd); inner != nullptr && inner != &set)
      at_most(nap_for_room(*inner, depth + 1));
  return nap;
}

void set_leave(EpollSet& set) {
  int before = set.sleeping.load();
  while (before > 0 && !set.sleeping.compare_exchange_weak(before, before - 1)) continue;
  if (before == 1) set_stop_expecting(set);
}

SetAsleep::SetAsleep(EpollSet& set) : set_(&set), epoch_(set.epoch.load()) {
  set.sleeping.fetch_add(1);
}

bool SetAsleep::is(const EpollSet& set) const {
  return set_ == &set && epoch_ == set.epoch.load();
}

void SetAsleep::leave() {
  EpollSet* const set = std::exchange(set_, nullptr);
  if (set != nullptr && set->epoch.load() == epoch_) set_leave(*set);
}

WhileAsleep::WhileAsleep(EpollSet& set) : set_(set), counted_(set), alone_(set.sleeping.load() == 1) {}

void WhileAsleep::only_naps() {
  naps_ = true;
  set_.napping.fetch_add(1);
}

void WhileAsleep::disarm() {
  const int kept = errno;
  if (naps_ && counted_.is(set_)) set_.napping.fetch_sub(1);
  counted_.leave();
  errno = kept;
}

void set_stop_expecting(EpollSet& set) {
  const BriefLock::Hold hold(set.lock);
  if (set.sleeping.load() != 0) return;  // somebody fell asleep meanwhile, and has armed
  for (int i = 0; i < set.active_count; ++i) {
    EpollItem& item = *set.active[i];
    if (item.armed) set.disarm(item);
  }
  for (int i = 0; i < set.nested_count; ++i) set.nested[i].counted.leave();
}

}  // namespace viaduct::sockets
