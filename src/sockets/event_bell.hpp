// Bells that cost less to ring than a byte on TCP: eventfds. A thread that sleeps in recv(), poll() or select() waits
// for one beside its sockets; an epoll set has one among its members. The armed word's neighbour (EventBell) says
// which.
//
// Whoever is to ring one must hold it. Processes pass them to each other when they turn out to be wanted: a waker that
// finds a sleeper whose bell it does not hold rings over TCP and leaves the name of its *mailbox*, an abstract UNIX
// datagram socket. The sleeper, awake, sends the eventfd there; the waker looks into its mailbox when it next finds a
// bell that it does not hold. Nobody waits for anybody, and what does not arrive is rung for over TCP as before. A bell
// serves all connections between two processes, and stays with its process when the thread ends that slept with it.
//
// Only processes of one user pass them: who holds a bell could take rings from it that others meant.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace viaduct::sockets {

// An eventfd that threads of this process may ring at any time. A thread counts itself before it looks at the id and
// uses the descriptor; whoever takes either away looks at that count behind it. So nothing is ever written to a number
// that has become something else.
struct Bell {
  std::atomic<std::uint64_t> id;  // 0: there is none
  std::atomic<int> fd;
  mutable std::atomic<std::uint32_t> ringing;  // threads that may be about to use it
};

// Once, before the program runs: what a signal handler must not be the first to do.
void prepare_bells();

// For an epoll set, for as long as it exists. Null: none to be had.
const Bell* take_bell();
void give_bell_back(const Bell* bell);

// The calling thread's, for one sleep. None where it is inside another such sleep (under a signal handler), which would
// miss what this one takes, nor where there is none to be had.
class BellOfThread {
 public:
  explicit BellOfThread(bool wanted = true);
  ~BellOfThread() { leave(); }
  BellOfThread(const BellOfThread&) = delete;
  BellOfThread& operator=(const BellOfThread&) = delete;
  std::uint64_t id() const { return bell_ != nullptr ? bell_->id.load(std::memory_order_relaxed) : 0; }
  int fd() const { return bell_ != nullptr ? bell_->fd.load(std::memory_order_relaxed) : -1; }
  void hear() const;  // it has rung: the next sleep is not to end at once
  void leave();       // the sleep is over, or jumped out of

 private:
  const Bell* bell_ = nullptr;
};

// Wakes whoever sleeps with it. False: this process does not hold it.
bool ring_bell(std::uint64_t id);
// It has rung, and whoever it was for knows.
void hear_bell(const Bell& bell);

// Where it is to be sent to, to be held from then on. 0: nowhere.
std::uint64_t own_mailbox();
// To a process that wants it. A bell that is not one of ours is not sent.
void pass_bell(std::uint64_t id, std::uint64_t mailbox);

// Those of processes that are gone are closed.
void forget_bells_of_the_dead();
// The program needs descriptors: those go that nobody sleeps with, and the mailbox. False: there were none.
bool give_up_bells();
// A number of ours is another one from now on; -1: none.
void bell_moved(int fd, int moved);
void bells_after_fork_in_child();

}  // namespace viaduct::sockets
