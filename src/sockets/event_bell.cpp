#include "sockets/event_bell.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "sockets/brief_lock.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/internal_fd.hpp"
#include "sockets/kernel.hpp"
#include "sockets/table.hpp"

namespace viaduct::sockets {

namespace {

struct ErrnoKeeper {
  int kept = errno;
  ~ErrnoKeeper() { errno = kept; }
};

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) < 0) return 0;
  return number;
}

bool write_to(int fd) {
  const std::uint64_t one = 1;
  return kernel::libc().write(fd, &one, sizeof one) == sizeof one;
}

// False: it is not that one, or cannot be rung.
// Its descriptor is not taken away meanwhile, if its id is looked at behind this.
class AtBell {
 public:
  explicit AtBell(const Bell& bell) : bell_(bell) { bell_.ringing.fetch_add(1); }
  ~AtBell() { bell_.ringing.fetch_sub(1); }
  AtBell(const AtBell&) = delete;
  AtBell& operator=(const AtBell&) = delete;

 private:
  const Bell& bell_;
};

bool ring_one(Bell& bell, std::uint64_t id) {
  const AtBell here(bell);
  return bell.id.load() == id && write_to(bell.fd.load());
}

// False: somebody is at it, and it stays.
bool close_bell(Bell& bell) {
  const std::uint64_t id = bell.id.exchange(0);
  if (bell.ringing.load() != 0) {
    bell.id.store(id);
    return false;
  }
  if (const int fd = bell.fd.exchange(-1); fd >= 0) close_internal(fd);
  return true;
}

// ---- our own

constexpr std::size_t kMostOwn = 256;  // as many as an id's low bits tell apart

struct Owned : Bell {
  bool in_use;
  std::atomic<bool> idle;  // a thread has it, and does not sleep with it
};

constinit BriefLock own_lock;
constinit Owned own_bells[kMostOwn] = {};

Owned* find_own(std::uint64_t id) {
  Owned& found = own_bells[id % kMostOwn];
  return id != 0 && found.id.load(std::memory_order_relaxed) == id ? &found : nullptr;
}

// Under the lock. Never with an id that it had before: whoever holds that one holds another eventfd.
bool make_bell(Owned& bell, std::size_t place) {
  const std::uint64_t random = random_number() & ~std::uint64_t{kMostOwn - 1};
  const int fd = random != 0 ? kernel::libc().eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  const int moved = fd >= 0 ? make_internal(fd, Need::some_day) : -1;
  if (moved < 0) return false;
  bell.fd.store(moved);
  bell.id.store(random | place);
  return true;
}

// Its descriptor was needed for something else, and there was no other number (bell_moved()).
bool is_lost(const Bell& bell) {
  return bell.fd.load(std::memory_order_relaxed) < 0;
}

thread_local const Bell* tls_bell [[gnu::tls_model("initial-exec")]] = nullptr;
thread_local bool tls_bell_in_use [[gnu::tls_model("initial-exec")]] = false;

pthread_key_t end_of_thread;
bool knows_ends_of_threads = false;

void thread_ends(void* bell) {
  if (std::exchange(tls_bell, nullptr) == bell) give_bell_back(static_cast<const Bell*>(bell));
}

// Null: none to be had. One that would stay with the thread's end, unused, is not had.
const Bell* bell_for_this_thread() {
  if (tls_bell != nullptr && !is_lost(*tls_bell)) return tls_bell;
  give_bell_back(std::exchange(tls_bell, nullptr));
  const Bell* const bell = knows_ends_of_threads ? take_bell() : nullptr;
  if (bell == nullptr || ::pthread_setspecific(end_of_thread, bell) != 0) return give_bell_back(bell), nullptr;
  return tls_bell = bell;
}

// ---- those of others

