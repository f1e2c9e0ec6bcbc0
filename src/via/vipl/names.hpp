// Names and addresses of hosts. An address is the four bytes of IPv4; any of this host's names it.
#pragma once

#include <array>
#include <cstdint>

#include "via/vipl/address.hpp"

namespace viaduct::vipl {

class Nic;

std::array<std::uint8_t, 4> address_of_this_host();

// No bytes at all also mean this host.
bool is_this_host(const WireAddress& address, const Nic& nic);

}  // namespace viaduct::vipl
