// Spinning, sleeping, waking.
//
// A thread that waits remembers what it has seen of every word that could matter (a View), and goes on when one of them
// changes. It spins first. Then one thread of the process sleeps on the socket, where a byte of the peer wakes it and
// where the peer's death shows; further threads sleep until that one, or whatever else happens in this process, wakes
// them. A thread that reads a wake-up meant for all passes it on with tell_local().
#include <poll.h>
#include <unistd.h>

#include <array>

#include "base/config.hpp"
#include "copy/link.hpp"

namespace viaduct::copy {

using namespace link_format;

class Link::View {
 public:
  explicit View(Link& link) {
    add(link.events_);
    for (Lane& lane : link.lanes_) {
      add(lane.direction == Direction::read ? lane.table->bounce.filled : lane.table->bounce.emptied);
      for (std::uint64_t sequence = lane.first_unfinished; sequence < lane.next_to_post; ++sequence) {
        Transfer& transfer = lane.at(sequence);
        if (transfer.ended()) continue;
        MatchSlot& slot = lane.slot(transfer);
        add(slot.done);
        if (transfer.state == Transfer::State::posted) {
          add(lane.theirs(slot).stamp);
          break;  // nothing after it can be matched before it
        }
        add(slot.next);
        if (transfer.reach == Reach::none) add(lane.theirs(slot).cannot_reach);
      }
    }
  }

  // Needs no lock.
  bool changed() const {
    for (std::size_t i = 0; i < count_; ++i)
      if (words_[i]->load(std::memory_order_acquire) != values_[i]) return true;
    return false;
  }

 private:
  static constexpr std::size_t kMost = 1 + 2 * (1 + 3 * kSlots);

  void add(const std::atomic<std::uint64_t>& word) {
    words_[count_] = &word;
    values_[count_++] = word.load(std::memory_order_acquire);
  }

  std::size_t count_ = 0;
  std::array<const std::atomic<std::uint64_t>*, kMost> words_;
  std::array<std::uint64_t, kMost> values_;
};

class Link::SocketSleeper final : public Sleeper {
 public:
  SocketSleeper(Link& link, const View& view) : link_(link), view_(view) {}

  SleepResult sleep(WaitWord&, std::uint32_t, Deadline, const Clock&) override {
    Lock lock(link_.mutex_);
    // What happens in this process happens under the lock: from here on it finds us asleep, and wakes.
    if (view_.changed()) return SleepResult::woken;
    std::atomic<std::uint32_t>& sleeping = link_.own_side().sleeping;
    sleeping.fetch_add(1, std::memory_order_relaxed);
    if (link_.somebody_sleeps_)
      link_.changed_.wait(lock, [this] { return view_.changed() || !link_.somebody_sleeps_; });
    else
      sleep_on_socket(lock);
    sleeping.fetch_sub(1, std::memory_order_relaxed);
    return SleepResult::woken;
  }

 private:
  void sleep_on_socket(Lock& lock) {
    link_.somebody_sleeps_ = true;
    const bool peer_matters = link_.error_ == 0;  // a socket that has ended is readable for ever
    lock.unlock();
    pollfd entries[2] = {{link_.local_wake_.get(), POLLIN, 0}, {link_.control_->fd(), POLLIN, 0}};
    (void)::poll(entries, peer_matters ? 2 : 1, -1);
    lock.lock();
    link_.somebody_sleeps_ = false;
    std::uint64_t tokens;
    [[maybe_unused]] const ssize_t drained = ::read(link_.local_wake_.get(), &tokens, sizeof tokens);
    if (entries[1].revents != 0) link_.look_for_peer();
    link_.changed_.notify_all();
  }

  Link& link_;
  const View& view_;
};

Link::Outcome Link::wait(std::int64_t cookie) {
  // How long a waiting peer is left alone with what it can do more cheaply.
  constexpr std::uint64_t kPatienceNs = 5'000;

  Lock lock(mutex_);
  const Call call(*this);
  Outcome outcome{EINVAL, 0};
  Effort effort = Effort::wait;
  Lane* lane = nullptr;
  while (Transfer* const transfer = find(cookie, lane)) {
    if (transfer->ended()) {
      outcome = {transfer->error, transfer->moved};
      report(*lane, *transfer);
      break;
    }
    const View view(*this);
    left_to_peer_ = false;
    if (progress(lock, std::exchange(effort, Effort::wait))) continue;
    if (transfer->state != Transfer::State::queued && !transfer->waits) {
      transfer->waits = true;
      lane->ours(lane->slot(*transfer)).waits.store(stamp_of(transfer->sequence), std::memory_order_relaxed);
    }
    const bool patient = left_to_peer_;
    lock.unlock();
    if (patient) {
      const Deadline deadline = Deadline::after_ns(Clock::steady(), kPatienceNs);
      while (!view.changed() && !deadline.expired(Clock::steady().now_ns())) cpu_relax();
      if (!view.changed()) effort = Effort::last_resort;
    } else {
      thread_local Waiter waiter(Config::process().number("VIADUCT_SPIN_US") * 1000);
      SocketSleeper sleeper(*this, view);
      (void)waiter.wait(own_side().wake, sleeper, Deadline::never(), [&view] { return view.changed(); });
    }
    lock.lock();
  }
  return outcome;
}

// W2..W5. A doorbell that finds the socket full is not needed: the peer has something to read.
void Link::tell_peer() {
  if (peer_side().wake.must_wake()) (void)control_->send({ControlMessage::doorbell, 0, 0});
}

void Link::tell_local() {
  events_.store(events_.load(std::memory_order_relaxed) + 1, std::memory_order_release);  // under the lock
  if (somebody_sleeps_) wake_eventfd(local_wake_.get());
  changed_.notify_all();
}

}  // namespace viaduct::copy
