// The inside of an epoll set, for epoll_set.cpp (members), epoll_wait.cpp (waiting) and epoll_asleep.cpp (sleeping).
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fence.hpp"
#include "sockets/bell.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/event_bell.hpp"
#include "sockets/settings.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

// For a sleep of the only one who waits for the set, which is `epoll`: its bell, if there is one to be had.
Sleep sleep_with_bell(EpollSet& set, int epoll);
// The bell as the kernel's events say it.
std::uint64_t kernel_data_of_bell();

// What the program wants by now. False: the member was deleted and is gone.
bool tell_kernel(EpollItem& item);
// Before the first wait of a process that has inherited the set: all members are looked at.
void wake_inherited(EpollSet& set);
// Somebody sleeps on the set and does not know of a change: the sleep ends. False: not by this member.
bool end_sleep(EpollSet& set, EpollItem& item);

// Of an edge-triggered member: something new is in the ring, while bytes before it are unread on TCP.
bool has_new_data_behind_tcp(const EpollItem& item);

// The program has asked for edges of something: a connection, or a set that has one in it.
extern std::atomic<bool> edges_in_use;

class EpollSet {
 public:
  static constexpr int kUsualActive = 128;  // more only where all of them have something
  static constexpr int kUsualNested = 16;
  static constexpr unsigned kTurnsPerRest = 4096;  // waits

  void start() {
    epoch.fetch_add(1);
    descriptors.store(1);
    active_count.store(0);
    nested_count = 0;
    other_holder.store(0);
    inherited.store(false);
    has_others.store(false);
    changes = 0;
    sleeping.store(0);
    napping.store(0);
    last_kernel_ns = 0;
    last_told_ns = 0;
    waits_since_kernel = 0;
    kernel_is_due = false;
    due_since = 0;
    kernel_asked = 0;
    kernel_looked = 0;
    kernel_first = 0;
    kernel_repeats = false;
    heard_until = 0;
    bell = nullptr;
    forked_to.store(0);
  }

  void activate(EpollItem& item) {
    item.idle_sleeps = 0;
    if (item.active) return;
    for (int tries = 0; active_count >= kUsualActive && active_count == capacity && tries < kUsualActive; ++tries)
      put_to_sleep(*active[next_to_sleep++ % static_cast<unsigned>(active_count)]);
    if (active_count == capacity && !grow()) return arm(item);  // no memory: its doorbell will have to do
    if (item.armed && sleeping.load() == 0) disarm(item);
    item.heard_in = turn - 1;
    item.active = true;
    active[active_count] = &item;
    active_count.fetch_add(1, std::memory_order_release);
  }

  void disarm(EpollItem& item) {
    item.armed = false;
    item.connection->named.store(false);
    if (item.connection->attached()) stop_expecting_data(*item.connection);
  }

  void deactivate(EpollItem& item) {
    if (!item.active) return;
    item.active = false;
    for (int i = 0; i < active_count; ++i)
      if (active[i] == &item) {
        active[i] = active[active_count - 1];
        active_count.fetch_sub(1);
      }
  }
  // The peer rings from now on, and the kernel reports. False: something has come meanwhile, it stays active.
  bool put_to_sleep(EpollItem& item) {
    if (!item.deleted && item.connection->attached()) {
      arm(item);  // first, and then the look: what comes later rings
      if (ring_readable(*item.connection, item.fd) || has_room_to_tell(item) || has_new_data_behind_tcp(item)) {
        item.idle_sleeps = 0;
        return false;
      }
    }
    deactivate(item);
    tell_kernel(item);
    return true;
  }

  // A set that never sleeps does not look for ever at those that were silent for so long: they ring.
  void rest_silent() {
    for (int i = active_count - 1; i >= 0 && active_count > 1; --i)  // one alone costs nothing (epoll_short.hpp)
      if (turn - active[i]->heard_in > 2 * kTurnsPerRest && !lacks_room(*active[i])) put_to_sleep(*active[i]);
  }

