// A peer of a channel played by hand: the test holds the peer's socket and maps the same segment. Fragments must lie
// inside the channel's own mapping, which has pages around it that must not be touched.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/child.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/segment.hpp"
#include "base/socket_message.hpp"
#include "via/channel/channel_format.hpp"
#include "via/messages.hpp"

namespace viaduct::via::testing {

constexpr ChannelGeometry kGeometry{kSmall.slots, kSmall.bulk_bytes};

class ChannelHostile : public ::testing::Test {
 protected:
  ChannelHostile() {
    (void)Config::process();  // sets the level when it is first read
    log::set_level("off");    // each of these is a line for the user
  }
  ~ChannelHostile() override { log::set_level("warn"); }
  const viaduct::testing::HangGuard guard_;
};

inline Segment segment_with(std::uint64_t layout, std::size_t bytes, std::uint32_t slots, std::uint64_t bulk_bytes) {
  Segment segment = *Segment::create({"test-channel", layout, bytes});
  segment.as<ChannelControl>()->slots = slots;
  segment.as<ChannelControl>()->bulk_bytes = bulk_bytes;
  return segment;
}

inline void send_descriptor(int socket, char byte, int fd) {
  const std::byte bytes[] = {static_cast<std::byte>(byte)};
  (void)send_with_fds(socket, bytes, {&fd, 1});
}

struct Range {
  std::uintptr_t from = 0, to = 0;
  bool holds(std::span<const std::byte> bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
    return at >= from && bytes.size() <= to - from && at <= to - bytes.size();
  }
};

// The mapping of the memfd of that name that is not yet in `known`.
inline Range find_mapping(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:" + name + " ") != std::string::npos) {
      Range range;
      if (std::sscanf(line.c_str(), "%lx-%lx", &range.from, &range.to) == 2) return range;
    }
  return {};
}

// Pages around a mapping that must not be touched, where nothing else is there already.
class Guards {
 public:
  explicit Guards(Range range) : at_{place(range.from - kPage), place(range.to)} {}
  ~Guards() {
    for (void* page : at_)
      if (page != MAP_FAILED) ::munmap(page, kPage);
  }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

 private:
  static constexpr std::size_t kPage = 4096;
  static void* place(std::uintptr_t at) {
    return ::mmap(reinterpret_cast<void*>(at), kPage, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
  }
  void* at_[2];
};

struct Victim {
  // `joins`: the peer has made the segment; else the channel has.
  explicit Victim(bool joins) : sockets(*make_socket_pair(SOCK_STREAM)) {
    std::error_code fault;
    if (joins) {
      peer_memory = segment_with(kChannelLayout, kGeometry.bytes(), kSmall.slots, kSmall.bulk_bytes);
      (void)send_segment(sockets.second.get(), peer_memory);
      channel = join_channel(sockets.first.release(), 1000, fault);
    } else {
      channel = open_channel(sockets.first.release(), kSmall, fault);
    }
    EXPECT_NE(channel, nullptr) << fault.message();
    mapping = find_mapping(joins ? "test-channel" : "viaduct-channel");
    if (joins) {  // two mappings of that name: the one that is not the peer's
      const auto peers = reinterpret_cast<std::uintptr_t>(peer_memory.payload().data()) - kSegmentPayloadOffset;
      if (mapping.from <= peers && peers < mapping.to) mapping = {};
    }
    if (mapping.from != 0) guards.emplace(mapping);
    if (!joins) peer_memory = *receive_segment(sockets.second.get(), kChannelLayout);
  }

  std::span<std::byte> memory() const { return peer_memory.payload().first(kGeometry.bytes()); }
  int socket() const { return sockets.second.get(); }

  FdPair sockets;
  std::unique_ptr<Channel> channel;
  Segment peer_memory;
  Range mapping;
  std::optional<Guards> guards;
};

inline void write_word(std::span<std::byte> memory, std::size_t word, std::uint64_t value) {
  // One store, as a process makes it.
  reinterpret_cast<std::atomic<std::uint64_t>*>(memory.data())[word].store(value, std::memory_order_relaxed);
}

inline void write_everywhere(std::span<std::byte> memory, Random& random) {
  for (std::size_t word = 0; word < memory.size() / 8; ++word) write_word(memory, word, random());
}

}  // namespace viaduct::via::testing
