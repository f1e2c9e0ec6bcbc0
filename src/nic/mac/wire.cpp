// The wire: two MACs in one process. Without faults a frame is copied once, into the queue it is received from. Faults
// are injected by the sender, from the seed; frames that are late or overtaken wait with the receiver.
#include <algorithm>
#include <deque>
#include <memory>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "nic/mac/frame_queue.hpp"

namespace viaduct::nic {

namespace {

void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {  // one writer
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// One direction. The sender's members and the receiver's are used by one thread each.
class Direction {
 public:
  Direction(const WireOptions& options, std::uint64_t seed)
      : options_(options),
        clock_(options.clock != nullptr ? *options.clock : Clock::steady()),
        faulty_(options.faults.any()),
        random_(seed),
        queue_(options.depth, options.max_frame) {}

  std::size_t transmit(std::span<const Frame> frames);
  std::size_t receive(std::span<Frame> frames) { return faulty_ ? receive_late(frames) : receive_now(frames); }
  void release(std::size_t count) {
    if (!faulty_) return queue_.release(count);
    for (; count != 0; --count) held_.pop_front();
  }

  std::atomic<std::uint64_t> sent{0}, received{0}, lost{0}, refused{0};

 private:
  struct Waiting {
    std::uint64_t due_ns;
    std::uint64_t rank;  // order among those that are due
    std::vector<std::byte> bytes;
  };

  void transmit_with_faults(const Frame& frame);
  void push(const Frame& frame, bool corrupt);
  std::size_t receive_now(std::span<Frame> frames);
  std::size_t receive_late(std::span<Frame> frames);

  const WireOptions options_;
  const Clock& clock_;
  const bool faulty_;
  // The sender's.
  Random random_;
  std::uint64_t last_due_ns_ = 0;
  // The receiver's.
  std::deque<Waiting> waiting_;
  std::deque<std::vector<std::byte>> held_;  // given out, not released
  std::uint64_t arrived_ = 0;

  FrameQueue queue_;
};

std::size_t Direction::transmit(std::span<const Frame> frames) {
  std::size_t taken = 0;
  for (const Frame& frame : frames) {
    if (!queue_.has_space(2)) break;  // a frame may become two
    ++taken;
    if (frame.length > options_.max_frame)
      add(refused, 1);
    else if (faulty_)
      transmit_with_faults(frame);
    else
      queue_.push(frame, 0), add(sent, 1);
  }
  if (taken != 0) queue_.publish();
  return taken;
}

void Direction::transmit_with_faults(const Frame& frame) {
  const WireFaults& faults = options_.faults;
  add(sent, 1);
  if (random_.chance(faults.loss)) return add(lost, 1);
  push(frame, random_.chance(faults.corruption));
  if (random_.chance(faults.duplication)) push(frame, false);
}

// `due_ns` carries the delay; its lowest bits say by how many frames this one is overtaken.
void Direction::push(const Frame& frame, bool corrupt) {
  const WireFaults& faults = options_.faults;
  std::uint64_t due = 0;
  if (faults.delay_ns != 0 || faults.delay_spread_ns != 0) {
    due = clock_.now_ns() + faults.delay_ns + (faults.delay_spread_ns != 0 ? random_.below(faults.delay_spread_ns) : 0);
    last_due_ns_ = due = std::max(due, last_due_ns_);
  }
  const std::uint64_t overtaken =
      random_.chance(faults.reordering) ? 1 + random_.below(std::clamp(faults.reorder_depth, 1u, 255u)) : 0;
  FrameQueue::Slot& slot = queue_.next();
  queue_.push(frame, due << 8 | overtaken);
  for (std::uint64_t i = corrupt ? 1 + random_.below(4) : 0; i != 0; --i)
    slot.data[random_.below(frame.length)] ^= static_cast<std::byte>(1 + random_.below(255));
}

std::size_t Direction::receive_now(std::span<Frame> frames) {
  std::size_t count = 0;
  for (const FrameQueue::Slot* slot; count < frames.size() && (slot = queue_.peek()) != nullptr; ++count) {
    frames[count] = {slot->data, slot->length};
    queue_.step();
  }
  add(received, count);
  return count;
}

std::size_t Direction::receive_late(std::span<Frame> frames) {
  const std::uint64_t now = clock_.now_ns();
  while (const FrameQueue::Slot* slot = queue_.peek()) {
    const std::uint64_t rank = (arrived_++ << 8) + ((slot->due_ns & 0xff) << 8) + ((slot->due_ns & 0xff) != 0 ? 1 : 0);
    Waiting frame{slot->due_ns >> 8, rank, {slot->data, slot->data + slot->length}};
    const auto place = std::upper_bound(waiting_.begin(), waiting_.end(), rank,
                                        [](std::uint64_t value, const Waiting& other) { return value < other.rank; });
    waiting_.insert(place, std::move(frame));
    queue_.step();
    queue_.release(1);
  }
  std::size_t count = 0;
  while (count < frames.size() && !waiting_.empty() && waiting_.front().due_ns <= now) {
    held_.push_back(std::move(waiting_.front().bytes));
    waiting_.pop_front();
    frames[count++] = {held_.back().data(), static_cast<std::uint32_t>(held_.back().size())};
  }
  add(received, count);
  return count;
}

class WireEnd final : public Mac {
 public:
  WireEnd(std::shared_ptr<Direction> out, std::shared_ptr<Direction> in, const WireOptions& options, std::uint8_t which)
      : out_(std::move(out)), in_(std::move(in)), max_frame_(options.max_frame), which_(which) {}

  std::string name() const override { return "wire"; }
  MacAddress address() const override { return {2, 0, 0, 0, 0, which_}; }
  std::uint32_t max_frame() const override { return max_frame_; }
  Capabilities capabilities() const override { return {.max_frame = max_frame_, .probes_path_mtu = true}; }
  MacCounters counters() const override {
    const auto get = [](const std::atomic<std::uint64_t>& count) { return count.load(std::memory_order_relaxed); };
    return {get(out_->sent), get(in_->received), get(out_->refused), get(in_->lost)};
  }
  std::size_t transmit(std::span<const Frame> frames) override { return out_->transmit(frames); }
  std::size_t receive(std::span<Frame> frames) override { return in_->receive(frames); }
  void release(std::size_t count) override { in_->release(count); }

 private:
  const std::shared_ptr<Direction> out_, in_;
  const std::uint32_t max_frame_;
  const std::uint8_t which_;
};

}  // namespace

std::pair<std::unique_ptr<Mac>, std::unique_ptr<Mac>> make_wire(const WireOptions& options) {
  const auto there = std::make_shared<Direction>(options, 2 * options.faults.seed);
  const auto back = std::make_shared<Direction>(options, 2 * options.faults.seed + 1);
  return {std::make_unique<WireEnd>(there, back, options, 1), std::make_unique<WireEnd>(back, there, options, 2)};
}

}  // namespace viaduct::nic
