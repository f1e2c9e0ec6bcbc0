// The ready queue over shared memory: a hint queue that the peers write to, and a short list of channels looked at
// directly.
//
// A channel is armed (its peer gives a hint when it sends) or active (looked at by every take(), which costs its peer
// nothing). A hint makes it active; many looks in vain arm it again. While nobody is active a look reads one word.
#pragma once

#include <viaduct/via.hpp>

#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/hint_queue.hpp"
#include "base/result.hpp"
#include "base/segment.hpp"
#include "via/shm_channel.hpp"

namespace viaduct::via {

constexpr std::uint64_t kReadyQueueLayout = layout_hash("ready queue 1: capacity u32 line, hint queue");

struct alignas(kCacheLine) ReadyQueueHeader {
  std::uint32_t capacity;  // written by the owner before it is shared
};
static_assert(sizeof(ReadyQueueHeader) == kCacheLine);

class ShmReadyQueue final : public ReadyQueue {
 public:
  static Result<std::unique_ptr<ShmReadyQueue>> make(std::uint32_t most_channels);
  ~ShmReadyQueue() override;

  std::error_code add(Channel& channel, std::uint64_t tag) override;
  void remove(Channel& channel) override;
  std::error_code watch(int descriptor, std::uint64_t tag) override;
  void unwatch(int descriptor) override;
  std::size_t take(std::span<std::uint64_t> tags) override;
  std::size_t wait(std::span<std::uint64_t> tags, int timeout_ms) override;
  std::size_t looked_at_one_by_one() const { return active_.size(); }  // the others are armed

 private:
  static constexpr std::uint32_t kMostActive = 16;
  static constexpr std::uint32_t kLooksInVain = 2048;  // of a list of kMostActive; a longer one shrinks sooner

  class EpollSleeper;

  struct Place {
    ShmChannel* channel = nullptr;
    std::uint64_t tag = 0;
    std::uint32_t looks_in_vain = 0;
    bool active = false;
    bool lately_armed = false;
  };

  struct Watched {
    int descriptor = -1;
    std::uint64_t tag = 0;
    bool readable = false;  // and not reported yet
  };

  ShmReadyQueue(Segment segment, HintQueue hints, Fd epoll, std::uint32_t capacity);
  void activate(std::uint32_t number);
  bool try_to_arm(std::size_t active_index);
  bool try_to_arm_everybody();
  void look_again_at_lately_armed();
  void look_at_hints();
  std::size_t look_at_active(std::span<std::uint64_t> tags);
  std::size_t report_watched(std::span<std::uint64_t> tags);
  std::size_t look(std::span<std::uint64_t> tags);
  int look_at_sockets(int timeout_ms);

  Segment segment_;
  HintQueue hints_;
  Fd epoll_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> active_;
  std::size_t next_active_ = 0;  // round robin: a short span of tags starves nobody
  std::vector<std::uint32_t> lately_armed_;
  std::vector<Watched> watched_;
  std::size_t watched_readable_ = 0;  // of those
  std::uint32_t looks_ = 0;
  Waiter waiter_;
};

}  // namespace viaduct::via