struct Held : Bell {
  std::atomic<std::uint32_t> rung_at;  // by our count of rings: the one that was rung longest ago makes room
  std::atomic<pid_t> owner;
};
constexpr std::size_t kWays = 4, kSets = 64;
constinit Held held[kSets][kWays] = {};
constinit std::atomic<std::uint32_t> held_count{0};
constinit std::atomic<std::uint32_t> rings{0};
constinit BriefLock held_lock;  // to put in and to take out

Held* places_of(std::uint64_t id) {
  return held[(id >> 8) % kSets];
}

// Under the lock. False: somebody is at it.
bool drop(Held& one) {
  if (!close_bell(one)) return false;
  held_count.fetch_sub(1);
  return true;
}

bool hold(std::uint64_t id, int fd, pid_t owner) {
  const BriefLock::Hold lock(held_lock);
  Held* place = nullptr;
  for (std::size_t i = 0; i < kWays; ++i) {
    Held& one = places_of(id)[i];
    const std::uint64_t there = one.id.load();
    if (there == id) return false;
    const auto age = [](const Held& some) { return rings.load() - some.rung_at.load(); };
    if (there == 0)
      place = &one;
    else if (place == nullptr || (place->id.load() != 0 && age(one) > age(*place)))
      place = &one;
  }
  if (place->id.load() != 0 && !drop(*place)) return false;
  place->fd.store(fd);
  place->owner.store(owner);
  place->rung_at.store(rings.load());
  place->id.store(id);
  held_count.fetch_add(1);
  return true;
}

bool ring_held(std::uint64_t id) {
  for (std::size_t i = 0; i < kWays; ++i) {
    Held& one = places_of(id)[i];
    if (one.id.load(std::memory_order_relaxed) != id) continue;
    const bool rung = ring_one(one, id);
    one.rung_at.store(rings.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
    return rung;
  }
  return false;
}

// ---- the mailbox

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;
};

Name name_of(std::uint64_t mailbox) {
  Name name;
  name.address.sun_family = AF_UNIX;
  const int length = std::snprintf(name.address.sun_path + 1, sizeof name.address.sun_path - 1,
                                   "viaduct-bells-1/%016" PRIx64, mailbox);  // abstract: gone with its socket
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  return name;
}

constinit BriefLock mailbox_lock;
constinit std::atomic<std::uint64_t> mailbox_name{0};
constinit std::atomic<int> mailbox_fd{-1};

bool make_mailbox() {
  const std::uint64_t number = random_number();
  const int fd = number == 0 ? -1 : kernel::libc().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const int moved = make_internal(fd, Need::some_day);
  if (moved < 0) return false;
  const int yes = 1;
  const Name name = name_of(number);
  if (kernel::libc().setsockopt(moved, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0 ||
      ::bind(moved, reinterpret_cast<const sockaddr*>(&name.address), name.size) != 0) {
    close_internal(moved);
    return false;
  }
  mailbox_fd.store(moved);
  mailbox_name.store(number);
  return true;
}

struct Letter {
  std::uint64_t id = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  iovec piece{&id, sizeof id};
  msghdr message{};
  Letter() {
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
};

struct Passed {
  int fd = -1;
  ucred sender{};
};

// Of a letter: the descriptor, and who sent it. Anybody may write to the mailbox: of several descriptors, for which
// there may be room, all but one are closed.
Passed passed_with(msghdr& message) {
  Passed passed;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS && part->cmsg_len == CMSG_LEN(sizeof(ucred)))
      std::memcpy(&passed.sender, CMSG_DATA(part), sizeof(ucred));
    if (part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= part->cmsg_len; at += sizeof(int)) {
      if (passed.fd >= 0) kernel::libc().close(passed.fd);
      std::memcpy(&passed.fd, CMSG_DATA(part) + at, sizeof(int));
    }
  }
  return passed;
}

