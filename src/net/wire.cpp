#include "net/wire.hpp"

#include "base/crc32c.hpp"

namespace viaduct::net {

void fill_in(FrameHeader& header, std::size_t size) {
  header.version = kVersion;
  header.length = static_cast<std::uint16_t>(size);
}

void seal_frame(std::span<std::byte> frame, FrameHeader header) {
  fill_in(header, frame.size());
  std::memcpy(frame.data(), &header, kHeaderSize);
  const std::uint32_t checksum = crc32c(frame.subspan(sizeof header.checksum));
  std::memcpy(frame.data(), &checksum, sizeof checksum);
}

std::optional<OpenedFrame> open_frame_of_any_version(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderSize) return std::nullopt;
  OpenedFrame frame{};
  std::memcpy(&frame.header, bytes.data(), kHeaderSize);
  const FrameHeader& header = frame.header;
  if (header.length < kHeaderSize || header.length > bytes.size()) return std::nullopt;
  const auto whole = bytes.first(header.length);
  if (crc32c(whole.subspan(sizeof header.checksum)) != header.checksum) return std::nullopt;
  frame.chunks = whole.subspan(kHeaderSize);
  return frame;
}

std::optional<OpenedFrame> open_frame(std::span<const std::byte> bytes) {
  const auto frame = open_frame_of_any_version(bytes);
  if (!frame || frame->header.version != kVersion) return std::nullopt;
  if ((frame->header.flags & ~kSealed) != 0 || frame->header.span >= kNumbersTracked) return std::nullopt;
  return frame;
}

}  // namespace viaduct::net
