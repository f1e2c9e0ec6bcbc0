// CRC-32C (Castagnoli): what storage and network protocols use to see that bytes changed on the way. With the
// processor's own instruction where there is one, by table otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace viaduct {

// Of the bytes, going on from the sum of what stood before them: crc32c(b, crc32c(a)) is the sum of a and b in a row.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// The same by table, for processors without the instruction; tests compare the two.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace viaduct
