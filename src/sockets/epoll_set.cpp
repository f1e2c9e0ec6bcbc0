#include "sockets/epoll_set.hpp"

#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/spinner.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set_state.hpp"
#include "sockets/kernel.hpp"
#include "sockets/slab.hpp"
#include "sockets/table.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

constinit FdMap<EpollSet> epoll_sets;
constinit std::atomic<bool> edges_in_use{false};

namespace {

Slab<EpollItem> item_slab;
Slab<EpollSet> set_slab;
FdMap<EpollItem> items_by_id;
std::atomic<int> next_id{1};

// Nobody's own data looks like this by accident.
std::uint64_t tag() {
  static constinit std::atomic<std::uint64_t> value{0};
  std::uint64_t chosen = value.load(std::memory_order_relaxed);
  if (chosen != 0) return chosen;
  std::uint32_t random = 0x56494144;
  if (::getrandom(&random, sizeof random, GRND_NONBLOCK) < 0) random ^= static_cast<std::uint32_t>(::getpid());
  const std::uint64_t ours = std::uint64_t{random | 0x8000'0001} << 32;
  return value.compare_exchange_strong(chosen, ours) ? ours : chosen;
}

constexpr std::uint64_t kTagBits = 0xffff'ffff'0000'0000;
constexpr int kIdBits = 20;
static_assert(FdMap<EpollItem>::kMost == 1 << kIdBits);

std::uint64_t kernel_data(const EpollItem& item) {
  return tag() | item.uses << kIdBits | static_cast<std::uint32_t>(item.id);
}

constexpr std::uint64_t kBellId = 0;  // no item's

bool add_to_connection(EpollItem& item) {
  for (auto& place : item.connection->items) {
    EpollItem* nobody = nullptr;
    if (place.compare_exchange_strong(nobody, &item)) return true;
  }
  return false;
}

void take_out(EpollItem& item) {
  EpollSet& set = *item.set;
  for (auto& place : item.connection->items) {
    EpollItem* self = &item;
    place.compare_exchange_strong(self, nullptr);
  }
  set.deactivate(item);
  if (item.armed && item.connection->attached()) stop_expecting_data(*item.connection);
  if (!item.orphan) set.items.take(item.fd);
  item.armed = false;
  item.connection->named.store(false);
}

void drop(EpollItem& item) {
  take_out(item);
  items_by_id.take(item.id);
  item_slab.let_go(&item);
}

// Its bell may have stood for others.
void drop_and_wake(EpollItem& item) {
  EpollSet& set = *item.set;
  const bool named = item.connection->named.load();
  drop(item);
  for (int i = 0; named && i < set.active_count; ++i)
    if (end_sleep(set, *set.active[i])) return;
}

// Another process keeps it in the kernel's set: events go on coming, and their data is all that is known here.
void leave_behind(EpollItem& item) {
  take_out(item);
  item.connection = nullptr;
}

EpollItem* make_item(EpollSet& set, int epoll, int fd, Connection& connection) {
  EpollItem* const item = item_slab.make();
  if (item == nullptr) return nullptr;
  const int id = item->id != 0 ? item->id : next_id.fetch_add(1);
  const std::uint32_t uses = (item->uses + 1) % (1U << (32 - kIdBits));
  *item = {.connection = &connection, .fd = fd, .set = &set, .epoll = epoll, .id = id, .uses = uses};
  if (id < FdMap<EpollItem>::kMost && items_by_id.put(id, item)) {
    if (set.items.put(fd, item)) {
      if (add_to_connection(*item)) return item;
      set.items.take(fd);
    }
    items_by_id.take(id);
  }
  item_slab.let_go(item);
  return nullptr;
}

}  // namespace

Member member_of(const EpollSet& set, std::uint64_t data) {
  if ((data & kTagBits) != tag()) return {.is_ours = false, .item = nullptr};
  EpollItem* const item = items_by_id.find(static_cast<int>(data & ((1U << kIdBits) - 1)));
  const bool there = item != nullptr && item->set == &set && kernel_data(*item) == data;
  return {.is_ours = true, .item = there ? item : nullptr};
}

std::uint64_t kernel_data_of_bell() {
  return tag() | kBellId;
}

Sleep sleep_with_bell(EpollSet& set, int epoll) {
  if (set.bell == nullptr && set.active_count != 0 && set.may_have_bell()) {
    const BriefLock::Hold hold(set.lock);
    const int kept = errno;
    const Bell* const bell = set.bell == nullptr ? take_bell() : nullptr;
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
    event.data.u64 = kernel_data_of_bell();
    if (bell != nullptr && kernel::libc().epoll_ctl(epoll, EPOLL_CTL_ADD, bell->fd.load(), &event) == 0)
      set.bell = bell;
    else
      give_bell_back(bell);
    errno = kept;
  }
  const Bell* const bell = set.bell;
  return next_sleep(bell != nullptr && set.may_have_bell() ? bell->id.load(std::memory_order_relaxed) : 0);
}

namespace {

std::uint32_t events_for_kernel(const EpollItem& item) {
  if (item.fired)
    return EPOLLET;  // the kernel adds errors and hang-ups to whatever it is told: those once, to be dropped
  if (!item.connection->attached() || !sends_on_ring(*item.connection)) return item.events;
  std::uint32_t events = item.events & ~kEpollRoom;
  if ((events & kEpollData) == 0 && !item.ended) events |= EPOLLIN | EPOLLET;  // doorbells, once each
  return events;
}

// It refuses to change those that are to be told exclusively: taken out and put in again.
void change_in_kernel(EpollItem& item, epoll_event& event) {
  const auto& libc = kernel::libc();
  if ((item.events & EPOLLEXCLUSIVE) != 0) {
    libc.epoll_ctl(item.epoll, EPOLL_CTL_DEL, item.fd, nullptr);
    libc.epoll_ctl(item.epoll, EPOLL_CTL_ADD, item.fd, &event);
  } else {
    libc.epoll_ctl(item.epoll, EPOLL_CTL_MOD, item.fd, &event);
  }
  item.kernel_events = event.events;
}

}  // namespace

bool tell_kernel(EpollItem& item) {
  if (item.orphan) return true;
  const int kept = errno;
  if (item.deleted) {
    kernel::libc().epoll_ctl(item.epoll, EPOLL_CTL_DEL, item.fd, nullptr);
    drop_and_wake(item);
    errno = kept;
    return false;
  }
  if (item.fired && item.kernel_events == kEpollSpent) return true;
  epoll_event event{};
  event.events = events_for_kernel(item);
  if (event.events == item.kernel_events) return true;
  event.data.u64 = kernel_data(item);
  change_in_kernel(item, event);
  errno = kept;
  return true;
}

namespace {

// Nobody can tell the kernel anything any more of a member whose number is closed: should its connection go back to
// TCP, it has to hear of room there.
void tell_kernel_for_good(EpollItem& item) {
  const std::uint32_t events = item.fired ? item.kernel_events : item.kernel_events | (item.events & EPOLLOUT);
  if (events == item.kernel_events) return;
  const int kept = errno;
  epoll_event event{};
  event.events = events;
  event.data.u64 = kernel_data(item);
  change_in_kernel(item, event);
  errno = kept;
}

}  // namespace

// TCP has room, and says so. The kernel is told otherwise before the next sleep.
bool end_sleep(EpollSet& set, EpollItem& item) {
  if (set.sleeping.load() == 0 || item.orphan || item.deleted || !item.connection->attached()) return false;
  set.arm(item);
  const int kept = errno;
  epoll_event event{};
  event.events = events_for_kernel(item) | EPOLLOUT;
  event.data.u64 = kernel_data(item);
  change_in_kernel(item, event);
  errno = kept;
  return true;
}

// ---- sets

void adopt_set(int fd) {
  if (in_borrowed_memory()) return;
  forget_set(fd);
  EpollSet* const set = set_slab.make();
  if (set == nullptr) return;
  set->start();
  if (!epoll_sets.put(fd, set)) set_slab.let_go(set);
}

void duplicate_set(int from, int to) {
  if (EpollSet* const set = find_set(from)) {
    set->descriptors.fetch_add(1);
    epoll_sets.put(to, set);
  }
}

namespace {

// Those that are known by their connections only, too.
template <class Use>
void each_item_of(EpollSet& set, Use&& use) {
  set.items.each([&](int, EpollItem* item) { use(*item); });
  connections.each([&](int, Connection* connection) {
    for (auto& place : connection->items)
      if (EpollItem* const item = place.load(); item != nullptr && item->set == &set) use(*item);
  });
}

}  // namespace

void forget_set(int fd) {
  EpollSet* const set = epoll_sets.take(fd);
  if (set == nullptr) return;
  const bool last = set->descriptors.fetch_sub(1) == 1;
  int other = -1;
  if (!last) epoll_sets.each([&](int number, EpollSet* found) { other = found == set ? number : other; });
  epoll_sets.each([&](int, EpollSet* around) {  // before its own lock is taken: the outer one's comes first
    const BriefLock::Hold hold(around->lock);
    around->forget_nested(fd, other);
  });
  const BriefLock::Hold hold(set->lock);
  if (last) {
    if (const Bell* const bell = std::exchange(set->bell, nullptr)) {
      kernel::libc().epoll_ctl(fd, EPOLL_CTL_DEL, bell->fd.load(), nullptr);  // a child may have the kernel's set still
      give_bell_back(bell);
    }
    each_item_of(*set, [](EpollItem& item) { drop(item); });
    while (set->nested_count > 0) set->leave_nested(set->nested_count - 1);
    set_slab.let_go(set);
    return;
  }
  each_item_of(*set, [&](EpollItem& item) { item.epoll = item.epoll == fd ? other : item.epoll; });
}

void forget_sets_in(unsigned first, unsigned last) {
  epoll_sets.each([&](int fd, EpollSet*) {
    if (static_cast<unsigned>(fd) >= first && static_cast<unsigned>(fd) <= last) forget_set(fd);
  });
}

void tell_of_deletions(Connection& connection, int fd) {
  each_place(connection, [fd](EpollSet&, EpollItem& item) {
    if (item.fd == fd && item.deleted) tell_kernel(item);
  });
}

void forget_in_sets(Connection& connection, int fd, int duplicate) {
  for (auto& place : connection.items) {
    EpollItem* const item = place.load();
    if (item == nullptr || item->fd != fd) continue;
    EpollSet& set = *item->set;
    const BriefLock::Hold hold(set.lock);
    if (place.load() != item) continue;
    if (duplicate >= 0 && tell_kernel(*item)) {
      if (!item->orphan) {
        tell_kernel_for_good(*item);
        set.items.take(fd);
      }
      item->orphan = true;
      item->fd = duplicate;
    } else if (duplicate < 0 && item->deleted && !item->orphan) {
      tell_kernel(*item);  // which keeps it for as long as another process has the socket
    } else if (duplicate < 0 && connection.shared.load() && set.held_by_others()) {
      leave_behind(*item);
    } else if (duplicate < 0) {
      drop_and_wake(*item);
    }
  }
}

Memberships::Memberships(Connection& connection, int fd) : fd_(fd) {
  each_place(connection, [this](EpollSet&, EpollItem& item) {
    if (item.fd != fd_ || item.orphan) return;
    epoll_event event{.events = item.events, .data = {}};
    event.data.u64 = item.data;
    if (!item.deleted) places_[count_++] = {item.epoll, item.fired, event};
    item.deleted = true;
    tell_kernel(item);
  });
}

void Memberships::renew() const {
  const int kept = errno;
  for (int i = 0; i < count_; ++i) {
    EpollSet* const set = find_set(places_[i].epoll);
    epoll_event event = places_[i].event;
    if (set == nullptr || set_control(*set, places_[i].epoll, EPOLL_CTL_ADD, fd_, &event) != 0) continue;
    const BriefLock::Hold hold(set->lock);
    EpollItem* const item = set->items.find(fd_);
    if (item == nullptr) continue;
    item->fired = places_[i].fired;
    tell_kernel(*item);
  }
  errno = kept;
}

// ---- epoll_ctl

namespace {

void change(EpollItem& item, const epoll_event& event) {
  if (item.fired || item.deleted || item.events == 0) ++item.set->changes;
  item.events = event.events;
  item.data = event.data.u64;
  item.fired = false;
  item.deleted = false;
  item.room_told = false;
  item.fresh = true;
  item.ended = false;
  item.reported = 0;
  item.still = {};
  if ((event.events & (EPOLLET | EPOLLONESHOT)) != 0)
    item.kernel_events = 0;  // the same again means: tell me once more
}

// `unfit`: why it cannot be one, but has to be plain, for the kernel alone to tell of it.
int add_member(EpollSet& set, int epoll, int fd, Connection& connection, epoll_event* event, Why& unfit) {
  const auto& libc = kernel::libc();
  EpollItem* const item = set.held_by_others() ? nullptr : make_item(set, epoll, fd, connection);
  if (item == nullptr) {
    set.has_others.store(true, std::memory_order_relaxed);
    unfit = set.held_by_others() ? Why::shared_epoll : Why::no_memory;
    return 0;
  }
  change(*item, *event);
  epoll_event ours{};
  ours.events = item->kernel_events = events_for_kernel(*item);
  ours.data.u64 = kernel_data(*item);
  if (const int result = libc.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ours); result != 0) {
    drop(*item);
    return result;
  }
  if (connection.attached()) {
    set.activate(*item);
    end_sleep(set, *item);
  }
  return 0;
}

// What cannot be told to one only. The kernel says so, but of some of it we do not tell it.
bool is_refused_exclusively(const epoll_event& event) {
  constexpr std::uint32_t kGood = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
  return (event.events & EPOLLEXCLUSIVE) != 0 && (event.events & ~kGood) != 0;
}

// Somebody sleeps on the set, who expects nothing yet of this one in it.
void join_sleep(EpollSet& set, int fd, EpollSet& inner) {
  for (int i = 0; i < set.nested_count; ++i)
    if (set.nested[i].fd == fd && !set.nested[i].counted.is(inner)) set.nested[i].counted = SetAsleep(inner);
  set_expect(inner);
  set_tell_kernel(inner);
  if (!set_ready(inner)) return;
  const BriefLock::Hold hold(inner.lock);
  for (int i = 0; i < inner.active_count; ++i)
    if (end_sleep(inner, *inner.active[i])) return;
}

// The kernel need not know yet.
int control_active(EpollSet& set, EpollItem& item, int operation, const epoll_event* event) {
  if (operation == EPOLL_CTL_ADD ? !item.deleted : item.deleted) {
    errno = operation == EPOLL_CTL_ADD ? EEXIST : ENOENT;
    return -1;
  }
  if (operation == EPOLL_CTL_DEL)
    item.deleted = true;
  else
    change(item, *event);
  set.activate(item);
  // What comes over TCP is the kernel's to tell, also to those who wait for an edge of this set from outside.
  const bool on_tcp = item.connection != nullptr && item.connection->attached() && !receives_on_ring(*item.connection);
  if (operation != EPOLL_CTL_DEL && !end_sleep(set, item) && on_tcp) tell_kernel(item);
  return 0;
}

int control(EpollSet& set, int epoll, int operation, int fd, epoll_event* event, Why& unfit) {
  const auto& libc = kernel::libc();
  const BriefLock::Hold hold(set.lock);
  if (event != nullptr && (event->events & EPOLLET) != 0) edges_in_use.store(true, std::memory_order_relaxed);
  EpollItem* item = set.items.find(fd);
  const bool plain_flags = event == nullptr || (event->events & (EPOLLEXCLUSIVE | EPOLLWAKEUP)) == 0;
  if (item != nullptr && item->deleted && !plain_flags) item = tell_kernel(*item) ? item : nullptr;
  if (event == nullptr && operation != EPOLL_CTL_DEL) return libc.epoll_ctl(epoll, operation, fd, event);
  if (operation == EPOLL_CTL_ADD && is_refused_exclusively(*event)) return libc.epoll_ctl(epoll, operation, fd, event);
  if (item == nullptr) {
    Connection* const connection = find_connection(fd);
    if (operation == EPOLL_CTL_ADD && connection != nullptr && connection->life.load() != Life::plain)
      return add_member(set, epoll, fd, *connection, event, unfit);
    const int result = libc.epoll_ctl(epoll, operation, fd, event);
    if (result != 0) return result;
    EpollSet* const inner = find_set(fd);
    if (operation == EPOLL_CTL_ADD && inner == nullptr) set.has_others.store(true, std::memory_order_relaxed);
    if (operation == EPOLL_CTL_ADD && inner != nullptr) set.add_nested(fd, *event);
    if (operation != EPOLL_CTL_ADD) set.change_nested(fd, operation == EPOLL_CTL_MOD ? event : nullptr);
    if (operation != EPOLL_CTL_DEL && inner != nullptr && inner != &set && set.sleeping.load() != 0)
      join_sleep(set, fd, *inner);
    return 0;
  }
  const bool exclusive = (item->events & EPOLLEXCLUSIVE) != 0 && !item->deleted;  // the kernel refuses to change it
  if (item->connection->attached() && plain_flags && !exclusive && operation >= EPOLL_CTL_ADD &&
      operation <= EPOLL_CTL_MOD)
    return control_active(set, *item, operation, event);
  if (operation == EPOLL_CTL_DEL) {
    const int result = libc.epoll_ctl(epoll, operation, fd, event);
    drop_and_wake(*item);
    return result;
  }
  if (operation != EPOLL_CTL_MOD) return libc.epoll_ctl(epoll, operation, fd, event);
  epoll_event ours = *event;
  ours.data.u64 = kernel_data(*item);
  const int result = libc.epoll_ctl(epoll, operation, fd, &ours);
  if (result != 0) return result;
  change(*item, *event);
  item->kernel_events = event->events;
  return 0;
}

}  // namespace

