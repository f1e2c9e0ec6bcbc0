#include "via/vipl/connect.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace viaduct::vipl {

std::optional<Description> read_description(std::span<const std::byte> words) {
  Description description;
  if (words.size() != sizeof description) return std::nullopt;
  std::memcpy(&description, words.data(), sizeof description);
  if (!sane(description.local) || !sane(description.remote)) return std::nullopt;
  return description;
}

VIP_VI_ATTRIBUTES attributes_of(const Description& description) {
  VIP_VI_ATTRIBUTES attributes{};
  attributes.ReliabilityLevel = description.reliability;
  attributes.MaxTransferSize = description.max_transfer;
  attributes.EnableRdmaWrite = description.enable_write != 0;
  attributes.EnableRdmaRead = description.enable_read != 0;
  return attributes;
}

std::span<const std::byte> refusal(const VIP_RETURN& why) {
  return std::as_bytes(std::span(&why, 1));
}

VIP_RETURN read_refusal(std::span<const std::byte> words) {
  std::uint32_t why = 0;
  static_assert(sizeof why == sizeof(VIP_RETURN));
  if (words.size() == sizeof why) std::memcpy(&why, words.data(), sizeof why);
  const bool known = why != VIP_SUCCESS && why <= VIP_ERROR_NOT_SUPPORTED;
  return known ? static_cast<VIP_RETURN>(why) : VIP_REJECT;
}

VIP_RETURN agree(const Description& mine, const Description& theirs) {
  if (mine.reliability != theirs.reliability) return VIP_INVALID_RELIABILITY_LEVEL;
  if (mine.max_transfer != theirs.max_transfer) return VIP_INVALID_MTU;
  return VIP_SUCCESS;
}

via::ChannelOptions channel_for(std::size_t max_transfer) {
  constexpr std::size_t kLeast = std::size_t{16} << 10, kMost = std::size_t{256} << 10;
  const std::size_t bulk = std::clamp(std::bit_ceil(max_transfer) * 4, kLeast, kMost);
  return {.bulk_bytes = bulk, .slots = bulk == kMost ? 128u : 64u};
}

}  // namespace viaduct::vipl
