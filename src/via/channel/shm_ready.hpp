// The channels in shared memory of a ready queue: a hint queue that the peers write to, and a short list of channels
// looked at directly.
//
// A channel is armed (its peer gives a hint when it sends) or active (looked at by every take(), which costs its peer
// nothing). A hint makes it active; many looks in vain arm it again. While nobody is active a look reads one word.
#pragma once

#include <span>
#include <system_error>
#include <vector>

#include "base/hint_queue.hpp"
#include "base/result.hpp"
#include "base/segment.hpp"
#include "via/channel/ready_format.hpp"
#include "via/channel/shm_channel.hpp"

namespace viaduct::via {

class ShmReadySource {
 public:
  // Channels' sockets are put into `epoll`, with the channel's number; readable() is called with what comes from there.
  static Result<ShmReadySource> make(std::uint32_t most_channels, int epoll);
  ShmReadySource(ShmReadySource&&) = default;
  ~ShmReadySource();

  std::error_code add(ShmChannel& channel, std::uint64_t tag);
  void remove(ShmChannel& channel);

  // Whoever gives a hint wakes the one that sleeps by this word.
  WaitWord& word() const { return hints_.ready(); }
  bool has_hints() const { return !hints_.empty(); }
  std::size_t look(std::span<std::uint64_t> tags);
  // False: one of them has news.
  bool try_to_arm_everybody();
  void look_again_at_lately_armed();
  void readable(std::uint32_t number);

  std::size_t looked_at_one_by_one() const { return active_.size(); }  // the others are armed

 private:
  static constexpr std::uint32_t kMostActive = 16;
  static constexpr std::uint32_t kLooksInVain = 2048;  // of a list of kMostActive; a longer one shrinks sooner

  struct Place {
    ShmChannel* channel = nullptr;
    std::uint64_t tag = 0;
    std::uint32_t looks_in_vain = 0;
    bool active = false;
    bool lately_armed = false;
  };

  ShmReadySource(Segment segment, HintQueue hints, int epoll, std::uint32_t capacity);
  void activate(std::uint32_t number);
  bool try_to_arm(std::size_t active_index);
  void look_at_hints();
  std::size_t look_at_active(std::span<std::uint64_t> tags);

  Segment segment_;
  HintQueue hints_;
  int epoll_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> active_;
  std::size_t next_active_ = 0;  // round robin: a short span of tags starves nobody
  std::vector<std::uint32_t> lately_armed_;
};

}  // namespace viaduct::via
