// Packets that go out: where their data comes from, and what is done when they have left.
#include <algorithm>
#include <cstring>

#include "bench/sovia_end.hpp"

namespace viaduct::bench {

void SoviaEnd::send(std::span<const std::byte> data) {
  Lock lock = guard();
  if (!two_way()) return send_three_way(data, lock);
  while (!data.empty()) {
    const std::span<const std::byte> part = data.first(std::min(data.size(), kSoviaChunk));
    data = data.subspan(part.size());
    if (options_.combine && is_small(part.size())) {
      append(part, lock);
    } else {
      flush(lock);
      send_message(part, lock);
    }
  }
}

void SoviaEnd::send_message(std::span<const std::byte> part, Lock& lock) {
  const bool copy = options_.data == SoviaOptions::Data::buffered ||
                    (options_.data == SoviaOptions::Data::hybrid && is_small(part.size()));
  Source source;
  if (copy) {
    source.chunk = take_chunk();
    std::memcpy(source.chunk, part.data(), part.size());
    source.bytes = {source.chunk, part.size()};
    source.handle = memory_->handle();
    ++counts_.copied;
  } else {
    source = {part, registrations_.begin(part), nullptr, true};
    ++counts_.registered;
  }
  await(lock, [this] { return window_ > 0; });
  send_packet(Kind::data, source, 0);
  if (!copy) reap(0);  // by reference: the caller may change it as soon as we return
}

// Everything that goes out takes the delayed acknowledgements along.
void SoviaEnd::send_packet(Kind kind, const Source& source, std::uint32_t amount) {
  if (under_way_ == sends_) reap(sends_ - 1);
  const std::uint32_t at = next_send_++ % sends_;
  VIP_DESCRIPTOR* const descriptor = memory_->descriptor(receives_ + options_.window + at);
  const SoviaPacket packet{kind, delayed_, amount};
  delayed_ = 0;
  const auto length = static_cast<VIP_UINT32>(source.bytes.size());
  descriptor->CS.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE;
  descriptor->CS.ImmediateData = packet.word();
  descriptor->CS.SegCount = length != 0 ? 1 : 0;
  descriptor->CS.Length = length;
  descriptor->DS[0].Local = {{.Address = const_cast<std::byte*>(source.bytes.data())}, source.handle, length};
  sources_[at] = source;
  if (kind == Kind::data && two_way()) --window_;
  counts_.data += kind == Kind::data;
  counts_.acks += kind == Kind::ack;
  counts_.requests += kind == Kind::request;
  ++under_way_;
  must(VipPostSend(vi_, descriptor, memory_->handle()), "VipPostSend");
  reap_completed();
}

// While we wait here the provider goes on taking messages into posted receives, so that two ends whose sends wait for
// room do not wait for each other.
std::byte* SoviaEnd::take_chunk() {
  for (;;) {
    if (std::byte* const chunk = memory_->take_chunk()) return chunk;
    reap(under_way_ - 1);
  }
}

void SoviaEnd::reap(std::uint32_t most_under_way) {
  while (under_way_ > most_under_way) {
    VIP_DESCRIPTOR* done = nullptr;
    const VIP_RETURN result = VipSendDone(vi_, &done);
    if (result == VIP_NOT_DONE) {
      polled_in_vain();
      continue;
    }
    must(result, "VipSendDone");
    retire();
  }
}

void SoviaEnd::reap_completed() {
  while (under_way_ > 0) {
    VIP_DESCRIPTOR* done = nullptr;
    const VIP_RETURN result = VipSendDone(vi_, &done);
    if (result == VIP_NOT_DONE) return;
    must(result, "VipSendDone");
    retire();
  }
}

// The oldest that is under way: sends complete in order.
void SoviaEnd::retire() {
  const Source& source = sources_[(next_send_ - under_way_) % sends_];
  if (source.chunk != nullptr) memory_->give_chunk(source.chunk);
  if (source.registered) registrations_.end(source.bytes, source.handle);
  --under_way_;
}

}  // namespace viaduct::bench
