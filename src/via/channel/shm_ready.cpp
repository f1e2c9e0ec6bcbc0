#include "via/channel/shm_ready.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace viaduct::via {

namespace {

constexpr std::size_t kHintsPerLook = 32;

}  // namespace

Result<ShmReadySource> ShmReadySource::make(std::uint32_t most_channels, int epoll) {
  if (most_channels == 0 || most_channels > kMostHints)
    return Error(EINVAL, fmt::format("ready queue: {} channels are not in 1..{}", most_channels, kMostHints));
  VIADUCT_TRY(Segment segment, Segment::create({"viaduct-ready", kReadyQueueLayout,
                                                sizeof(ReadyQueueHeader) + hint_queue_bytes(most_channels)}));
  segment.as<ReadyQueueHeader>()->capacity = most_channels;
  VIADUCT_TRY(HintQueue hints, hints_of(segment, most_channels));
  hints.ready().promise_heavy_fence();
  return ShmReadySource(std::move(segment), std::move(hints), epoll, most_channels);
}

ShmReadySource::ShmReadySource(Segment segment, HintQueue hints, int epoll, std::uint32_t capacity)
    : segment_(std::move(segment)), hints_(std::move(hints)), epoll_(epoll) {
  for (std::uint32_t number = capacity; number > 0; --number) free_.push_back(number - 1);
}

ShmReadySource::~ShmReadySource() {
  for (const Place& place : places_)
    if (place.channel != nullptr) place.channel->leave_queue();
}

std::error_code ShmReadySource::add(ShmChannel& channel, std::uint64_t tag) {
  if (free_.empty()) return std::make_error_code(std::errc::no_space_on_device);
  const std::uint32_t number = free_.back();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = number;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, channel.descriptor(), &event) != 0) return {errno, std::generic_category()};
  if (auto joined = channel.join_queue(segment_, hints_, number); !joined) {
    (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, channel.descriptor(), nullptr);
    return {joined.error().code(), std::generic_category()};
  }
  free_.pop_back();
  if (number >= places_.size()) places_.resize(number + 1);
  places_[number] = {.channel = &channel, .tag = tag};
  activate(number);  // whatever came before is seen by the first look
  return {};
}

void ShmReadySource::remove(ShmChannel& channel) {
  for (std::uint32_t number = 0; number < places_.size(); ++number) {
    if (places_[number].channel != &channel) continue;
    channel.leave_queue();
    (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, channel.descriptor(), nullptr);
    std::erase(active_, number);
    std::erase(lately_armed_, number);
    places_[number] = {};
    free_.push_back(number);
  }
}

void ShmReadySource::activate(std::uint32_t number) {
  Place& place = places_[number];
  place.looks_in_vain = 0;
  if (place.active) return;
  place.active = true;
  active_.push_back(number);
  // The one that was quiet longest makes room; if it has news after all it stays and the list is longer for a while.
  if (active_.size() <= kMostActive) return;
  std::size_t quietest = 0;
  for (std::size_t i = 1; i + 1 < active_.size(); ++i)
    if (places_[active_[i]].looks_in_vain > places_[active_[quietest]].looks_in_vain) quietest = i;
  (void)try_to_arm(quietest);
}

// False: it has news and stays.
bool ShmReadySource::try_to_arm(std::size_t active_index) {
  const std::uint32_t number = active_[active_index];
  Place& place = places_[number];
  if (place.channel->has_news() || !place.channel->arm_for_queue()) {
    place.looks_in_vain = 0;
    return false;
  }
  place.active = false;
  active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(active_index));
  if (!std::exchange(place.lately_armed, true)) lately_armed_.push_back(number);
  return true;
}

// While we sleep nobody is looked at directly: every channel is armed, so that its peer gives a hint and, as our own
// word is armed too, rings the doorbell. False: one of them has news.
bool ShmReadySource::try_to_arm_everybody() {
  while (!active_.empty())
    if (!try_to_arm(active_.size() - 1)) return false;
  return true;
}

// The heavy fence of arming may pass over the peer's processor (fence.cpp): what the peer sent at that moment came
// without a hint. It is in memory by the time of this look.
void ShmReadySource::look_again_at_lately_armed() {
  for (const std::uint32_t number : std::exchange(lately_armed_, {})) {
    places_[number].lately_armed = false;
    if (!places_[number].active && places_[number].channel->has_news()) activate(number);
  }
}

void ShmReadySource::look_at_hints() {
  std::uint32_t numbers[kHintsPerLook];
  const std::size_t count = hints_.take(numbers);
  for (std::size_t i = 0; i < count; ++i)
    if (numbers[i] < places_.size() && places_[numbers[i]].channel != nullptr) activate(numbers[i]);
}

std::size_t ShmReadySource::look_at_active(std::span<std::uint64_t> tags) {
  const std::size_t most = active_.size();
  const std::size_t patience = kLooksInVain * kMostActive / std::max<std::size_t>(kMostActive, most);
  std::size_t taken = 0;
  for (std::size_t looked = 0; looked < most && taken < tags.size(); ++looked) {
    if (next_active_ >= active_.size()) next_active_ = 0;
    Place& place = places_[active_[next_active_]];
    if (place.channel->has_news()) {
      place.looks_in_vain = 0;
      tags[taken++] = place.tag;
    } else if (++place.looks_in_vain > patience && try_to_arm(next_active_)) {
      continue;  // the next one stands in its place now
    }
    ++next_active_;
  }
  return taken;
}

std::size_t ShmReadySource::look(std::span<std::uint64_t> tags) {
  if (!hints_.empty()) look_at_hints();
  return look_at_active(tags);
}

void ShmReadySource::readable(std::uint32_t number) {
  if (number >= places_.size() || places_[number].channel == nullptr) return;
  ShmChannel& channel = *places_[number].channel;
  channel.drain_socket();
  // A dead socket stays readable for ever: it is reported through the channel from now on.
  if (channel.peer_gone()) (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, channel.descriptor(), nullptr);
  // What came may have been no doorbell: the peer says so on the socket when it joins a queue of its own.
  if (places_[number].active || !channel.is_armed_and_quiet()) activate(number);
}

}  // namespace viaduct::via
