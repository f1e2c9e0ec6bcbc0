// How a session fills the next frame: what is owed first, then items, then bulk data.
#include <algorithm>

#include "net/session.hpp"

namespace viaduct::net {

namespace {
constexpr std::size_t kWorthwhile = 64;  // bytes: a smaller part of something waits for the next frame
}

bool Session::has_content() const {
  return !results_.empty() || !asks_.empty() || !sending_.empty() || !data_ready_.empty();
}

SentFrame& Session::number_frame(FrameHeader& header, std::uint64_t now) {
  if (sent_.flying() == 0) {
    waiting_since_ = now;
    probes_in_row_ = 0;
  }
  SentFrame& frame = sent_.add(now);
  header.number = frame.number;
  header.span = static_cast<std::uint16_t>(frame.number - sent_.oldest());
  last_sent_at_ = now;
  return frame;
}

// Of so many bytes, header included.
std::size_t Session::finish_frame(std::span<std::byte> room, std::size_t size, const FrameHeader& header) {
  if (options_.seal == nullptr) {
    seal_frame(room.first(size), header);
  } else {
    size = options_.seal->close(room, size, header);
  }
  ++counters_.frames_sent;
  counters_.bytes_sent += size;
  return size;
}

// A ping in a frame as long as wanted.
std::size_t Session::write_probe(std::span<std::byte> room, std::size_t size, std::uint64_t now) {
  FrameHeader header{};
  header.kind = static_cast<std::uint8_t>(FrameKind::session);
  header.session = options_.peers_number;
  SentFrame& frame = number_frame(header, now);
  frame.probe = true;
  frame.size = static_cast<std::uint32_t>(size);
  path_mtu_.probe_sent();
  room[kHeaderSize] = static_cast<std::byte>(ChunkKind::ping);
  const std::size_t used = finish_frame(room, kHeaderSize + 1, header);
  std::fill(room.begin() + static_cast<std::ptrdiff_t>(used), room.begin() + static_cast<std::ptrdiff_t>(size),
            std::byte{0});
  return size;
}

std::size_t Session::next_frame(std::span<std::byte> whole, std::uint64_t now) {
  const auto room = whole.first(std::min(whole.size(), path_mtu_.size()));
  const std::size_t behind = options_.seal == nullptr ? 0 : Seal::kOverhead;
  Writer writer(room.subspan(kHeaderSize, room.size() - kHeaderSize - behind));
  FrameHeader header{};
  header.kind = static_cast<std::uint8_t>(FrameKind::session);
  header.session = options_.peers_number;
  if (over_ != Over::no) {
    if (!bye_due_) return 0;
    bye_due_ = false;
    --byes_left_;
    writer.put(ChunkKind::bye);
    writer.put(static_cast<std::uint8_t>(over_ == Over::broken));
  } else {
    const bool content = has_content();
    const bool window_open = sent_.flying() < congestion_.window();
    const bool numbered = ((content && window_open) || ping_due_) && !sent_.at_limit();
    const bool ack_due = unacknowledged_ > 0 && (acknowledge_now_ || now >= ack_deadline_);
    if (content && !window_open) {
      ++counters_.window_limited;
      if (window_limited_since_ == 0) window_limited_since_ = now;
    } else if (window_limited_since_ != 0) {
      counters_.window_limited_ns += now - std::exchange(window_limited_since_, 0);
    }
    if (window_open && !sent_.at_limit()) {
      if (const std::size_t size = path_mtu_.probe(now); size != 0 && size <= whole.size()) {
        return write_probe(whole, size, now);
      }
    }
    if (!numbered && !ack_due) return 0;
    if (unacknowledged_ > 0) write_ack(writer, now);
    if (numbered) {
      SentFrame& frame = number_frame(header, now);
      ping_due_ = false;
      Composing composing{writer, &frame};
      if (window_open) {
        write_results(composing);
        write_asks(composing);
        write_flows(composing);
        write_data(composing);
      }
      writer = composing.writer;
      if (frame.repair_count == 0) writer.put(ChunkKind::ping);
      frame.size = static_cast<std::uint32_t>(kHeaderSize + writer.used() + behind);
    } else {
      ++counters_.acks_alone;
    }
  }
  return finish_frame(room, kHeaderSize + writer.used(), header);
}

void Session::write_results(Composing& composing) {
  while (!results_.empty() && composing.writer.left() >= 6 && !composing.frame->full()) {
    const ResultDue due = results_.front();
    results_.pop_front();
    composing.writer.put(ChunkKind::result);
    composing.writer.put(due.transfer);
    composing.writer.put(due.status);
    composing.frame->note({.kind = ChunkKind::result,
                           .detail = static_cast<std::uint8_t>(due.status),
                           .id = due.transfer,
                           .sequence = due.flow});
  }
}

void Session::write_asks(Composing& composing) {
  while (!asks_.empty() && composing.writer.left() >= 17 && !composing.frame->full()) {
    const Ask ask = asks_.front();
    asks_.pop_front();
    composing.writer.put(ChunkKind::ask);
    composing.writer.put(ask.transfer);
    composing.writer.put(ask.offset);
    composing.writer.put(ask.size);
    composing.frame->note({.kind = ChunkKind::ask, .id = ask.transfer, .size = ask.size, .offset = ask.offset});
  }
}

// The flows take turns, a frame's rest each.
void Session::write_flows(Composing& composing) {
  while (!sending_.empty() && composing.writer.left() >= kFragmentOverhead + kWorthwhile && !composing.frame->full()) {
    Flow& flow = *find(sending_.front());
    sending_.pop_front();
    flow.queued = false;
    if (write_flow(composing, flow)) queue(flow);
  }
}

// True: it has more to send.
bool Session::write_flow(Composing& composing, Flow& flow) {
  Writer& writer = composing.writer;
  if (flow.credit_due || flow.incoming.credit_due()) {
    flow.credit_due = false;
    writer.put(ChunkKind::credit);
    writer.put(flow.id);
    writer.put(flow.incoming.tell_limit());
    composing.frame->note({.kind = ChunkKind::credit, .id = flow.id});
  }
  if (!flow.outgoing || flow.state == Flow::State::gone) return false;
  OutgoingItems& outgoing = *flow.outgoing;
  const auto has_room = [&] { return writer.left() >= kFragmentOverhead + kWorthwhile && !composing.frame->full(); };
  while (outgoing.wants_to_send()) {
    if (!has_room()) return true;
    const auto part = outgoing.take(writer.left() - kFragmentOverhead);
    const bool whole = part.bytes.size() == part.total;
    writer.put(whole ? ChunkKind::item : ChunkKind::fragment);
    writer.put(part.what);
    writer.put(flow.id);
    writer.put(part.sequence);
    if (!whole) {
      writer.put(part.total);
      writer.put(part.offset);
    }
    writer.put(static_cast<std::uint16_t>(part.bytes.size()));
    writer.put_bytes(part.bytes);
    composing.frame->note({.kind = ChunkKind::item,
                           .detail = static_cast<std::uint8_t>(part.what),
                           .id = flow.id,
                           .sequence = part.sequence,
                           .size = static_cast<std::uint32_t>(part.bytes.size()),
                           .offset = part.offset});
  }
  if (flow.end_due) {
    if (!has_room()) return true;
    flow.end_due = false;
    writer.put(ChunkKind::item);
    writer.put(What::end);
    writer.put(flow.id);
    writer.put(outgoing.next());
    writer.put(std::uint16_t{0});
    composing.frame->note({.kind = ChunkKind::item,
                           .detail = static_cast<std::uint8_t>(What::end),
                           .id = flow.id,
                           .sequence = outgoing.next()});
  }
  return false;
}

void Session::write_data(Composing& composing) {
  while (!data_ready_.empty() && composing.writer.left() >= kDataOverhead + kWorthwhile && !composing.frame->full()) {
    const std::uint32_t id = data_ready_.front();
    data_ready_.pop_front();
    Transfer& transfer = transfers_.find(id)->second;
    transfer.queued = false;
    if (write_data_of(composing, transfer)) queue_data(transfer);
  }
}

// False: it is over, or its memory cannot be reached any more.
bool Session::write_data_of(Composing& composing, Transfer& transfer) {
  if (transfer.to_send.empty()) return true;
  Writer& writer = composing.writer;
  const std::size_t most = std::min<std::size_t>(writer.left() - kDataOverhead, UINT16_MAX);
  const ByteRange range = transfer.to_send.take_front(most);
  const std::byte* from = transfer.local + range.begin;
  if (!transfer.ours()) {
    const auto reached = memory_.reach(transfer.user, transfer.tag, transfer.address + range.begin, range.size(),
                                       RegisteredMemory::Access::read);
    if (reached.status != TransferStatus::done) {
      results_.push_back({transfer.id, reached.status, 0});
      drop_transfer(transfer.id);
      return false;
    }
    from = reached.at;
  }
  writer.put(ChunkKind::data);
  writer.put(transfer.id);
  writer.put(range.begin);
  writer.put(static_cast<std::uint16_t>(range.size()));
  writer.put_bytes({from, range.size()});
  composing.frame->note({.kind = ChunkKind::data,
                         .id = transfer.id,
                         .size = static_cast<std::uint32_t>(range.size()),
                         .offset = range.begin});
  return true;
}

}  // namespace viaduct::net
