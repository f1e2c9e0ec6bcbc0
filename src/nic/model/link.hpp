// The MAC: transmit and receive channels, each with its buffer in SRAM, at the same time on a full-duplex link.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

#include "nic/model/bus.hpp"

namespace viaduct::nic::model {

// Checksum, preamble and gap; frames are padded to 60 bytes.
inline Time wire_time(std::uint32_t length, double bits_per_s) {
  return seconds_to_time((std::max<std::uint32_t>(length, 60) + 4 + 20) * 8 / bits_per_s);
}

constexpr std::uint32_t kSlots = 64;
constexpr std::uint32_t kSlotBytes = 1536;

class TransmitChannel {
 public:
  TransmitChannel(const Card& card, Calendar& calendar, Sram& sram)
      : card_(card), calendar_(calendar), sram_(sram), memory_(std::size_t{kSlots} * kSlotBytes) {}

  std::byte* buffer() { return used_ == kSlots ? nullptr : memory_.data() + std::size_t{next_ % kSlots} * kSlotBytes; }
  // Goes out when as many transfers of the read channel are complete.
  void enqueue(Time at, std::uint32_t length, std::uint64_t after_reads) {
    waiting_.push_back({at, length, after_reads});
    ++next_, ++used_;
    calendar_.enter(at, What::transmit_ready);
  }
  void start(std::uint64_t reads_done) {
    if (busy_ || waiting_.empty()) return;
    const Waiting& frame = waiting_.front();
    if (frame.at > calendar_.now() || frame.after_reads > reads_done) return;
    busy_ = true;
    calendar_.enter(calendar_.now() + wire_time(frame.length, card_.link_bits_per_s), What::frame_sent);
  }
  // The tag of the frame that is out.
  std::uint64_t finish() {
    std::uint64_t tag;
    std::memcpy(&tag, memory_.data() + (next_ - used_) % kSlots * kSlotBytes, sizeof tag);
    sram_.moved(calendar_.now(), Sram::kMac, waiting_.front().length);
    waiting_.pop_front();
    --used_;
    busy_ = false;
    return tag;
  }
  std::uint32_t used() const { return used_; }

 private:
  struct Waiting {
    Time at;
    std::uint32_t length;
    std::uint64_t after_reads;
  };
  const Card& card_;
  Calendar& calendar_;
  Sram& sram_;
  std::vector<std::byte> memory_;
  std::deque<Waiting> waiting_;
  std::uint64_t next_ = 0;
  std::uint32_t used_ = 0;
  bool busy_ = false;
};

class ReceiveChannel {
 public:
  explicit ReceiveChannel(Sram& sram) : sram_(sram), memory_(std::size_t{kSlots} * kSlotBytes), length_(kSlots) {}

  std::uint32_t free() const { return kSlots - static_cast<std::uint32_t>(arrived_ - released_); }
  void put(Time now, std::uint32_t length, std::uint64_t tag) {
    std::memcpy(slot(arrived_), &tag, sizeof tag);
    length_[arrived_++ % kSlots] = length;
    sram_.moved(now, Sram::kMac, length);
  }
  bool waiting() const { return taken_ != arrived_; }
  Frame head() { return {slot(taken_), length_[taken_ % kSlots]}; }
  void take() { ++taken_; }
  void release() { ++released_; }
  std::uint64_t held() const { return arrived_ - released_; }

 private:
  std::byte* slot(std::uint64_t index) { return memory_.data() + index % kSlots * kSlotBytes; }

  Sram& sram_;
  std::vector<std::byte> memory_;
  std::vector<std::uint32_t> length_;
  std::uint64_t arrived_ = 0, taken_ = 0, released_ = 0;
};

}  // namespace viaduct::nic::model
