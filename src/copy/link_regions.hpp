// Which engine-owned regions the two sides of a link share: ours that the peer was given, and the peer's that we map.
//
// Both tables have kMost places. The owner decides: before the first post that names a region it sends the descriptor
// for a place of its choice, so a post never names a region whose message is not already on its way. A place is given
// to another region only while no posted transfer uses it. Regions freed by the owner are forgotten at the peer with
// the owner's next post.
//
// Thread safety: under the link's lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "copy/link_control.hpp"
#include "copy/region.hpp"

namespace viaduct::copy {

constexpr std::size_t kMostSharedRegions = 64;

class GivenRegions {
 public:
  struct Place {
    int index = -1;  // none: to the peer this is ordinary memory
    std::uint64_t region = 0;
    std::uint64_t offset = 0;
  };

  // Where the peer finds the buffer; gives it the region if need be. A place is in use until released.
  Place place(const void* buffer, std::size_t length, ControlSocket& control);
  void release(int index);

 private:
  struct Entry {
    std::uint64_t id = 0;
    const std::byte* base = nullptr;
    std::size_t size = 0;
    std::uint32_t uses = 0;
    bool holds(const void* buffer, std::size_t length) const {
      const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(buffer) - base);
      return id != 0 && offset < size && length <= size - offset;
    }
  };

  Place use(std::size_t index, const void* buffer);
  void forget_freed(ControlSocket& control);

  std::array<Entry, kMostSharedRegions> entries_{};
  std::size_t latest_ = 0;        // where the last buffer was found
  std::size_t next_to_give_ = 0;  // where to look for a place
  std::uint64_t removals_seen_ = 0;
};

class PeerRegions {
 public:
  // False: the message makes no sense.
  bool add(std::uint32_t index, std::uint64_t id, Fd fd, bool map);
  bool forget(std::uint32_t index, std::uint64_t id);

  // Known but not mapped (no memory, no descriptors): the segment is empty.
  struct Found {
    bool known = false;
    std::shared_ptr<const Segment> segment;
  };
  Found find(std::uint64_t id);

 private:
  struct Entry {
    std::uint64_t id = 0;
    std::shared_ptr<const Segment> segment;
  };
  std::array<Entry, kMostSharedRegions> entries_{};
  std::size_t latest_ = 0;
};

}  // namespace viaduct::copy
