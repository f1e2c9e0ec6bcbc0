// The end: the peer's, a fault's, or our own. And what comes over the socket before it.
#include <time.h>

#include <algorithm>

#include "base/log.hpp"
#include "copy/link.hpp"

namespace viaduct::copy {

using namespace link_format;

namespace {
constexpr std::uint64_t kLongestFarewellNs = 5'000'000'000;
constexpr std::uint64_t kFarewellStepNs = 100'000;
constexpr int kMostAtOnce = 4096;  // messages; a socket holds fewer, unless the peer goes on sending
}  // namespace

// Reads what has come. False: the peer has gone.
bool Link::drain_control() {
  bool woken = false;
  for (int messages = 0; messages < kMostAtOnce; ++messages) {
    ControlMessage message{};
    Fd fd;
    const ControlSocket::Received received = control_->receive(message, fd);
    if (received == ControlSocket::Received::nothing || received == ControlSocket::Received::closed) {
      if (woken) tell_local();
      return received == ControlSocket::Received::nothing;
    }
    bool sensible = received == ControlSocket::Received::message;
    woken = woken || (sensible && message.kind == ControlMessage::doorbell);
    if (sensible && message.kind == ControlMessage::region)
      sensible = peer_regions_.add(message.index, message.id, std::move(fd), options_.map_regions);
    else if (sensible && message.kind == ControlMessage::forget)
      sensible = peer_regions_.forget(message.index, message.id);
    if (!sensible) return corrupt(), true;
  }
  tell_local();
  return true;
}

void Link::look_for_peer() {
  if (error_ == 0 && !drain_control()) fail(ECONNRESET);
}

// What is posted ends in the next round of whoever is in a call.
void Link::fail(int error) {
  if (error_ != 0) return;
  error_ = error;
  tell_local();
}

void Link::corrupt() {
  if (error_ != 0) return;
  log::fault("link: the peer wrote something impossible into the shared memory; the link is closed");
  fail(EPROTO);
  control_->shut_down();
}

// What had ended before the peer went is still reported as it ended.
bool Link::end_everything(Lane& lane) {
  bool ended = false;
  for (std::uint64_t sequence = std::max(lane.first, lane.first_unfinished); sequence < lane.end(); ++sequence) {
    Transfer& transfer = lane.at(sequence);
    if (transfer.ended()) continue;
    const bool posted = transfer.state != Transfer::State::queued;
    if (posted) (void)withdraw(lane, transfer);  // stops our own pump
    if (transfer.copies != 0) continue;
    if (!posted || error_ == EPROTO || !finish_if_done(lane, transfer) || !transfer.ended())
      finish(lane, transfer, error_, 0);
    ended = true;
  }
  lane.next_to_post = lane.end();
  return ended;
}

// No chunk can be taken afterwards, by either side. Returns how many were.
std::uint32_t Link::withdraw(Lane& lane, Transfer& transfer) {
  const std::uint32_t stamp = short_stamp(stamp_of(transfer.sequence));
  MatchSlot& slot = lane.slot(transfer);
  std::uint64_t seen = slot.next.load(std::memory_order_acquire);
  for (;;) {
    const NextWord next = NextWord::from(seen);
    const bool taken = next.stamp == stamp;
    if (taken && next.taken >= NextWord::kWithdrawn) return 0;
    if (slot.next.compare_exchange_weak(seen, NextWord{stamp, NextWord::kWithdrawn}.word(), std::memory_order_acq_rel))
      return taken ? next.taken : 0;
  }
}

void Link::close() {
  if (!of_this_process()) return;
  Lock lock(mutex_);
  if (closing_) return;
  closing_ = true;
  wait_for_peers_copies(lock);
  fail(ECANCELED);
  while (progress(lock, Effort::check)) {
  }
  tell_local();
  changed_.wait(lock, [this] { return callers_ == 0 && copies_ == 0; });
  control_->shut_down();
}

// A peer that has taken chunks writes into our buffers, or reads them, until it says that they are done. One that dies
// does so no more; one that stands still for long is left behind.
void Link::wait_for_peers_copies(Lock& lock) {
  struct Open {
    MatchSlot* slot;
    std::uint32_t stamp;
    std::uint32_t taken;
  };
  std::vector<Open> open;
  if (error_ != 0) return;
  for (Lane& lane : lanes_)
    for (std::uint64_t sequence = lane.first_unfinished; sequence < lane.next_to_post; ++sequence) {
      Transfer& transfer = lane.at(sequence);
      if (transfer.ended()) continue;
      if (const std::uint32_t taken = withdraw(lane, transfer); taken != 0)
        open.push_back({&lane.slot(transfer), short_stamp(stamp_of(sequence)), taken});
    }
  error_ = ECANCELED;  // nobody posts, and those who wait leave
  tell_local();
  const auto under_way = [](const Open& transfer) {
    const DoneWord done = DoneWord::from(transfer.slot->done.load(std::memory_order_acquire));
    return done.stamp != transfer.stamp || (!done.finished && done.chunks < transfer.taken);
  };
  const Deadline deadline = Deadline::after_ns(Clock::steady(), kLongestFarewellNs);
  lock.unlock();
  for (const Open& transfer : open)
    while (under_way(transfer) && !control_->peer_has_gone()) {
      if (deadline.expired(Clock::steady().now_ns())) {
        log::fault("close a link: the peer has begun a copy and does not end it; its bytes may still arrive");
        lock.lock();
        return;
      }
      const timespec step = to_timespec(kFarewellStepNs);
      (void)::nanosleep(&step, nullptr);
    }
  lock.lock();
}

}  // namespace viaduct::copy
