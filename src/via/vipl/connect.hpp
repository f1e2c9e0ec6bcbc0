// What the ways to connect share.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "via/port/handshake.hpp"
#include "via/vipl/address.hpp"

namespace viaduct::vipl {

class Adapter;

// What one VI tells the other when they connect, either way.
struct Description {
  std::uint64_t max_transfer;
  std::uint16_t reliability;
  std::uint8_t enable_write;
  std::uint8_t enable_read;
  std::uint32_t unused;
  WireAddress local;
  WireAddress remote;
};
static_assert(sizeof(Description) == 184);

template <class Object>
std::span<const std::byte> words_of(const Object& object) {
  return std::as_bytes(std::span(&object, 1));
}
std::optional<Description> read_description(std::span<const std::byte> words);
// What a program is told of the other VI: its protection tag means nothing here.
VIP_VI_ATTRIBUTES attributes_of(const Description& description);

// A refusal says why.
std::span<const std::byte> refusal(const VIP_RETURN& why);
VIP_RETURN read_refusal(std::span<const std::byte> words);

// A request that VipConnectWait has handed out.
struct Request {
  std::shared_ptr<Adapter> adapter;
  std::unique_ptr<via::Handshake> handshake;
  Description theirs;
};

// VIP_SUCCESS: two VIs may be connected.
VIP_RETURN agree(const Description& mine, const Description& theirs);
// How large a channel is: small VIs take little memory, so that thousands fit.
via::ChannelOptions channel_for(std::size_t max_transfer);

}  // namespace viaduct::vipl
