#include "nic/live_hardware.hpp"

namespace viaduct::nic {

namespace {
constexpr Event kTimerEvents[2] = {Event::update_send_consumer, Event::update_receive_return_producer};
}

void LiveHardware::fire_timers(Processor& cpu) {
  std::uint64_t now = 0;
  for (const Event event : kTimerEvents) {
    if ((cpu.mine & bit(event)) == 0) continue;
    std::atomic<std::uint64_t>& timer = timer_of(event);
    std::uint64_t due = timer.load(std::memory_order_relaxed);
    if (due == 0) continue;
    if (now == 0) now = ticks_.now_ns();
    if (now >= due && timer.compare_exchange_strong(due, 0, std::memory_order_relaxed)) raise(cpu, event);
  }
}

std::uint64_t LiveHardware::next_timer_ns() const {
  std::uint64_t next = UINT64_MAX;
  for (const Timer& timer : timers_)
    if (const std::uint64_t due = timer.due_ns.load(std::memory_order_relaxed); due != 0) next = std::min(next, due);
  return next;
}

std::size_t LiveHardware::send_for_endpoints(Processor& cpu) {
  std::size_t sent = 0;
  std::uint64_t bytes = 0;
  if (events_.dynamic() ? !events_.claim(Group::read) : (cpu.mine & bit(Event::dma_read_complete)) == 0) return sent;
  bool full = false;
  if (handler_ != nullptr) sent += handler_->drain(mac_, bytes, full);
  if (endpoints_ != nullptr) {
    sent += endpoints_->drain(mac_, bytes);
    full |= endpoints_->is_full();
  }
  mac_is_full_.store(full, std::memory_order_relaxed);
  if (sent != 0) {
    bump(counts_->packets, sent);
    bump(counts_->bytes, bytes);
  }
  if (events_.dynamic()) events_.release(Group::read);
  return sent;
}

std::size_t LiveHardware::send_now(std::span<const Frame> frames) {
  const std::size_t taken = mac_.transmit(frames);
  std::uint64_t bytes = 0;
  for (const Frame& frame : frames.first(taken)) bytes += frame.length;
  bump(counts_->packets, taken);
  bump(counts_->bytes, bytes);
  return taken;
}

// The claim is held: is there anything for its handler?
bool LiveHardware::found_under_claim(Processor& cpu, Event event) {
  const bool raised = events_.is_raised(event) && events_.lower(event);
  switch (event) {
    case Event::mailbox:
      return mailbox_written() || raised;
    case Event::dma_read_complete:
      return look_at_read_channel(cpu) || raised;
    case Event::dma_write_complete:
      return write_.has_completions() || raised;
    case Event::receive_complete:
      return receive_.fill() || raised;
    default:
      return raised;
  }
}

// The first event from the position on that is there and whose group nobody holds.
int LiveHardware::next_claimed_event(Processor& cpu) {
  for (; cpu.position < kEvents; ++cpu.position) {
    const auto event = static_cast<Event>(cpu.position);
    const bool from_hardware = event <= Event::receive_complete;
    if (!from_hardware && !events_.is_raised(event)) continue;
    if (!events_.claim(group_of(event))) continue;
    if (found_under_claim(cpu, event)) {
      if (watch_ && cpu.started_ns == 0) cpu.started_ns = ticks_.now_ns();
      return static_cast<int>(cpu.position++);
    }
    events_.release(group_of(event));
  }
  return -1;
}

}  // namespace viaduct::nic
