// What a sender on this machine leaves to the network card: a checksum, and a tag that travels beside the frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace viaduct::nic {

// Sums from `start` to the end of the frame and writes the result at start + offset. False: those lie outside.
bool complete_checksum(std::span<std::byte> frame, std::uint32_t start, std::uint32_t offset);

// Puts the tag behind the addresses: the frame grows by 4 bytes at its front, which must be writable.
void insert_vlan_tag(std::byte* frame, std::uint16_t protocol, std::uint16_t tag);

}  // namespace viaduct::nic
