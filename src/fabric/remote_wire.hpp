// What endpoints of libfabric say to each other about memory (docs/formats/fabric.md), as control messages of `mx`.
// Little endian; every field is checked by whoever reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace viaduct::fabric {

enum class RemoteWord : std::uint32_t {
  key_wanted = 1,  // KeyWanted
  key = 2,         // Key
  ask = 3,         // Ask, then bytes to be written, or operands
  answer = 4,      // Answer, then bytes that were read
  notice = 5,      // Notice: a write with data is in place
  rank = 6,        // Rank: of an MPI program that tells its paths
};

inline constexpr std::size_t kMostAsked = 896;  // bytes behind an Ask or an Answer

struct KeyWanted {
  std::uint64_t key;
};
struct Key {
  std::uint64_t key;      // as asked
  std::uint64_t address;  // of the region's first byte
  std::uint64_t length;
  std::uint32_t exposed;  // the key below; 0: there is no such region
  std::uint32_t unused;
};
struct Ask {
  std::uint64_t number;  // of the operation, for the answer
  std::uint64_t key;
  std::uint64_t offset;
  std::uint32_t length;  // bytes there
  std::uint8_t kind;     // RemoteKind
  std::uint8_t datatype;
  std::uint8_t op;
  std::uint8_t unused;
};
struct Answer {
  std::uint64_t number;
  std::uint32_t error;  // of FI_E*
  std::uint32_t length;
};
struct Notice {
  std::uint64_t data;
  std::uint64_t length;
};
struct Rank {
  std::int32_t rank;  // -1: it has none
};
static_assert(sizeof(Key) == 32 && sizeof(Ask) == 32 && sizeof(Answer) == 16 && sizeof(Notice) == 16);

template <class Head>
std::vector<std::byte> with_head(const Head& head, std::span<const std::byte> rest = {}) {
  std::vector<std::byte> bytes(sizeof head + rest.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!rest.empty()) std::memcpy(bytes.data() + sizeof head, rest.data(), rest.size());
  return bytes;
}

// Takes it off the front; nothing: there are not so many bytes.
template <class Head>
std::optional<Head> take_head(std::span<const std::byte>& bytes) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes = bytes.subspan(sizeof head);
  return head;
}

}  // namespace viaduct::fabric
