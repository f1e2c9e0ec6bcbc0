#include "via/channel/channel_format.hpp"

#include <fmt/format.h>

#include <bit>

namespace viaduct::via {

Status ChannelGeometry::check() const {
  if (!std::has_single_bit(slots) || slots < 8 || slots > (1u << 20))
    return Error(EINVAL, fmt::format("channel: {} slots are not a power of two in 8..2^20", slots));
  if (!std::has_single_bit(bulk_bytes) || bulk_bytes < 4096 || bulk_bytes > (std::size_t{1} << 32))
    return Error(EINVAL, fmt::format("channel: bulk area of {} bytes is not a power of two in 4K..4G", bulk_bytes));
  return {};
}

}  // namespace viaduct::via
