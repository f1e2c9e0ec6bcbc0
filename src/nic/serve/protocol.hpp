// What a server of endpoints and their users say to each other (docs/formats/nic-serve.md): one message each way, then
// the connection only tells whether the other is alive.
#pragma once

#include <viaduct/nic_serve.hpp>

#include <cstdint>
#include <string>

namespace viaduct::nic {

constexpr std::uint64_t kServeMagic = 0x31'4556'5245'5349'56;  // "VISERVE1"
constexpr std::uint32_t kServeVersion = 1;

struct ServeHello {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t hold_limit;
  std::uint32_t send_ring;
  std::int32_t queue;
  std::int32_t core;
  std::uint16_t id;
  std::uint8_t listens;
  std::uint8_t end_mask;
  std::uint16_t end_offset;
  std::uint8_t reserved[30];
};
static_assert(sizeof(ServeHello) == 64);

struct ServeAnswer {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t fault;  // an errno; 0: an endpoint is open, and two descriptors come along: memory and bell
  std::uint32_t buffers;
  std::uint32_t sends;
  std::uint32_t max_frame;
  std::int32_t core;
  std::uint16_t id;
  std::uint8_t address[6];
  std::uint32_t segments;
  std::uint32_t longest_now;
  std::uint8_t gathered_arrivals, checked_arrivals, congestion_marks, probes_path_mtu;
  std::uint8_t reserved[12];
  char mac[64];       // its name
  char message[128];  // what is wrong, where something is
};
static_assert(sizeof(ServeAnswer) == 256);

inline std::string serve_name(std::string_view server) {
  return "viaduct-nic-" + std::string(server);
}

}  // namespace viaduct::nic
