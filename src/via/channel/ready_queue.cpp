#include "via/channel/ready_queue.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/config.hpp"

namespace viaduct::via {

namespace {

constexpr std::uint32_t kLooksPerSocketCheck = 8192;
constexpr std::uint32_t kLooksPerClockCheck = 256;
constexpr std::uint64_t kNsPerSocketCheck = 20'000'000;
// In an event, beside channels' numbers.
constexpr std::uint64_t kWatched = std::uint64_t{1} << 32;    // and the descriptor
constexpr std::uint64_t kOfASource = std::uint64_t{1} << 33;  // looked at anyway

}  // namespace

Result<std::unique_ptr<ReadyQueueOfSources>> ReadyQueueOfSources::make(std::uint32_t most_channels) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return Error::from_errno("ready queue");
  VIADUCT_TRY(ShmReadySource shared, ShmReadySource::make(most_channels, epoll.get()));
  return std::unique_ptr<ReadyQueueOfSources>(new ReadyQueueOfSources(std::move(epoll), std::move(shared)));
}

ReadyQueueOfSources::ReadyQueueOfSources(Fd epoll, ShmReadySource shared)
    : epoll_(std::move(epoll)),
      shared_(std::move(shared)),
      waiter_(Config::process().number("VIADUCT_SPIN_US") * 1000) {}

// ---- sources

std::error_code ReadyQueueOfSources::add(ReadySource& source) {
  for (Member& member : sources_)
    if (member.source == &source) return ++member.channels, std::error_code();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kOfASource;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, source.descriptor(), &event) != 0)
    return {errno, std::generic_category()};
  sources_.push_back({&source, 1});
  return {};
}

void ReadyQueueOfSources::remove(ReadySource& source) {
  const auto found = std::find_if(sources_.begin(), sources_.end(), [&](auto& one) { return one.source == &source; });
  if (found == sources_.end() || --found->channels != 0) return;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source.descriptor(), nullptr);
  sources_.erase(found);
}

std::size_t ReadyQueueOfSources::look_at_sources(std::span<std::uint64_t> tags) {
  std::size_t taken = 0;
  for (const Member& member : sources_) taken += member.source->take(tags.subspan(taken));
  return taken;
}

// True: all of them; false: none, as one has news.
bool ReadyQueueOfSources::prepare_sources() {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].source->prepare_to_sleep()) continue;
    sources_woke(i);
    return false;
  }
  return true;
}

void ReadyQueueOfSources::sources_woke(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sources_[i].source->woke();
}

// ---- descriptors of other kinds

std::error_code ReadyQueueOfSources::watch(int descriptor, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWatched | static_cast<std::uint32_t>(descriptor);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return {errno, std::generic_category()};
  watched_.push_back({descriptor, tag});
  return {};
}

void ReadyQueueOfSources::unwatch(int descriptor) {
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  std::erase_if(watched_, [&](const Watched& one) {
    if (one.descriptor != descriptor) return false;
    watched_readable_ -= one.readable ? 1 : 0;
    return true;
  });
}

std::size_t ReadyQueueOfSources::report_watched(std::span<std::uint64_t> tags) {
  std::size_t taken = 0;
  for (Watched& one : watched_) {
    if (!one.readable || taken == tags.size()) continue;
    one.readable = false;
    --watched_readable_;
    tags[taken++] = one.tag;
  }
  return taken;
}

// ---- looking

// In turns, so that neither kind starves the other where tags are few.
std::size_t ReadyQueueOfSources::look(std::span<std::uint64_t> tags) {
  if (watched_readable_ != 0) [[unlikely]] {
    const std::size_t watched = report_watched(tags);
    return watched == tags.size() ? watched : watched + look(tags.subspan(watched));
  }
  if (sources_.empty()) [[likely]]
    return shared_.look(tags);
  shared_first_ = !shared_first_;
  std::size_t taken = shared_first_ ? shared_.look(tags) : look_at_sources(tags);
  taken += shared_first_ ? look_at_sources(tags.subspan(taken)) : shared_.look(tags.subspan(taken));
  return taken;
}

// After so many looks, or so much time: some look seldom.
bool ReadyQueueOfSources::sockets_are_due() {
  const std::uint64_t now = Clock::steady().now_ns();
  if (looks_ % kLooksPerSocketCheck != 0 && now - sockets_checked_ns_ < kNsPerSocketCheck) return false;
  sockets_checked_ns_ = now;
  return true;
}

std::size_t ReadyQueueOfSources::take(std::span<std::uint64_t> tags) {
  if (++looks_ % kLooksPerClockCheck == 0 && sockets_are_due()) {
    shared_.look_again_at_lately_armed();
    (void)look_at_descriptors(Deadline::at_ns(0), Clock::steady());  // peers that have gone give no hint
  }
  return look(tags);
}

// How many had something to say; -1: a signal arrived.
int ReadyQueueOfSources::look_at_descriptors(Deadline deadline, const Clock& clock) {
  epoll_event events[32];
  int timeout = -1;
  if (!deadline.is_never()) timeout = static_cast<int>((deadline.left_ns(clock.now_ns()) + 999'999) / 1'000'000);
  const int count = ::epoll_wait(epoll_.get(), events, 32, timeout);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t who = events[i].data.u64;
    if (who < kWatched) shared_.readable(static_cast<std::uint32_t>(who));
    if ((who & kWatched) == 0) continue;
    for (Watched& one : watched_)
      if (one.descriptor == static_cast<int>(who & ~kWatched) && !std::exchange(one.readable, true))
        ++watched_readable_;
  }
  return count;
}

// ---- sleeping

class ReadyQueueOfSources::EpollSleeper final : public Sleeper {
 public:
  explicit EpollSleeper(ReadyQueueOfSources& queue) : queue_(queue) {}
  SleepResult sleep(WaitWord&, std::uint32_t, Deadline deadline, const Clock& clock) override {
    if (!queue_.shared_.try_to_arm_everybody() || !queue_.prepare_sources()) return SleepResult::woken;
    const int count = queue_.look_at_descriptors(deadline, clock);
    queue_.sources_woke(queue_.sources_.size());
    if (count < 0) return SleepResult::interrupted;
    if (count > 0) return SleepResult::woken;
    queue_.shared_.look_again_at_lately_armed();
    return SleepResult::timeout;
  }

 private:
  ReadyQueueOfSources& queue_;
};

// Between arming our word and sleeping no socket is read: a doorbell means that somebody has disarmed the word, and
// then others give hints without ringing.
std::size_t ReadyQueueOfSources::wait(std::span<std::uint64_t> tags, int timeout_ms) {
  if (tags.empty()) return 0;
  EpollSleeper sleeper(*this);
  const Clock& clock = Clock::steady();
  const Deadline deadline = timeout_ms < 0
                                ? Deadline::never()
                                : Deadline::after_ns(clock, static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
  std::size_t taken = 0;
  const WaitResult result = waiter_.wait(shared_.word(), sleeper, deadline, [&] { return (taken = look(tags)) > 0; });
  return result == WaitResult::ready ? taken : 0;
}

// ---- sleeping elsewhere

bool ReadyQueueOfSources::prepare_to_sleep() {
  (void)shared_.word().arm();
  return watched_readable_ == 0 && !shared_.has_hints() && shared_.try_to_arm_everybody() && prepare_sources();
}

void ReadyQueueOfSources::woke() {
  (void)look_at_descriptors(Deadline::at_ns(0), Clock::steady());
  sources_woke(sources_.size());
  shared_.look_again_at_lately_armed();
}

}  // namespace viaduct::via
