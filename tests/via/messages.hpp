// Messages for channel tests: bytes that say which message and which offset they belong to, sent and received whole.
//
// Everything returns a bool or an empty vector instead of using GoogleTest: it runs in forked children too.
#pragma once

#include <viaduct/via.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace viaduct::via::testing {

constexpr ChannelOptions kSmall{.bulk_bytes = 4096, .slots = 8};

using Bytes = std::vector<std::byte>;

inline std::byte expected_byte(std::uint64_t seed, std::size_t at) {
  const std::uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15 + (at / 8) * 0xbf58476d1ce4e5b9;
  return static_cast<std::byte>(word >> (at % 8 * 8));
}

inline void fill(std::span<std::byte> bytes, std::uint64_t seed, std::size_t from = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = expected_byte(seed, from + i);
}

inline bool matches(std::span<const std::byte> bytes, std::uint64_t seed, std::size_t from = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != expected_byte(seed, from + i)) return false;
  return true;
}

inline Bytes message(std::size_t length, std::uint64_t seed) {
  Bytes bytes(length);
  fill(bytes, seed);
  return bytes;
}

inline Sent send_fragment(Channel& channel, std::span<const std::byte> bytes, std::uint32_t immediate,
                          bool more = false) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return channel.try_send({&piece, 1}, immediate, more);
}

// In as many fragments as it takes, sleeping for room.
inline bool send_message(Channel& channel, std::span<const std::byte> bytes, std::uint32_t immediate) {
  do {
    const auto fragment = bytes.first(std::min(bytes.size(), channel.largest_fragment()));
    const bool more = fragment.size() < bytes.size();
    for (;;) {
      const Sent sent = send_fragment(channel, fragment, immediate, more);
      if (sent == Sent::taken) break;
      if (sent == Sent::closed || channel.wait_to_send(fragment.size(), -1)) return false;
    }
    bytes = bytes.subspan(fragment.size());
  } while (!bytes.empty());
  return true;
}

struct Received {
  std::uint32_t immediate = 0;
  Bytes bytes;
  int fragments = 0;
};

// Sleeps until a whole message is there; nothing at the end.
inline std::optional<Received> receive_message(Channel& channel) {
  Received received;
  for (;;) {
    Fragment fragment;
    switch (channel.peek(fragment)) {
      case Got::end:
        return std::nullopt;
      case Got::nothing:
        if (channel.wait_to_receive(-1)) return std::nullopt;
        continue;
      case Got::fragment:
        break;
    }
    if (received.fragments++ > 0 && received.immediate != fragment.immediate) return std::nullopt;
    received.immediate = fragment.immediate;
    received.bytes.insert(received.bytes.end(), fragment.bytes.begin(), fragment.bytes.end());
    const bool last = fragment.last;
    channel.consume();
    if (last) return received;
  }
}

// What the channel says when there is nothing left, sleeping until then.
inline bool reaches_end(Channel& channel) {
  Fragment fragment;
  for (;;) {
    const Got got = channel.peek(fragment);
    if (got == Got::end) return true;
    if (got == Got::fragment)
      channel.consume();
    else if (channel.wait_to_receive(-1))
      return false;
  }
}

// How many fragments were there.
inline std::size_t consume_all(Channel& channel) {
  Fragment fragment;
  std::size_t count = 0;
  for (; channel.peek(fragment) == Got::fragment; ++count) channel.consume();
  return count;
}

}  // namespace viaduct::via::testing