  // Whoever rang last has disarmed: armed anew each time. Only for an active member may the bell of another do.
  void arm(EpollItem& item, Sleep sleep = {}) {
    if (!item.connection->attached()) return;
    if (item.fired) {  // nothing is to be told of it: another thread may be at it, with a bell of its own
      if (item.armed) disarm(item);
      return;
    }
    // A program need not have sent in vain: without room it is not told to send at all.
    const Connection& connection = *item.connection;
    const bool has_bell = sleep.bell != 0 && may_have_event_bell(connection);
    if (wants_room(item) && !ring_writable(*item.connection)) expect_room(*item.connection, has_bell ? sleep.bell : 0);
    if (has_bell ? (item.events & kEpollData) == 0 : !doorbell_may_stand_for_others(item)) sleep = {};
    if (!has_bell) sleep = without_bell(sleep);
    if (edges_in_use.load(std::memory_order_relaxed)) item.connection->incoming().data.on_edges.store(1);
    item.connection->named.store(sleep.name != kRingForMe && !has_bell);
    if (item.armed) return expect_data_again(*item.connection, sleep);
    expect_data(*item.connection, sleep);
    item.armed = true;
  }

  static bool doorbell_may_stand_for_others(const EpollItem& item) {
    const Connection& connection = *item.connection;
    if (connection.shared.load(std::memory_order_relaxed) ||
        connection.last_reader.load(std::memory_order_relaxed) != thread_mark())
      return false;  // somebody else may take it before this sleep has ended
    // The kernel is not asked for it, so it would wake nobody.
    if ((item.events & kEpollData) == 0 && !sends_on_ring(connection)) return false;
    // An edge that was told already is not told again, should the bell be left here.
    const Direction& in = connection.incoming();
    return (item.events & EPOLLET) == 0 || in.path.rung.load() == in.receiving.drained.load();
  }

  static bool wants_room(const EpollItem& item) {
    return (item.events & kEpollRoom) != 0 && !item.fired && sends_on_ring(*item.connection);
  }
  static bool lacks_room(const EpollItem& item) {
    return !item.deleted && item.connection->attached() && wants_room(item) && !ring_writable(*item.connection);
  }
  static bool has_room_to_tell(const EpollItem& item) {
    const bool told = (item.events & EPOLLET) != 0 && item.room_told;
    return wants_room(item) && !told && ring_writable(*item.connection);
  }

  void add_nested(int fd, const epoll_event& event) {
    if (nested_count == nested_capacity && !grow_nested()) return;  // no memory: the kernel's word will have to do
    nested[nested_count++] = {.fd = fd, .events = event.events, .data = event.data.u64};
  }
  void change_nested(int fd, const epoll_event* event) {  // null: it goes
    for (int i = 0; i < nested_count; ++i) {
      if (nested[i].fd != fd) continue;
      if (event != nullptr)
        nested[i] = {.fd = fd, .events = event->events, .data = event->data.u64, .counted = nested[i].counted};
      else
        leave_nested(i--);
    }
  }

  // Its number is closed; `other`: one that it has still, or -1.
  void forget_nested(int fd, int other) {
    if (other < 0) return change_nested(fd, nullptr);
    for (int i = 0; i < nested_count; ++i)
      if (nested[i].fd == fd) nested[i].fd = other;
  }

  void leave_nested(int which) {
    SetAsleep counted = nested[which].counted;
    nested[which] = nested[--nested_count];
    counted.leave();
  }

  // Another process that was there at the fork: what it adds to the kernel's set we do not know, and the reverse.
  bool held_by_others() {
    const pid_t other = other_holder.load();
    if (other == 0) return false;
    if (::kill(other, 0) != 0 && errno == ESRCH) other_holder.store(0);
    return other_holder.load() != 0;
  }

  // A child may wait for the kernel's set too, and would be told of its bell instead of us.
  bool may_have_bell() {
    const pid_t child = forked_to.load(std::memory_order_relaxed);
    if (child > 0 && ::kill(child, 0) != 0 && errno == ESRCH) forked_to.store(0);
    return forked_to.load(std::memory_order_relaxed) == 0 && !held_by_others();
  }

