#include "copy/pin_cache.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "base/log.hpp"

namespace viaduct::copy {

namespace {

// How often a hit waits for a mapping change of another thread to be reported before it is given up and pinned anew.
// The change is past its system call's work by then: it takes as long as that thread needs to run again.
constexpr int kPatience = 500;

}  // namespace

PinCache::PinCache(Pinner& pinner, Settings settings)
    : pinner_(pinner),
      budget_(settings.budget),
      reap_wanted_(std::move(settings.reap_wanted)),
      owner_(::getpid()),
      keep_(settings.keep) {
  if (keep_ != Keep::watched || budget_ == 0) return;
  auto watch = MemoryWatch::start(mutex_, *this);
  if (watch) {
    watch_ = std::move(*watch);
    return;
  }
  keep_ = Keep::stable;
  why_not_watched_ = watch.error().message();
  log::detail(fmt::format("pinned memory is not kept between copies, except that of adma_alloc: {}", why_not_watched_));
}

PinCache::~PinCache() {
  if (::getpid() != owner_) return;
  for (;;) {
    std::size_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (count_ == 0) break;
      number = order_[count_ - 1];
      assert(entries_[number].idle() && "a Pin outlives its cache");
      start_leaving(number);
    }
    unpin(number);
  }
}

// ---- the table: entries have fixed numbers, order_ sorts them by address

std::size_t PinCache::first_ending_after(std::uintptr_t address) const {
  const auto found = std::partition_point(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count_),
                                          [&](std::uint16_t number) { return entries_[number].range.end <= address; });
  return static_cast<std::size_t>(found - order_.begin());
}

std::size_t PinCache::make(const AddressRange& range, bool may_keep) {
  const auto free =
      std::find_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.state == State::free; });
  const auto number = static_cast<std::size_t>(free - entries_.begin());
  const bool stable = may_keep && is_stable(range);
  const bool watched = may_keep && !stable && watch_ != nullptr && watch_->watch(range);
  *free = {.range = range,
           .last_used = ++uses_,
           .users = 1,
           .state = State::pinning,
           .keep = may_keep && (stable || watched || keep_ == Keep::everything),
           .watched = watched};
  if (!free->keep) ++doomed_;
  const std::size_t at = first_ending_after(range.begin);
  std::copy_backward(order_.begin() + static_cast<std::ptrdiff_t>(at),
                     order_.begin() + static_cast<std::ptrdiff_t>(count_),
                     order_.begin() + static_cast<std::ptrdiff_t>(count_ + 1));
  order_[at] = static_cast<std::uint16_t>(number);
  ++count_;
  bytes_ += range.length();
  return number;
}

void PinCache::remove(std::size_t number) {
  Entry& entry = entries_[number];
  if (!entry.keep) --doomed_;
  bytes_ -= entry.range.length();
  const std::size_t at = first_ending_after(entry.range.begin);
  std::copy(order_.begin() + static_cast<std::ptrdiff_t>(at + 1), order_.begin() + static_cast<std::ptrdiff_t>(count_),
            order_.begin() + static_cast<std::ptrdiff_t>(at));
  --count_;
  entry = {};
}

void PinCache::doom(Entry& entry) {
  if (!entry.keep) return;
  entry.keep = false;
  ++doomed_;
}

void PinCache::stop_watching(Entry& entry) {
  if (!std::exchange(entry.watched, false)) return;
  (void)watch_->unwatch(entry.range);
}

std::size_t PinCache::start_leaving(std::size_t number) {
  stop_watching(entries_[number]);
  entries_[number].state = State::leaving;
  return number;
}

std::size_t PinCache::least_recently_used() const {
  std::size_t oldest = kMostRanges;
  for (std::size_t i = 0; i < count_; ++i) {
    const std::size_t number = order_[i];
    if (entries_[number].idle() && (oldest == kMostRanges || entries_[number].last_used < entries_[oldest].last_used))
      oldest = number;
  }
  return oldest;
}

std::size_t PinCache::next_to_go() const {
  if (doomed_ > 0)
    for (std::size_t i = 0; i < count_; ++i)
      if (const Entry& entry = entries_[order_[i]]; entry.idle() && !entry.keep) return order_[i];
  return bytes_ > budget_ ? least_recently_used() : kMostRanges;
}

// ---- pinning

PinCache::Attempt PinCache::attempt(const AddressRange& range, bool patient, std::size_t& number) {
  const std::size_t at = first_ending_after(range.begin);
  if (at < count_ && entries_[order_[at]].range.contains(range)) {
    number = order_[at];
    Entry& entry = entries_[number];
    const bool settled = !entry.watched || watch_->drain();  // which may doom the entry
    if (entry.state == State::pinned && entry.keep) {
      if (settled) {
        ++entry.users;
        entry.last_used = ++uses_;
        return Attempt::hit;
      }
      if (patient) return Attempt::wait;
    }
  }
  for (std::size_t i = at; i < count_ && entries_[order_[i]].range.begin < range.end; ++i) {
    const Entry& entry = entries_[order_[i]];
    if (entry.state == State::leaving) return Attempt::wait;
    if (!entry.idle()) return Attempt::busy;
    return number = start_leaving(order_[i]), Attempt::evicted;
  }
  const bool may_keep = range.length() <= budget_;
  if (count_ == kMostRanges || (may_keep && bytes_ + range.length() > budget_)) {
    if (const std::size_t oldest = least_recently_used(); oldest != kMostRanges) {
      evicted_.add();
      return number = start_leaving(oldest), Attempt::evicted;
    }
    if (count_ == kMostRanges) return Attempt::full;
  }
  number = make(range, may_keep);
  return Attempt::made;
}

