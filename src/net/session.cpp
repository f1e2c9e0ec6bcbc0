#include "net/session.hpp"

#include <algorithm>

namespace viaduct::net {

namespace {
constexpr std::uint64_t kShortestProbe = 300'000;     // ns
constexpr std::uint64_t kLongestProbe = 200'000'000;  // ns
}  // namespace

Session::Session(const SessionOptions& options, RegisteredMemory& memory, std::uint64_t now)
    : options_(options),
      memory_(memory),
      path_mtu_(std::max(options.frame_size, kSmallestFrame)),
      own_counters_(options.counters == nullptr ? std::make_unique<SessionCounters>() : nullptr),
      counters_(options.counters == nullptr ? *own_counters_ : *options.counters),
      received_(options.first_number),
      heard_at_(now),
      sent_(options.first_number),
      congestion_(options.window),
      ping_due_(options.connecting),  // the peer learns that its answer came
      next_flow_(options.connecting ? 1 : 2),
      next_transfer_(options.first_transfer & ~kTransferOfAcceptor) {
  counters_.window = congestion_.window();
  counters_.frame_size = path_mtu_.size();
  const FlowLimits control{kControlSlots, kControlSlotSize};
  auto flow = std::make_unique<Flow>(kControlFlow, control, options.first_sequence);
  flow->connect(options.first_sequence, control);
  flows_.emplace(kControlFlow, std::move(flow));
}

bool Session::take_event(Event& event) {
  if (events_.empty()) return false;
  event = std::move(events_.front());
  events_.pop_front();
  return true;
}

Event& Session::tell(Event::Kind kind, std::uint32_t flow) {
  events_.push_back(Event{.kind = kind, .flow = flow, .bytes = {}});
  return events_.back();
}

void Session::finish_session() {
  if (over_ == Over::no) end_session(Over::finished_here);
}

void Session::end_session(Over why) {
  over_ = why;
  bye_due_ = why == Over::finished_here || why == Over::broken;
  for (auto& [id, transfer] : transfers_) {
    if (!transfer.ours()) continue;
    Event& event = tell(Event::Kind::transferred, transfer.flow);
    event.cookie = transfer.cookie;
    event.status = TransferStatus::flow_closed;
  }
  transfers_.clear();
  data_ready_.clear();
  pulls_.clear();
  asks_.clear();
  results_.clear();
  tell(Event::Kind::over, kControlFlow);
}

bool Session::quiet() const {
  if (over_ != Over::no) return !bye_due_;
  const bool ours =
      std::any_of(transfers_.begin(), transfers_.end(), [](const auto& entry) { return entry.second.ours(); });
  return !ours && sent_.flying() == 0 && !has_content() && unacknowledged_ == 0 && backlog_.empty();
}

std::uint64_t Session::probe_deadline() const {
  const std::uint64_t first = std::max(2 * round_trip_.smoothed(), kShortestProbe);
  const unsigned doublings = std::min(probes_in_row_, 12U);
  return last_sent_at_ + std::min(std::max(kLongestProbe, first), first << doublings);
}

std::uint64_t Session::next_deadline() const {
  if (over_ != Over::no) return kNever;
  std::uint64_t next = loss_deadline_;
  if (unacknowledged_ > 0) next = std::min(next, ack_deadline_);
  if (sent_.flying() > 0) {
    if (!sent_.at_limit()) next = std::min(next, probe_deadline());
    next = std::min(next, std::max(heard_at_, waiting_since_) + options_.silence_ns);
  } else if (has_met()) {
    next = std::min(next, heard_at_ + options_.keepalive_ns);
  }
  return next;
}

void Session::tick(std::uint64_t now) {
  if (over_ != Over::no) return;
  if (now >= loss_deadline_) detect_losses(now);
  if (sent_.flying() > 0) {
    if (now >= std::max(heard_at_, waiting_since_) + options_.silence_ns) return end_session(Over::timed_out);
    if (now >= probe_deadline() && !ping_due_) {
      ping_due_ = true;
      ++probes_in_row_;
      if (silent_since_ == 0) silent_since_ = now;
      ++counters_.probes;
    }
  } else if (has_met() && now >= heard_at_ + options_.keepalive_ns && !ping_due_) {
    ping_due_ = true;
    ++counters_.keepalives;
  }
}

std::size_t Session::memory_in_use() const {
  std::size_t bytes = events_.size() * sizeof(Event) + backlog_.size() * (sizeof(Backlog) + kControlSlotSize) +
                      transfers_.size() * sizeof(Transfer) + asked_.size() * sizeof(FlowLimits) +
                      (asks_.size() + results_.size()) * sizeof(Ask);
  for (const auto& [id, flow] : flows_) {
    bytes += sizeof(Flow) + flow->incoming.memory() + (flow->outgoing ? flow->outgoing->memory() : 0);
  }
  return bytes;
}

}  // namespace viaduct::net
