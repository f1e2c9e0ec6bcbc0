// What came and what was lost: acknowledgements, the proof of a loss, and repair.
#include <algorithm>
#include <bit>

#include "net/session.hpp"

namespace viaduct::net {

namespace {
constexpr std::uint32_t kWidestNumberBound = 64;
constexpr std::uint32_t kWidestTimeBound = 16;   // eighths
constexpr std::uint64_t kLeastReorder = 20'000;  // ns
constexpr std::uint64_t kCrowded = 768;          // numbers in use, from where lost frames are not remembered
}  // namespace

void Session::write_ack(Writer& writer, std::uint64_t now) {
  const std::size_t words = received_.words();
  writer.put(ChunkKind::ack);
  writer.put(static_cast<std::uint8_t>(words));
  writer.put(marks_);
  writer.put(static_cast<std::uint32_t>(std::min<std::uint64_t>(now - highest_came_at_, UINT32_MAX)));
  writer.put(received_.below());
  for (std::size_t i = 0; i < words; ++i) writer.put(received_.word(i));
  unacknowledged_ = 0;
  acknowledge_now_ = false;
  ack_deadline_ = kNever;
}

bool Session::take_ack(Reader& reader, std::uint64_t now) {
  const auto words = reader.get<std::uint8_t>();
  const auto marks = reader.get<std::uint32_t>();
  const auto delay = reader.get<std::uint32_t>();
  const auto below = reader.get<std::uint64_t>();
  if (!reader.good() || words > ReceivedNumbers::kWords) return false;
  if (below < options_.first_number || below > sent_.next_number()) return false;

  const bool window_was_full = sent_.flying() >= congestion_.window();
  std::uint64_t newest = 0;  // of the frames that are acknowledged for the first time
  std::uint64_t newest_sent_at = 0;
  bool newest_was_lost = false;
  const auto take = [&](std::uint64_t number) {
    SentFrame* frame = sent_.find(number);
    if (frame == nullptr) return;
    newest = std::max(newest, number);
    newest_sent_at = frame->sent_at;
    newest_was_lost = frame->state == SentFrame::State::lost;
    congestion_.acknowledged(window_was_full);
    acknowledged(*frame, now);
  };
  std::uint64_t highest = below - 1;
  for (std::uint64_t number = sent_.oldest(); number < below; ++number) take(number);
  for (std::size_t i = 0; i < words; ++i) {
    for (auto bits = reader.get<std::uint64_t>(); bits != 0; bits &= bits - 1) {
      highest = below + i * 64 + static_cast<unsigned>(std::countr_zero(bits));
      if (highest >= sent_.next_number()) return false;  // of what was never sent
      take(highest);
    }
  }
  if (!reader.good()) return false;

  const std::uint32_t new_marks = marks - static_cast<std::uint32_t>(marks_told_);
  if (new_marks != 0 && new_marks < 0x80000000) {
    congestion_.marked(new_marks);
    marks_told_ = marks;
  }
  if (newest != 0) {
    probes_in_row_ = 0;
    if (newest == highest && !newest_was_lost) {
      std::uint64_t sample = now - newest_sent_at;
      if (delay < sample) sample -= delay;
      round_trip_.sample(std::max<std::uint64_t>(sample, 1), now);
      congestion_.round_trip(sample);
      counters_.round_trips.add(sample);
      counters_.round_trip_ns = round_trip_.smoothed();
      counters_.least_round_trip_ns = round_trip_.least();
    }
    congestion_.maybe_end_round(newest, sent_.next_number(), round_trip_.least());
    counters_.window = congestion_.window();
  }
  highest_acknowledged_ = std::max(highest_acknowledged_, highest);
  detect_losses(now);
  return over_ != Over::broken;
}

void Session::acknowledged(SentFrame& frame, std::uint64_t now) {
  path_mtu_.came(frame.size, frame.probe, now);
  counters_.frame_size = path_mtu_.size();
  if (frame.state == SentFrame::State::lost) {
    counters_.needless += frame.probe ? 0 : 1;
    congestion_.was_needless();
    number_bound_ = std::min(kWidestNumberBound, number_bound_ * 2);
    time_bound_ = std::min(kWidestTimeBound, time_bound_ * 2);
  }
  const SentFrame copy = frame;
  sent_.set_over(frame);
  for (const Repair& repair : copy.to_repair()) came(repair);
}

std::uint64_t Session::loss_bound() const {
  const std::uint64_t round = std::max(round_trip_.smoothed(), round_trip_.latest());
  return round + std::max(round * time_bound_ / 8, kLeastReorder);
}

// Frames below one that came are lost when three later ones have come, or when a round trip and a little have passed.
void Session::detect_losses(std::uint64_t now) {
  loss_deadline_ = kNever;
  const std::uint64_t bound = loss_bound();
  for (std::uint64_t number = sent_.oldest(); number < highest_acknowledged_; ++number) {
    SentFrame* frame = sent_.find(number);
    if (frame == nullptr) continue;
    if (frame->state == SentFrame::State::flying) {
      if (highest_acknowledged_ - number >= number_bound_) {
        counters_.lost_by_number += frame->probe ? 0 : 1;
        lose(*frame, now);
      } else if (now >= frame->sent_at + bound) {
        counters_.lost_by_time += frame->probe ? 0 : 1;
        lose(*frame, now);
      } else {
        loss_deadline_ = std::min(loss_deadline_, frame->sent_at + bound);
      }
    }
    if (frame->state == SentFrame::State::lost) {
      const std::uint64_t forget_at = frame->sent_at + bound + 2 * round_trip_.smoothed();
      if (now >= forget_at || sent_.span() >= kCrowded) {
        sent_.set_over(*frame);
      } else {
        loss_deadline_ = std::min(loss_deadline_, forget_at);
      }
    }
  }
}

void Session::lose(SentFrame& frame, std::uint64_t now) {
  sent_.set_lost(frame);
  path_mtu_.lost(frame.size, frame.probe, now);
  counters_.frame_size = path_mtu_.size();
  if (frame.repair_count == 0) return sent_.set_over(frame);  // a ping
  congestion_.lost();
  for (const Repair& each : frame.to_repair()) repair(each);
}

void Session::repair(const Repair& lost) {
  switch (lost.kind) {
    case ChunkKind::item: {
      Flow* flow = find(lost.id);
      if (flow == nullptr || !flow->outgoing) return;
      if (lost.detail == static_cast<std::uint8_t>(What::end)) {
        flow->end_due = !flow->end_acknowledged;
      } else {
        flow->outgoing->lost(lost.sequence, static_cast<std::uint32_t>(lost.offset), lost.size);
      }
      return queue(*flow);
    }
    case ChunkKind::credit:
      if (Flow* flow = find(lost.id); flow != nullptr) {
        flow->credit_due = true;
        queue(*flow);
      }
      return;
    case ChunkKind::ask:
      if (transfers_.contains(lost.id)) asks_.push_back({lost.id, lost.offset, lost.size});
      return;
    case ChunkKind::data: {
      const auto found = transfers_.find(lost.id);
      if (found == transfers_.end()) return;
      Transfer& transfer = found->second;
      transfer.to_send.add({lost.offset, lost.offset + lost.size});
      for (const ByteRange& range : transfer.acknowledged.ranges()) transfer.to_send.remove(range);
      return queue_data(transfer);
    }
    case ChunkKind::result:
      results_.push_back({lost.id, static_cast<TransferStatus>(lost.detail), lost.sequence});
      return;
    default:
      return;
  }
}

void Session::came(const Repair& what) {
  if (what.kind == ChunkKind::item) {
    Flow* flow = find(what.id);
    if (flow == nullptr || !flow->outgoing) return;
    if (what.detail == static_cast<std::uint8_t>(What::end)) {
      flow->end_acknowledged = true;
      flow->end_due = false;
    } else {
      flow->outgoing->acknowledged(what.sequence, static_cast<std::uint32_t>(what.offset), what.size);
      tell_writable(*flow);
      tell_delivered(*flow);
    }
    settle(*flow);
  } else if (what.kind == ChunkKind::result) {
    Flow* flow = find(what.sequence);
    if (flow == nullptr || flow->results_owed == 0) return;
    --flow->results_owed;
    settle(*flow);
  } else if (what.kind == ChunkKind::data) {
    const auto found = transfers_.find(what.id);
    if (found == transfers_.end()) return;
    Transfer& transfer = found->second;
    transfer.acknowledged.add({what.offset, what.offset + what.size});
    transfer.to_send.remove({what.offset, what.offset + what.size});
    if (transfer.role == Transfer::Role::peers_get && transfer.acknowledged.bytes() == transfer.length) {
      drop_transfer(what.id);
    }
  }
}

}  // namespace viaduct::net