bool is_eventfd(int fd) {
  char path[32], target[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(path, target, sizeof target);
  constexpr char kWanted[] = "anon_inode:[eventfd]";
  return length == sizeof kWanted - 1 && std::memcmp(target, kWanted, sizeof kWanted - 1) == 0;
}

// What has come; no more than there may be, whoever goes on sending.
void open_letters() {
  constexpr int kAtOnce = 64;
  const BriefLock::Hold lock(mailbox_lock);  // it is not given up, and its number another's, meanwhile
  const int fd = mailbox_fd.load();
  for (int count = 0; fd >= 0 && count < kAtOnce; ++count) {
    Letter letter;
    const ssize_t got = kernel::libc().recvmsg(fd, &letter.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return;
    const Passed passed = passed_with(letter.message);
    if (passed.fd < 0) continue;
    const bool good = got == sizeof letter.id && letter.id != 0 && passed.sender.pid > 0 &&
                      passed.sender.uid == ::geteuid() && is_eventfd(passed.fd);
    const int kept = good ? make_internal(passed.fd, Need::some_day) : (kernel::libc().close(passed.fd), -1);
    if (kept >= 0 && !hold(letter.id, kept, passed.sender.pid)) close_internal(kept);
  }
}

}  // namespace

void prepare_bells() {
  knows_ends_of_threads = ::pthread_key_create(&end_of_thread, thread_ends) == 0;
}

const Bell* take_bell() {
  const ErrnoKeeper keeper;
  if (in_borrowed_memory()) return nullptr;
  const BriefLock::Hold lock(own_lock);
  for (std::size_t i = 0; i < kMostOwn; ++i) {
    Owned& bell = own_bells[i];
    if (bell.in_use) continue;
    if (is_lost(bell) || bell.id.load() == 0)
      if (!make_bell(bell, i)) return nullptr;
    bell.in_use = true;
    bell.idle.store(false);
    return &bell;
  }
  return nullptr;
}

void give_bell_back(const Bell* bell) {
  if (bell == nullptr) return;
  const BriefLock::Hold lock(own_lock);
  const_cast<Owned*>(static_cast<const Owned*>(bell))->in_use = false;
}

BellOfThread::BellOfThread(bool wanted) {
  if (!wanted || tls_bell_in_use) return;
  const Bell* const bell = bell_for_this_thread();
  if (bell == nullptr) return;
  const_cast<Owned*>(static_cast<const Owned*>(bell))->idle.store(false);  // before the look: pairs with close_idle()
  if (bell->id.load() == 0) return;                                        // given up just now
  bell_ = bell;
  tls_bell_in_use = true;
}

void hear_bell(const Bell& bell) {
  std::uint64_t times;
  const ErrnoKeeper keeper;
  const AtBell here(bell);
  if (bell.id.load() != 0) (void)!kernel::libc().read(bell.fd.load(), &times, sizeof times);
}

void BellOfThread::hear() const {
  if (bell_ != nullptr) hear_bell(*bell_);
}

void BellOfThread::leave() {
  if (bell_ == nullptr) return;
  const_cast<Owned*>(static_cast<const Owned*>(bell_))->idle.store(true);
  bell_ = nullptr;
  tls_bell_in_use = false;
}

bool ring_bell(std::uint64_t id) {
  const ErrnoKeeper keeper;
  const Uncancelled here;  // whoever is rung for is disarmed
  if (Bell* const own = find_own(id)) return ring_one(*own, id);
  if (ring_held(id)) return true;
  if (mailbox_fd.load(std::memory_order_relaxed) < 0) return false;
  open_letters();
  return ring_held(id);
}

std::uint64_t own_mailbox() {
  const ErrnoKeeper keeper;
  if (const std::uint64_t known = mailbox_name.load(std::memory_order_relaxed); known != 0) return known;
  if (in_borrowed_memory()) return 0;
  const BriefLock::Hold lock(mailbox_lock);
  if (mailbox_name.load() == 0) (void)make_mailbox();
  return mailbox_name.load();
}

void pass_bell(std::uint64_t id, std::uint64_t mailbox) {
  const ErrnoKeeper keeper;
  const Uncancelled here;
  const Bell* const bell = find_own(id);
  if (bell == nullptr || mailbox == 0) return;
  const AtBell at_it(*bell);
  if (bell->id.load() != id) return;
  const int passed = bell->fd.load();
  const int fd = kernel::libc().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  Name name = name_of(mailbox);
  Letter letter;
  letter.id = id;
  letter.message.msg_name = &name.address;
  letter.message.msg_namelen = name.size;
  letter.message.msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* const part = CMSG_FIRSTHDR(&letter.message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &passed, sizeof(int));
  (void)!kernel::libc().sendmsg(fd, &letter.message, MSG_DONTWAIT | MSG_NOSIGNAL);
  kernel::libc().close(fd);
}

void forget_bells_of_the_dead() {
  if (held_count.load(std::memory_order_relaxed) == 0 || in_borrowed_memory()) return;
  const ErrnoKeeper keeper;
  const BriefLock::Hold lock(held_lock);
  for (auto& set : held)
    for (Held& one : set)
      if (one.id.load() != 0 && ::kill(one.owner.load(), 0) != 0 && errno == ESRCH) (void)drop(one);
}

namespace {

// Under the lock. Who begins to sleep with it says so and then looks at the id; here the id goes and then that is
// looked at.
bool close_idle(Owned& bell) {
  const auto nobody_sleeps = [&] { return !bell.in_use || bell.idle.load(); };
  if (!nobody_sleeps()) return false;
  const std::uint64_t id = bell.id.exchange(0);
  if (!nobody_sleeps() || bell.ringing.load() != 0) {
    bell.id.store(id);
    return false;
  }
  if (const int fd = bell.fd.exchange(-1); fd >= 0) close_internal(fd);
  return true;
}

}  // namespace

bool give_up_bells() {
  const int before = internal_count();
  {
    const BriefLock::Hold lock(held_lock);
    for (auto& set : held)
      for (Held& one : set)
        if (one.id.load() != 0) (void)drop(one);
  }
  if (!tls_bell_in_use) give_bell_back(std::exchange(tls_bell, nullptr));
  {
    const BriefLock::Hold lock(own_lock);
    for (Owned& bell : own_bells)
      if (bell.id.load() != 0) (void)close_idle(bell);
  }
  const BriefLock::Hold lock(mailbox_lock);
  mailbox_name.store(0);
  if (const int fd = mailbox_fd.exchange(-1); fd >= 0) close_internal(fd);
  return internal_count() < before;
}

namespace {

// A thread may have seen the former number, and writes to it now: it is not let go before. Who finds itself there,
// under a signal handler, cannot wait.
void move_bell(Bell& bell, int fd, int moved) {
  constexpr int kMostTurns = 1000;
  if (int expected = fd; !bell.fd.compare_exchange_strong(expected, moved)) return;
  for (int turn = 0; turn < kMostTurns && bell.ringing.load() != 0; ++turn) ::sched_yield();
}

void forget_bell(Bell& bell) {
  bell.ringing.store(0);
  bell.id.store(0);
  if (const int fd = bell.fd.exchange(-1); fd > 0) close_internal(fd);
}

}  // namespace

void bell_moved(int fd, int moved) {
  for (Owned& bell : own_bells) move_bell(bell, fd, moved);
  for (auto& set : held)
    for (Held& one : set) move_bell(one, fd, moved);
  if (mailbox_fd.load() == fd) mailbox_fd.store(moved);
}

// The parent's bells are the parent's, and those that it holds were passed to it.
void bells_after_fork_in_child() {
  own_lock.reset();
  held_lock.reset();
  mailbox_lock.reset();
  for (Owned& bell : own_bells) {
    forget_bell(bell);
    bell.in_use = false;
  }
  for (auto& set : held)
    for (Held& one : set) forget_bell(one);
  held_count.store(0);
  if (const int fd = mailbox_fd.exchange(-1); fd >= 0) close_internal(fd);
  mailbox_name.store(0);
  tls_bell = nullptr;
  tls_bell_in_use = false;
}

}  // namespace viaduct::sockets
