#include "net/keeper.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint64_t kAtExit = 1'000'000'000;  // ns, of all engines

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

}  // namespace

Keeper& Keeper::process() {
  static Keeper* const keeper = [] {
    auto* const made = new Keeper;  // never destroyed: its thread goes on until the very end
    ::pthread_atfork(
        [] {
          process().mutex_.lock();
          for (auto& [kept, entry] : process().entries_) kept->before_fork();
        },
        [] {
          for (auto& [kept, entry] : process().entries_) kept->after_fork(false);
          process().mutex_.unlock();
        },
        [] {
          Keeper& mine = process();
          for (auto& [kept, entry] : mine.entries_) kept->after_fork(true);
          mine.entries_.clear();
          mine.running_ = false;
          mine.set_ = Fd();
          mine.bell_ = Fd();
          mine.mutex_.unlock();
        });
    (void)std::atexit([] {
      Keeper& mine = process();
      const std::lock_guard lock(mine.mutex_);
      const std::uint64_t end = now_ns() + kAtExit;
      for (auto& [kept, entry] : mine.entries_) kept->end_at_exit(end - std::min(end, now_ns()));
    });
    return made;
  }();
  return *keeper;
}

void Keeper::add(Kept& kept) {
  const std::lock_guard lock(mutex_);
  entries_.emplace(&kept, Entry{});
}

void Keeper::forget(Kept& kept) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(&kept);
  if (found == entries_.end()) return;
  watch(kept, found->second, false);
  entries_.erase(found);
}

void Keeper::start() {
  const std::lock_guard lock(mutex_);
  if (running_) return;
  set_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  bell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  // The program's signals are not for this thread.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    if (!set_ || !bell_ || ::epoll_ctl(set_.get(), EPOLL_CTL_ADD, bell_.get(), &wanted) != 0) {
      throw std::system_error(errno, std::generic_category());
    }
    std::thread thread([this] { run(); });
    (void)::pthread_setname_np(thread.native_handle(), "viaduct-keeper");
    thread.detach();
    running_ = true;
  } catch (const std::system_error& fault) {
    log::notice(std::string("no thread that looks after connections to other hosts while the program does not: ") +
                fault.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Keeper::call() {
  const std::uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);
}

void Keeper::watch(Kept& kept, Entry& entry, bool on) {
  if (entry.watched == on) return;
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  wanted.data.ptr = &kept;
  const int fd = kept.kept_descriptor();
  const bool done = ::epoll_ctl(set_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &wanted) == 0;
  entry.watched = on && done;
}

// When to look again.
std::uint64_t Keeper::look(bool called) {
  const std::lock_guard lock(mutex_);
  std::uint64_t next = UINT64_MAX;
  for (auto& [kept, entry] : entries_) {
    const std::uint64_t now = now_ns();
    const bool waits_for_call = entry.look_at == UINT64_MAX;
    if (entry.ready || now >= entry.look_at || (called && waits_for_call)) {
      entry.ready = false;
      const Kept::Next wish = kept->keep(now);
      entry.look_at = wish.look_at;
      watch(*kept, entry, wish.watch);
    }
    next = std::min(next, entry.look_at);
  }
  return next;
}

void Keeper::run() {
  bool called = true;
  for (;;) {
    const std::uint64_t next = look(called);
    called = false;
    const std::uint64_t now = now_ns();
    const timespec time = to_timespec(next > now ? next - now : 0);
    epoll_event events[16];
    const int count = ::epoll_pwait2(set_.get(), events, 16, next == UINT64_MAX ? nullptr : &time, nullptr);
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr == nullptr) {
        std::uint64_t rings = 0;
        (void)!::read(bell_.get(), &rings, sizeof rings);
        called = true;
      } else if (const auto found = entries_.find(static_cast<Kept*>(events[i].data.ptr)); found != entries_.end()) {
        found->second.ready = true;
      }
    }
  }
}

}  // namespace viaduct::net
