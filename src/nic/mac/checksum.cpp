#include "nic/mac/checksum.hpp"

#include <arpa/inet.h>

#include <cstring>

namespace viaduct::nic {

bool complete_checksum(std::span<std::byte> frame, std::uint32_t start, std::uint32_t offset) {
  if (start > frame.size() || frame.size() - start < 2 || offset > frame.size() - start - 2) return false;
  std::uint64_t sum = 0;
  const std::byte* at = frame.data() + start;
  std::size_t left = frame.size() - start;
  for (; left >= 4; left -= 4, at += 4) {
    std::uint32_t word;
    std::memcpy(&word, at, 4);
    sum += word;
  }
  std::uint32_t rest = 0;
  std::memcpy(&rest, at, left);
  sum += rest;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  auto result = static_cast<std::uint16_t>(~sum);
  if (result == 0) result = 0xffff;  // none, to UDP
  std::memcpy(frame.data() + start + offset, &result, sizeof result);
  return true;
}

void insert_vlan_tag(std::byte* frame, std::uint16_t protocol, std::uint16_t tag) {
  std::memmove(frame - 4, frame, 12);
  const std::uint16_t words[2] = {htons(protocol), htons(tag)};
  std::memcpy(frame + 8, words, sizeof words);
}

}  // namespace viaduct::nic