int set_control(EpollSet& set, int epoll, int operation, int fd, epoll_event* event) {
  const Uncancelled here;
  Why unfit = Why::accelerated;
  const int result = control(set, epoll, operation, fd, event, unfit);
  if (unfit == Why::accelerated) [[likely]]
    return result;
  // Without the set's lock, which comes after that of a connection which is being upgraded.
  if (Connection* const connection = find_connection(fd)) make_plain(*connection, fd, unfit);
  return kernel::libc().epoll_ctl(epoll, operation, fd, event);
}

// ---- fork: the kernel's set is shared from now on, the table of members is not

void wake_inherited(EpollSet& set) {
  const BriefLock::Hold hold(set.lock);
  if (!set.inherited.exchange(false)) return;
  each_item_of(set, [&set](EpollItem& item) {
    if (item.connection != nullptr && item.connection->attached() && !item.fired && !item.deleted) set.activate(item);
  });
}

// From here on no sleep ends by the bell of a set that a child may be told of: whoever has armed with it is woken, and
// arms anew.
void sets_before_fork() {
  epoll_sets.each([](int, EpollSet* set) {
    set->had_children = !set->may_have_bell();
    set->forked_to.store(-1);
    const BriefLock::Hold hold(set->lock);
    if (set->bell == nullptr || set->sleeping.load() == 0) return;
    for (int i = 0; i < set->active_count; ++i) (void)end_sleep(*set, *set->active[i]);
  });
}

void sets_after_fork_in_parent(pid_t child) {
  epoll_sets.each([child](int, EpollSet* set) {
    if (!set->had_children) set->forked_to.store(std::max(child, 0));
  });
}

void sets_after_fork_in_child(pid_t parent) {
  item_slab.lock().reset();
  set_slab.lock().reset();
  epoll_sets.each([parent](int, EpollSet* set) {
    set->lock.reset();
    set->other_holder.store(parent);
    set->sleeping.store(0);
    set->napping.store(0);
    set->inherited.store(true);
    set->bell = nullptr;
    set->forked_to.store(0);
    each_item_of(*set, [](EpollItem& item) { item.armed = false; });  // that was the parent's doing
  });
}

}  // namespace viaduct::sockets
