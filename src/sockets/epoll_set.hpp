// An epoll set of this process. The kernel's set stays complete and right: every descriptor is in it as the program
// wants, so other processes, nested sets and sleeping work as ever, woken by doorbells. What this adds is looking at
// rings before asking the kernel.
//
// A member connection that lately had something is *active*: its ring is looked at on every wait. The others are
// *armed*: their peers ring when they send. An idle connection costs nothing, however many there are.
//
// While a member is active the kernel is told of the program's changes (EPOLL_CTL_MOD and DEL) only before the program
// sleeps, or once in a while: many programs change their mind twice per message. And it is not asked for EPOLLOUT while
// the ring is used, because TCP always has room then.
//
// The kernel reports a member as a number of ours (Item::id), because the event carries nothing else to know it by.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"
#include "sockets/bell.hpp"
#include "sockets/connection.hpp"
#include "sockets/fd_map.hpp"
#include "sockets/sleep_on_stack.hpp"

namespace viaduct::sockets {

class EpollSet;

// What the kernel says of data and of room, in both its words; a program asks for either.
constexpr std::uint32_t kEpollData = EPOLLIN | EPOLLRDNORM;
// As EpollItem::kernel_events: it has told once what it was to tell once, and says nothing. Never the program's.
constexpr std::uint32_t kEpollSpent = EPOLLONESHOT | EPOLLEXCLUSIVE;
constexpr std::uint32_t kEpollRoom = EPOLLOUT | EPOLLWRNORM;

struct alignas(kLine) EpollItem {
  // What every look needs, in a line.
  Stillness still{};  // its ring had nothing, and nothing but data is wanted
  Connection* connection = nullptr;
  std::uint32_t events = 0;
  int fd = -1;
  bool active = false;
  bool armed = false;      // counted among the connection's sleepers
  bool fired = false;      // EPOLLONESHOT: nothing more until the program says so
  bool deleted = false;    // by the program; the kernel is told before it is next asked
  bool room_told = false;  // room in the ring was reported (edge-triggered)
  bool orphan = false;  // its number was closed, a duplicate (`fd`) keeps it in the kernel's set: no change reaches it

  // What a look has found, and what was told.
  bool heard_news = false;
  bool heard_after_tcp = false;   // its sender had used TCP before, and the kernel was not asked since
  std::uint32_t heard_in = 0;     // the round in which its ring was found to have something
  std::uint32_t heard_bits = 0;   // what
  std::uint64_t heard_since = 0;  // the moment at which it was sent, or at which it was told and left
  std::uint64_t heard_slot = 0;   // in which slot
  std::uint32_t heard_taken = 0;  // how much of it was taken already
  std::uint32_t told_taken = 0;   // the same of when it was last reported, where order matters
  std::uint64_t told_slot = UINT64_MAX;
  std::uint64_t told = 0;   // what was the latest moment then
  std::uint32_t round = 0;  // of waiting in which that was
  int place = 0;            // among its events
  std::uint64_t data = 0;
  std::uint32_t idle_sleeps = 0;
  std::uint32_t resumed = 0;   // Connection::resumed, then
  std::uint64_t reported = 0;  // slots up to here were reported (edge-triggered)

  EpollSet* set = nullptr;
  int epoll = -1;
  int id = 0;
  std::uint32_t uses = 0;           // of this object so far, as many as an event's data can tell
  std::uint32_t kernel_events = 0;  // what the kernel was told last
  bool ended = false;               // that the peer sends no more was told
  bool fresh = true;                // nothing was told since the program last said what it wants
  EpollItem* next_free = nullptr;
};
static_assert(offsetof(EpollItem, heard_in) == kLine);

extern FdMap<EpollSet> epoll_sets;

inline EpollSet* find_set(int fd) {
  return epoll_sets.find(fd);
}
inline bool is_epoll_set(int fd) {
  return find_set(fd) != nullptr;
}

void adopt_set(int fd);
void duplicate_set(int from, int to);
void forget_set(int fd);
void forget_sets_in(unsigned first, unsigned last);

// A descriptor is closed: the kernel takes it out of all sets, or keeps it there while a duplicate lives, in this
// process
// (-1: none) or another.
void forget_in_sets(Connection& connection, int fd, int duplicate);
// The socket stays open, and in its sets, but its connection ends: taken out of them, and put into them again.
class Memberships {
 public:
  Memberships(Connection& connection, int fd);
  void renew() const;

 private:
  struct Membership {
    int epoll;
    bool fired;
    epoll_event event;
  };
  int fd_;
  int count_ = 0;
  Membership places_[Connection::kMostSets];
};
// Something else is about to get the number: of members that were deleted the kernel must know.
void tell_of_deletions(Connection& connection, int fd);

int set_control(EpollSet& set, int epoll, int operation, int fd, epoll_event* event);
// `exactly`: the kernel knows limits of nanoseconds, for the program has one.
int set_wait(EpollSet& set, int epoll, epoll_event* events, int most, Deadline deadline, const sigset_t* mask,
             bool exactly = false);

// For those who wait for the set itself (nested sets, poll, select).
bool set_ready(EpollSet& set, int depth = 0);
// Where the kernel says that the set, which is `fd`, has something: that may be a bell whose bytes were read before it
// came. `asleep`: the caller is one of those who sleep on the set, still.
bool set_ready_after_all(EpollSet& set, int fd, bool asleep, int depth = 0);
void set_tell_kernel(EpollSet& set, int depth = 0);  // of changes that it does not know yet
void set_expect(EpollSet& set, Sleep sleep = {});
void set_stop_expecting(EpollSet& set);
// How long a sleep on it may last without another look, in milliseconds, because of members that lack room; 0: they do
// not. And the look (relieve_stalled()).
int nap_for_room(EpollSet& set, int depth = 0);
void set_leave(EpollSet& set);  // one of EpollSet::sleeping less; the last one stops expecting

// Somebody sleeps on a set from outside it, in poll or in a set around it. The set may be closed meanwhile.
class SetAsleep {
 public:
  SetAsleep() = default;
  explicit SetAsleep(EpollSet& set);
  bool is(const EpollSet& set) const;
  void leave();

 private:
  EpollSet* set_ = nullptr;
  std::uint32_t epoch_ = 0;
};

// The same inside the set's own wait, for as long as it takes.
class WhileAsleep final : SleepOnStack {
 public:
  explicit WhileAsleep(EpollSet& set);
  ~WhileAsleep() { disarm(); }
  bool alone() const { return alone_; }  // nobody slept on it before
  void only_naps();                      // and looks at members that lack room in between

 private:
  void disarm() override;
  EpollSet& set_;
  SetAsleep counted_;
  bool alone_;
  bool naps_ = false;
};

// The connection has become attached; a send found no room; it was read past a set that waited for its doorbell; its
// ring is read again.
void sets_note_attached(Connection& connection);
void sets_note_blocked(Connection& connection);
void sets_note_read(Connection& connection);
void sets_note_resumed(Connection& connection);  // Connection::resumed
// Sending goes over TCP, if so: the kernel is to tell of room, for which it was not asked before.
void sets_note_back(Connection& connection);

void sets_before_fork();
void sets_after_fork_in_parent(pid_t child);  // negative: there is none
void sets_after_fork_in_child(pid_t parent);

}  // namespace viaduct::sockets
