// Two adapters joined by a wire, and frames to send over it.
#pragma once

#include <gtest/gtest.h>
#include <viaduct/nic.hpp>

#include <cstring>
#include <optional>
#include <vector>

#include "base/clock.hpp"

namespace viaduct::nic {

using Bytes = std::vector<std::byte>;

// A frame that can be told from all others, and whose every byte says where it belongs.
inline Bytes numbered_frame(std::uint32_t number, std::size_t length, std::uint8_t steer = 0) {
  Bytes frame(length);
  for (std::size_t i = 0; i < length; ++i) frame[i] = static_cast<std::byte>(number * 7 + i);
  frame[12] = std::byte{0x88}, frame[13] = std::byte{0xb5};
  frame[14] = static_cast<std::byte>(steer);
  std::memcpy(frame.data() + 16, &number, sizeof number);
  return frame;
}
constexpr std::size_t kLeastNumbered = 20;

inline std::uint32_t number_of(std::span<const std::byte> frame) {
  std::uint32_t number = 0;
  std::memcpy(&number, frame.data() + 16, sizeof number);
  return number;
}

struct Pair {
  std::unique_ptr<Adapter> left, right;

  explicit Pair(const Config& config = {}, const WireOptions& wire = {}) : Pair(config, config, wire) {}
  Pair(Config left_config, Config right_config, const WireOptions& wire) {
    auto [a, b] = make_wire(wire);
    left_config.name = "left", right_config.name = "right";
    Failure why;
    left = Adapter::create(std::move(left_config), std::move(a), why);
    EXPECT_TRUE(left) << why.message;
    right = Adapter::create(std::move(right_config), std::move(b), why);
    EXPECT_TRUE(right) << why.message;
  }

  void turn(int times = 64) {
    for (int i = 0; i < times; ++i) left->poll(), right->poll();
  }
};

inline std::vector<Bytes> receive_all(Host& host, unsigned queue = 0) {
  std::vector<Bytes> frames;
  Packet packets[32];
  while (const std::size_t count = host.receive(queue, packets)) {
    for (const Packet& packet : std::span(packets, count)) {
      frames.emplace_back(packet.data, packet.data + packet.length);
      host.give_back(packet);
    }
  }
  host.post();
  return frames;
}

inline Config inlined() {
  Config config;
  config.coalescing = Coalescing::none();
  return config;
}

}  // namespace viaduct::nic
