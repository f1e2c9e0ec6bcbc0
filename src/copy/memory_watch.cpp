#include "copy/memory_watch.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <system_error>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace viaduct::copy {

namespace {

constexpr std::uint64_t kFeatures =
    UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_PAGEFAULT_FLAG_WP;

// A child inherits the descriptor, which still stands for its parent's memory: it is closed before anybody there can
// use it. Plain numbers, because the child may take no lock.
std::array<std::atomic<int>, 16> descriptors_to_close_in_child{};  // descriptor + 1; 0: none

void remember_descriptor(int fd) {
  static const int hooked = ::pthread_atfork(nullptr, nullptr, [] {
    for (auto& entry : descriptors_to_close_in_child)
      if (const int number = entry.exchange(0); number != 0) ::close(number - 1);
  });
  (void)hooked;
  for (auto& entry : descriptors_to_close_in_child) {
    int none = 0;
    if (entry.compare_exchange_strong(none, fd + 1)) return;
  }
}

void forget_descriptor(int fd) {
  for (auto& entry : descriptors_to_close_in_child) {
    int number = fd + 1;
    if (entry.compare_exchange_strong(number, 0)) return;
  }
}

Result<Fd> open_userfaultfd() {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  Fd fd(static_cast<int>(::syscall(SYS_userfaultfd, kFlags | UFFD_USER_MODE_ONLY)));
  if (!fd && errno == EINVAL) fd.reset(static_cast<int>(::syscall(SYS_userfaultfd, kFlags)));  // before Linux 5.11
  if (!fd) return Error::from_errno("userfaultfd");
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kFeatures;
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0)
    return Error(ENOTSUP, "userfaultfd of this kernel does not report unmapping, or has no write-protect mode");
  return fd;
}

}  // namespace

AddressRange pages_of(const void* address, std::size_t length) {
  static const std::uintptr_t page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {begin & ~(page - 1), (begin + length + page - 1) & ~(page - 1)};
}

Result<std::unique_ptr<MemoryWatch>> MemoryWatch::start(std::mutex& mutex, Listener& listener) {
  VIADUCT_TRY(Fd faults, open_userfaultfd());
  Fd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return Error::from_errno("eventfd");
  std::unique_ptr<MemoryWatch> watch(new MemoryWatch(std::move(faults), std::move(stop), mutex, listener));
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the host program's signals are not for this thread
  int fault = 0;
  try {
    watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    fault = error.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (fault != 0) return Error::from_code(fault, "thread of the memory watch");
  return watch;
}

MemoryWatch::MemoryWatch(Fd faults, Fd stop, std::mutex& mutex, Listener& listener)
    : faults_(std::move(faults)), stop_(std::move(stop)), mutex_(mutex), listener_(listener), owner_(::getpid()) {
  remember_descriptor(faults_.get());
}

MemoryWatch::~MemoryWatch() {
  if (::getpid() != owner_) {
    (void)faults_.release();  // closed at the fork; the number may be somebody else's by now
    if (thread_.joinable()) thread_.detach();
    return;
  }
  // A thread that is inside munmap needs its event read even now: a child may hold the descriptor open for a moment,
  // and then closing ours would not let it go.
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (drain()) break;
    }
    ::sched_yield();
  }
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  forget_descriptor(faults_.get());
}

bool MemoryWatch::watch(const AddressRange& range) {
  uffdio_register request{};
  request.range = {range.begin, range.length()};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  return ::ioctl(faults_.get(), UFFDIO_REGISTER, &request) == 0;
}

bool MemoryWatch::unwatch(const AddressRange& range) {
  uffdio_range request{range.begin, range.length()};
  return range.length() == 0 || ::ioctl(faults_.get(), UFFDIO_UNREGISTER, &request) == 0;
}

// A request that can only be refused: with EAGAIN while mappings change, which is looked at first, else with EINVAL.
bool MemoryWatch::change_under_way() const {
  uffdio_zeropage nothing{};
  return ::ioctl(faults_.get(), UFFDIO_ZEROPAGE, &nothing) != 0 && errno == EAGAIN;
}

bool MemoryWatch::drain() {
  if (!change_under_way()) return true;  // nothing can be waiting to be read either
  read_events();
  return !change_under_way();
}

void MemoryWatch::read_events() {
  uffd_msg event;
  while (::read(faults_.get(), &event, sizeof event) == sizeof event) {
    switch (event.event) {
      case UFFD_EVENT_UNMAP:
      case UFFD_EVENT_REMOVE:
        listener_.memory_changed({event.arg.remove.start, event.arg.remove.end});
        break;
      case UFFD_EVENT_REMAP: {
        // The new place is still registered although nobody asked for it, and may meanwhile be yet another mapping.
        const AddressRange to{event.arg.remap.to, event.arg.remap.to + event.arg.remap.len};
        listener_.memory_changed({event.arg.remap.from, event.arg.remap.from + event.arg.remap.len});
        listener_.memory_changed(to);
        (void)unwatch(to);
        break;
      }
      default:
        break;
    }
  }
}

void MemoryWatch::run() {
  ::pthread_setname_np(::pthread_self(), "viaduct-watch");
  std::array<pollfd, 2> waiting = {{{faults_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  for (;;) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting[1].revents != 0) return;
    {
      const std::lock_guard lock(mutex_);
      read_events();
    }
    listener_.changes_taken_in();
  }
}

}  // namespace viaduct::copy
