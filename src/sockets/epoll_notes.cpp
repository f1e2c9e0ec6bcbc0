// What a connection tells the sets that it is in.
#include "base/spin.hpp"
#include "sockets/epoll_set_state.hpp"

namespace viaduct::sockets {

void sets_note_attached(Connection& connection) {
  each_place(connection, [](EpollSet& set, EpollItem& item) {
    set.activate(item);
    if (set.sleeping.load() != 0) set.arm(item);
  });
}

void sets_note_blocked(Connection& connection) {
  each_place(connection, [](EpollSet& set, EpollItem& item) {
    if ((item.events & kEpollRoom) == 0) return;
    item.room_told = false;
    set.activate(item);
    if (set.napping.load() == 0) end_sleep(set, item);  // who sleeps must look whether anybody reads at all
  });
}

// May be called under the lock of one of the sets: then another's is not waited for.
void sets_note_back(Connection& connection) {
  constexpr int kTries = 1000;
  if (connection.outgoing().path.mode.load(std::memory_order_relaxed) != kBack ||
      connection.sets_know_back.load(std::memory_order_relaxed) || connection.sets_know_back.exchange(true)) [[likely]]
    return;
  for (auto& place : connection.items) {
    EpollItem* const item = place.load();
    if (item == nullptr) continue;
    BriefLock& lock = item->set->lock;
    const bool held = lock.is_mine();
    bool taken = held;
    for (int tries = 0; !taken && tries < kTries; ++tries) {
      taken = lock.try_acquire();
      if (!taken) cpu_relax();
    }
    if (taken && place.load() == item && (item->events & kEpollRoom) != 0 && !item->deleted) {
      item->set->activate(*item);
      end_sleep(*item->set, *item);
    }
    if (taken && !held) lock.release();
    if (!taken) connection.sets_know_back.store(false);  // the next time
  }
}

void sets_note_read(Connection& connection) {
  connection.bell_shared.store(false, std::memory_order_relaxed);
  each_place(connection, [](EpollSet& set, EpollItem& item) {
    if (set.sleeping.load() == 0) set.activate(item);
  });
}

void sets_note_resumed(Connection& connection) {
  each_place(connection, [](EpollSet& set, EpollItem& item) {
    item.still = {};
    set.activate(item);
    end_sleep(set, item);
  });
}

}  // namespace viaduct::sockets
