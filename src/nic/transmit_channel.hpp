// The MAC transmit channel of the live adapter: the transmit buffer, a ring of bytes in which every frame is in one
// piece, and the queue of frames in it. A frame goes to the MAC once the transfers that fill it are complete; frames go
// in order. Belongs to the processor of Send Data Ready.
#pragma once

#include <viaduct/nic_mac.hpp>

#include <array>
#include <memory>

namespace viaduct::nic {

class TransmitChannel {
 public:
  static constexpr std::uint32_t kFrames = 512;

  TransmitChannel(Mac& mac, std::uint32_t max_frame)
      : mac_(mac), size_(std::max(std::uint32_t{512} << 10, 8 * rounded(max_frame))), bytes_(new std::byte[size_]) {}

  // Null: no room until flush() has sent something.
  std::byte* allocate(std::uint32_t length) {
    if (tail_ - head_ == kFrames) return nullptr;
    if (head_ == tail_) read_ = write_ = 0;  // what is empty starts over: it stays in the cache
    const std::uint32_t need = rounded(length);
    if (write_ >= read_ && need > size_ - write_) {
      if (need >= read_) return nullptr;
      write_ = 0;
    } else if (write_ < read_ && need >= read_ - write_) {
      return nullptr;
    }
    starts_[tail_ % kFrames] = write_;
    write_ += need;
    return bytes_.get() + starts_[tail_ % kFrames];
  }
  // The frame allocated last, to be sent once the read channel has settled `after` transfers.
  void enqueue(const std::byte* data, std::uint32_t length, std::uint32_t after) {
    frames_[tail_ % kFrames] = {data, length};
    after_[tail_ % kFrames] = after;
    ++tail_;
  }

  bool empty() const { return head_ == tail_; }
  // Hands over what is ready; says how many frames the MAC took.
  std::size_t flush(std::uint32_t settled) {
    std::size_t sent = 0;
    while (head_ != tail_) {
      const std::uint32_t slot = head_ % kFrames;
      const std::uint32_t limit = std::min(tail_ - head_, kFrames - slot);
      std::uint32_t ready = 0;
      while (ready < limit && static_cast<std::int32_t>(settled - after_[slot + ready]) >= 0) ++ready;
      if (ready == 0) break;
      const std::size_t taken = mac_.transmit({&frames_[slot], ready});
      head_ += static_cast<std::uint32_t>(taken);
      sent += taken;
      if (head_ != tail_) read_ = starts_[head_ % kFrames];
      if (taken < ready) break;
    }
    return sent;
  }

 private:
  static std::uint32_t rounded(std::uint32_t length) { return (length + 63) & ~std::uint32_t{63}; }

  Mac& mac_;
  const std::uint32_t size_;
  std::unique_ptr<std::byte[]> bytes_;
  std::uint32_t read_ = 0, write_ = 0;  // bytes from read_ to write_ (round the end) are in use
  std::uint32_t head_ = 0, tail_ = 0;
  std::array<Frame, kFrames> frames_{};
  std::array<std::uint32_t, kFrames> after_{};
  std::array<std::uint32_t, kFrames> starts_{};
};

}  // namespace viaduct::nic