PinCache::Pin PinCache::pin(const void* address, std::size_t length) {
  const AddressRange range = pages_of(address, length);
  for (int round = 0;; ++round) {
    std::size_t number = 0;
    Attempt outcome;
    {
      const std::lock_guard lock(mutex_);
      outcome = attempt(range, round < kPatience, number);
    }
    switch (outcome) {
      case Attempt::hit:
        hits_.add();
        return Pin(this, number);
      case Attempt::made:
        return pin_made(number);
      case Attempt::evicted:
        unpin(number);
        break;
      case Attempt::wait:
        ::sched_yield();
        break;
      case Attempt::busy:
        return Pin(EBUSY);
      case Attempt::full:
        return Pin(ENOSPC);
    }
  }
}

// Watched before it is pinned: what happens to the mapping in between dooms the entry.
PinCache::Pin PinCache::pin_made(std::size_t number) {
  misses_.add();
  const int error = pinner_.register_range(entries_[number].range);
  const std::lock_guard lock(mutex_);
  if (error == 0) {
    entries_[number].state = State::pinned;
    return Pin(this, number);
  }
  stop_watching(entries_[number]);
  remove(number);
  return Pin(error);
}

void PinCache::unpin(std::size_t number) {
  pinner_.unregister_range(entries_[number].range);
  const std::lock_guard lock(mutex_);
  remove(number);
}

void PinCache::release(std::size_t number) {
  {
    const std::lock_guard lock(mutex_);
    --entries_[number].users;
    if (doomed_ == 0 && bytes_ <= budget_) return;
  }
  reap();
}

void PinCache::reap() {
  for (;;) {
    std::size_t number = kMostRanges;
    {
      const std::lock_guard lock(mutex_);
      number = next_to_go();
      if (number == kMostRanges) return;
      start_leaving(number);
    }
    unpin(number);
  }
}

// ---- what changes

void PinCache::memory_changed(const AddressRange& range) {
  for (std::size_t i = first_ending_after(range.begin); i < count_; ++i) {
    Entry& entry = entries_[order_[i]];
    if (entry.range.begin >= range.end) break;
    if (entry.watched && !watch_->unwatch(entry.range)) {
      // Not one stretch of watchable memory any more: what is left of it lies on either side of the change.
      if (entry.range.begin < range.begin) (void)watch_->unwatch({entry.range.begin, range.begin});
      if (entry.range.end > range.end) (void)watch_->unwatch({range.end, entry.range.end});
    }
    entry.watched = false;
    if (entry.keep) invalidated_.add();
    doom(entry);
  }
}

void PinCache::changes_taken_in() {
  {
    const std::lock_guard lock(mutex_);
    if (doomed_ == 0) return;
  }
  reap_wanted_();
}

void PinCache::invalidate(const void* address, std::size_t length) {
  {
    const std::lock_guard lock(mutex_);
    memory_changed(pages_of(address, length));
  }
  changes_taken_in();
}

bool PinCache::is_stable(const AddressRange& range) const {
  const auto end = stable_.begin() + static_cast<std::ptrdiff_t>(stable_count_);
  return std::any_of(stable_.begin(), end, [&](const AddressRange& stable) { return stable.contains(range); });
}

// Where there is no room left for it the range is treated as ordinary memory.
void PinCache::declare_stable(const void* address, std::size_t length) {
  const std::lock_guard lock(mutex_);
  if (stable_count_ < kMostStable) stable_[stable_count_++] = pages_of(address, length);
}

void PinCache::retract(const void* address, std::size_t length) {
  {
    const AddressRange range = pages_of(address, length);
    const std::lock_guard lock(mutex_);
    const auto end = stable_.begin() + static_cast<std::ptrdiff_t>(stable_count_);
    const auto kept =
        std::remove_if(stable_.begin(), end, [&](const AddressRange& stable) { return stable.overlaps(range); });
    stable_count_ = static_cast<std::size_t>(kept - stable_.begin());
    memory_changed(range);
  }
  changes_taken_in();
}

// ---- reports

std::string PinCache::status() const {
  if (budget_ == 0) return "pinned memory is not kept between copies (VIADUCT_PIN_CACHE is 0)";
  const std::string size = fmt::format("up to {} MB stay pinned", budget_ >> 20);
  if (watch_ != nullptr) return size + ", watched by userfaultfd";
  if (keep_ == Keep::everything) return size + ", not watched";
  return size + " of adma_alloc's memory only" + (why_not_watched_.empty() ? "" : ": " + why_not_watched_);
}

std::size_t PinCache::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t PinCache::ranges() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

}  // namespace viaduct::copy
