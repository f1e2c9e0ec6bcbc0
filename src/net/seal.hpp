// The seal of a session that has keys: each frame is encrypted and carries an authenticator, and none is taken twice.
// What stands behind the chunks (docs/formats/net.md, "With a key"): count 8, tag 16. Frames of a direction are counted
// from 1; the count is the cipher's nonce, so it is never used again.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "net/key.hpp"
#include "net/wire.hpp"

namespace viaduct::net {

class Seal {
 public:
  static constexpr std::size_t kOverhead = 24;

  Seal(const SessionKeys& keys, Cipher cipher, bool connecting);
  ~Seal();

  // The frame in `room`: header, chunks, and kOverhead behind them. Its whole size.
  std::size_t close(std::span<std::byte> room, std::size_t size, FrameHeader header);
  // Its chunks, which stay where they are until the next one is opened. Nothing where it was not written by the peer,
  // or has come before.
  std::optional<std::span<const std::byte>> open(const OpenedFrame& frame);

 private:
  static constexpr std::uint64_t kRemembered = 1024;
  struct Direction;
  bool is_fresh(std::uint64_t count) const {
    return count > highest_ || (highest_ - count < kRemembered && !seen_[count % kRemembered]);
  }
  void remember(std::uint64_t count);

  const Cipher cipher_;
  std::unique_ptr<Direction> out_, in_;
  std::uint64_t sent_ = 0;
  std::uint64_t highest_ = 0;  // of the counts that came
  std::bitset<kRemembered> seen_;
  std::vector<std::byte> opened_;
};

}  // namespace viaduct::net
