// What a session does with a frame that came.
#include <algorithm>

#include "net/session.hpp"

namespace viaduct::net {

namespace {
constexpr std::uint32_t kAcknowledgeAfter = 16;  // frames
constexpr std::uint64_t kDoubt = 1'000'000'000;  // ns
constexpr std::uint64_t kAckDelay = 25'000;      // ns that an ack may wait for something to ride on
}  // namespace

bool Session::receive(const OpenedFrame& frame, std::uint64_t now, bool marked) {
  if (options_.seal == nullptr) {
    if ((frame.header.flags & kSealed) != 0) return ++counters_.forged, false;
    take_frame(frame, now, marked);
    return true;
  }
  const auto chunks = options_.seal->open(frame);
  if (!chunks) return ++counters_.forged, false;
  take_frame({frame.header, *chunks}, now, marked);
  return true;
}

// With a key whoever sees frames could say so and cannot be asked to prove it: he is believed when the peer itself has
// said nothing for a while.
void Session::peer_forgot(std::uint64_t now) {
  if (over_ != Over::no) return;
  if (options_.seal != nullptr) {
    if (doubted_at_ == 0 || heard_at_ >= doubted_at_) {
      doubted_at_ = std::max<std::uint64_t>(now, 1);
      return;
    }
    if (now < doubted_at_ + kDoubt) return;
  }
  end_session(Over::forgotten);
}

void Session::take_frame(const OpenedFrame& frame, std::uint64_t now, bool marked) {
  ++counters_.frames_received;
  counters_.bytes_received += frame.header.length;
  if (over_ != Over::no) {
    // The peer has not heard of the end.
    if (over_ != Over::finished_there && frame.header.number != 0 && byes_left_ > 0) bye_due_ = true;
    return;
  }
  const std::uint64_t number = frame.header.number;
  const bool numbered = number != 0;
  bool out_of_order = false;
  if (numbered) {
    if (number > frame.header.span) received_.give_up_below(number - frame.header.span);
    switch (received_.look(number)) {
      case ReceivedNumbers::Verdict::had:
        ++counters_.duplicates;
        return;
      case ReceivedNumbers::Verdict::too_far:
        ++counters_.out_of_window;
        return;
      case ReceivedNumbers::Verdict::fresh:
        break;
    }
    out_of_order = number != highest_came_ + 1;
  }
  heard_at_ = now;
  if (silent_since_ != 0) counters_.silent_ns += now - std::exchange(silent_since_, 0);
  marks_ += marked ? 1 : 0;
  Reader reader(frame.chunks);
  while (!reader.done()) {
    if (!take_chunk(reader, numbered, now)) return break_session();
    if (over_ != Over::no) return;
  }
  if (!reader.good()) return break_session();
  if (numbered) {
    received_.add(number);
    note_arrival(number, now, out_of_order || received_.has_gap());
  }
}

void Session::note_arrival(std::uint64_t number, std::uint64_t now, bool out_of_order) {
  if (number > highest_came_) {
    highest_came_ = number;
    highest_came_at_ = now;
  }
  ++unacknowledged_;
  if (out_of_order || unacknowledged_ >= kAcknowledgeAfter) acknowledge_now_ = true;
  if (ack_deadline_ == kNever) ack_deadline_ = now + kAckDelay;
}

// False: impossible. A frame without a number has acks and byes only, for it may come again.
bool Session::take_chunk(Reader& reader, bool numbered, std::uint64_t now) {
  const auto kind = reader.get<ChunkKind>();
  if (!numbered && kind != ChunkKind::ack && kind != ChunkKind::bye) return false;
  switch (kind) {
    case ChunkKind::ack:
      return take_ack(reader, now);
    case ChunkKind::item:
    case ChunkKind::fragment:
      return take_item(reader, kind);
    case ChunkKind::credit:
      return take_credit(reader);
    case ChunkKind::ask:
      return take_ask(reader);
    case ChunkKind::data:
      return take_data(reader);
    case ChunkKind::result:
      return take_result(reader);
    case ChunkKind::ping:
      acknowledge_now_ = true;
      return true;
    case ChunkKind::bye: {
      reader.get<std::uint8_t>();
      if (!reader.good()) return false;
      end_session(Over::finished_there);
      return true;
    }
  }
  return false;
}

bool Session::take_item(Reader& reader, ChunkKind kind) {
  const auto what = reader.get<What>();
  const auto flow_number = reader.get<std::uint32_t>();
  const auto sequence = reader.get<std::uint32_t>();
  const bool whole = kind == ChunkKind::item;
  auto total = whole ? 0 : reader.get<std::uint32_t>();
  const auto offset = whole ? 0 : reader.get<std::uint32_t>();
  const auto size = reader.get<std::uint16_t>();
  const auto bytes = reader.get_bytes(size);
  if (!reader.good()) return false;
  if (whole) total = size;
  const bool control = what >= What::open;
  if (what > What::close || control != (flow_number == kControlFlow)) return false;
  Flow* flow = find(flow_number);
  if (flow == nullptr) return true;  // closed here, and the peer does not know yet
  if (what == What::end) return size == 0 && take_end(*flow, sequence);
  switch (flow->incoming.place(what, sequence, total, offset, bytes)) {
    case IncomingItems::Placed::impossible:
      return false;
    case IncomingItems::Placed::had:
      return true;
    case IncomingItems::Placed::fresh:
      break;
  }
  if (control) return take_control(*flow);
  advance(*flow);
  return over_ != Over::broken;
}

bool Session::take_end(Flow& flow, std::uint32_t sequence) {
  if (!flow.incoming.end_at(sequence)) return false;
  advance(flow);
  return true;
}

bool Session::take_credit(Reader& reader) {
  const auto flow_number = reader.get<std::uint32_t>();
  const auto limit = reader.get<std::uint32_t>();
  if (!reader.good()) return false;
  Flow* flow = find(flow_number);
  if (flow == nullptr || !flow->outgoing) return true;
  if (!flow->outgoing->grant(limit)) return false;
  if (flow_number == kControlFlow) {
    drain_backlog();
  } else {
    tell_writable(*flow);
  }
  return true;
}

}  // namespace viaduct::net