  BriefLock lock;
  FdMap<EpollItem> items;
  // Looked at without the lock too: the count is read first, the array has at least as many. Former ones stay mapped.
  EpollItem* first_active[kUsualActive];
  std::atomic<EpollItem**> active{first_active};
  EpollItem* first_heard[kUsualActive];
  EpollItem** heard = first_heard;  // those that have something, for one wait: as many as there may be active ones
  std::atomic<int> active_count{0};
  int capacity = kUsualActive;
  unsigned turn = 0;           // of listening
  unsigned next_to_sleep = 0;  // where there are too many
  std::uint32_t rounds = 0;    // waits that told of something
  struct Nested {
    int fd;
    std::uint32_t events;
    std::uint64_t data;
    SetAsleep counted{};
    std::uint64_t told = 0;  // edge-triggered: what it had when that was told
  };
  Nested first_nested[kUsualNested];
  Nested* nested = first_nested;
  int nested_count = 0;
  int nested_capacity = kUsualNested;
  std::atomic<std::uint32_t> epoch{0};  // another one each time that the object is used again
  std::atomic<int> descriptors{0};
  std::atomic<int> sleeping{0};  // threads in the kernel's wait, for this set or one around it
  std::atomic<int> napping{0};   // those of them that look at members which lack room now and then
  std::atomic<pid_t> other_holder{0};
  std::atomic<bool> inherited{false};   // over a fork, and not waited for since
  std::atomic<bool> has_others{false};  // it has, or had, something in it that is neither a connection nor a set
  std::uint64_t changes = 0;            // members that were added, or may be told again
  std::uint64_t last_kernel_ns = 0;
  std::uint64_t last_told_ns = 0;  // of all changes
  int waits_since_kernel = 0;
  bool kernel_is_due = false;  // rings had as much as the program takes at once
  std::uint64_t due_since = 0;
  std::uint64_t kernel_asked = 0;   // the moment at which the kernel last told all it had
  std::uint64_t kernel_looked = 0;  // the moment at which it was last asked
  std::uint64_t kernel_first = 0;   // what it told first then, if there was no place for more
  bool kernel_repeats = false;      // and it was the same the time before
  std::uint64_t heard_until = 0;    // the latest moment that is known
  Spinner spinner{settings().spin_ns};
  Yielder yielder;
  const Bell* bell = nullptr;  // in the kernel's set too, by kernel_data_of_bell(), on edges: nobody has to hear it
  std::atomic<pid_t> forked_to{0};  // a child that may wait for the kernel's set too; -1: more than one, or about to be
  bool had_children = false;        // before that
  EpollSet* next_free = nullptr;

 private:
  // Former ones stay mapped.
  bool grow_nested() {
    const std::size_t size = static_cast<std::size_t>(nested_capacity) * 2 * sizeof(Nested);
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    nested = std::copy_n(nested, nested_count, static_cast<Nested*>(memory)) - nested_count;
    nested_capacity *= 2;
    return true;
  }
  bool grow() {
    const std::size_t size = static_cast<std::size_t>(capacity) * 2 * sizeof(EpollItem*);
    void* const memory = ::mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    auto** const larger = static_cast<EpollItem**>(memory);
    std::copy_n(active.load(), capacity, larger);
    active.store(larger, std::memory_order_release);
    capacity *= 2;
    heard = larger + capacity;
    return true;
  }
};

// What the kernel's data of an event says: a member of ours, or none that is there still (`item` null: another thread
// has closed it), or something that the program put there itself.
struct Member {
  bool is_ours;
  EpollItem* item;
};
Member member_of(const EpollSet& set, std::uint64_t data);

// Of edge-triggered members: data that was not reported yet; all that is there is reported now.
bool has_new_data(const EpollItem& item);
void note_reported(EpollItem& item);
// Another number whenever something has come to the set, or room.
std::uint64_t contents(EpollSet& set, int depth = 0);
// The set in `set` that has something which is to be told; null: it has nothing.
EpollSet* nested_with_news(const EpollSet& set, const EpollSet::Nested& entry, int depth = 0);

// The connection's places in sets, each under its set's lock.
template <class Use>
void each_place(Connection& connection, Use&& use) {
  for (auto& place : connection.items) {
    EpollItem* const item = place.load();
    if (item == nullptr) continue;
    const BriefLock::Hold hold(item->set->lock);
    if (place.load() == item) use(*item->set, *item);
  }
}

}  // namespace viaduct::sockets
