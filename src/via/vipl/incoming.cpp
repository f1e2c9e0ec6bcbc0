#include "via/vipl/incoming.hpp"

#include <cstring>
#include <utility>

namespace viaduct::vipl {

// ---- messages of one fragment

bool Incoming::take_send(const via::Fragment& fragment, Effects& effects) {
  const std::uint32_t word = fragment.immediate;
  const std::size_t head = (word & kWithImmediate) != 0 ? sizeof(std::uint32_t) : 0;
  std::uint32_t immediate = 0;
  if (!fragment.last || fragment.bytes.size() < head) return false;
  std::memcpy(&immediate, fragment.bytes.data(), head);
  const auto bytes = fragment.bytes.subspan(head);
  if (!receives_.find(bytes.size(), effects)) return true;
  Receives::place_small(receives_.next(), bytes);
  receives_.finish_next(VIP_STATUS_OP_RECEIVE, word, immediate, static_cast<std::uint32_t>(bytes.size()), effects);
  account_.placed_here();
  return true;
}

bool Incoming::take_rdma_done(const via::Fragment& fragment, Effects& effects) {
  RdmaDoneHeader header;
  if (!fragment.last || !read_header(fragment, header)) return false;
  if (!receives_.find(0, effects)) return true;
  receives_.finish_next(VIP_STATUS_OP_REMOTE_RDMA_WRITE, kWithImmediate, header.immediate, header.length, effects);
  account_.placed_here();
  return true;
}

// ---- messages of several

bool Incoming::start(const via::Fragment& fragment, Effects& effects) {
  std::size_t header = 0;
  switch (kind_of(fragment.immediate)) {
    case kLongSend:
      if (!start_long_send(fragment, header, effects)) return false;
      break;
    case kWrite:
      if (!Rdma::start_write(fragment, in_, header)) return false;
      break;
    case kReadReply:
      if (!rdma_.start_reply(fragment, in_, header)) return false;
      break;
    default:
      return false;
  }
  in_.word = fragment.immediate;
  if (!link_.intact()) return true;
  return take_bytes(fragment.bytes.subspan(header), fragment.last, effects);
}

bool Incoming::go_on(const via::Fragment& fragment, Effects& effects) {
  if (fragment.immediate != in_.word || fragment.bytes.empty()) return false;
  return take_bytes(fragment.bytes, fragment.last, effects);
}

bool Incoming::take_bytes(std::span<const std::byte> bytes, bool last, Effects& effects) {
  const bool complete_now = bytes.size() == in_.length - in_.have;
  if (bytes.size() > in_.length - in_.have || last != complete_now) return false;
  switch (in_.kind()) {
    case kLongSend:
      if (in_.has_receive) place_long_send(bytes, effects);
      break;
    case kWrite:
      rdma_.place_write(bytes, in_);
      break;
    case kReadReply:
      rdma_.place_reply(bytes, in_);
      break;
    default:
      break;
  }
  in_.have += static_cast<std::uint32_t>(bytes.size());
  if (last && link_.intact()) end_of_message(effects);
  return true;
}

void Incoming::end_of_message(Effects& effects) {
  const auto done = std::exchange(in_, {});
  switch (done.kind()) {
    case kLongSend:
      if (done.has_receive)
        receives_.finish_next(VIP_STATUS_OP_RECEIVE, done.word, done.immediate, done.length, effects);
      break;
    case kWrite:
      if ((done.word & kWithImmediate) == 0) break;
      if (!receives_.find(0, effects)) return;
      receives_.finish_next(VIP_STATUS_OP_REMOTE_RDMA_WRITE, done.word, done.immediate, done.length, effects);
      break;
    case kReadReply:
      return rdma_.end_of_reply(effects);
    default:
      break;
  }
  account_.placed_here();
}

bool Incoming::start_long_send(const via::Fragment& fragment, std::size_t& header_size, Effects& effects) {
  LongHeader header;
  if (fragment.last || !read_header(fragment, header) || header.length > kMostTransfer) return false;
  header_size = sizeof header;
  in_.length = header.length;
  in_.immediate = header.immediate;
  in_.has_receive = receives_.find(header.length, effects);
  return true;
}

// Checked for each fragment: the program may deregister while they come.
void Incoming::place_long_send(std::span<const std::byte> bytes, Effects& effects) {
  if (receives_.next_is_still_allowed()) return Receives::place(receives_.next(), in_.have, bytes);
  in_.has_receive = false;
  receives_.next_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects);
}

}  // namespace viaduct::vipl
