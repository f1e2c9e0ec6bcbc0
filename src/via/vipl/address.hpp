// Addresses of VIPL as they travel: the host's bytes and the discriminator's; and the names at which VIs meet.
#pragma once

#include <viaduct/vipl.h>

#include <cstdint>
#include <string>

#include "via/port/port.hpp"

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
// Of equals: who listens, the smaller. 0: on one host, whoever comes first.
int order_of(const WireAddress& local, const WireAddress& remote);

// Where VIs meet: a server and its clients, and equals. A server at a loopback address is not found by other hosts.
via::Place server_place(const WireAddress& address);
via::Place peer_place(const WireAddress& local, const WireAddress& remote);

}  // namespace viaduct::vipl
