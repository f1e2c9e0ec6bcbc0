// Addresses of VIPL as they travel: the host's bytes and the discriminator's; and the names at which VIs meet.
#pragma once

#include <viaduct/vipl.h>

#include <cstdint>
#include <string>

namespace viaduct::vipl {

constexpr std::uint16_t kMostDiscriminator = 64;
constexpr std::uint16_t kMostHostAddress = 16;

struct WireAddress {
  std::uint16_t host_length;
  std::uint16_t discriminator_length;
  std::uint8_t bytes[80];  // the host's, then the discriminator's
};
static_assert(sizeof(WireAddress) == 84);

bool sane(const WireAddress& address);
// An address that a program gave: false where its lengths are impossible.
bool read_address(const VIP_NET_ADDRESS* from, WireAddress& to);
void write_address(const WireAddress& from, VIP_NET_ADDRESS* to);
int compare(const WireAddress& a, const WireAddress& b);

// Names to meet at on one host (base/meeting.hpp).
std::string server_name(const WireAddress& address);
std::string peer_name(const WireAddress& a, const WireAddress& b);

}  // namespace viaduct::vipl
