// Names and addresses of hosts. An address is the four bytes of IPv4; any of this host's names it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "via/vipl/address.hpp"

namespace viaduct::vipl {

using HostAddress = std::array<std::uint8_t, 4>;

HostAddress address_of_this_host();
std::string name_of_this_host();
bool is_this_host(const HostAddress& address);
// No bytes at all also mean this host; `own` is the address that the adapter has.
bool is_this_host(const WireAddress& address, const HostAddress& own);

std::vector<HostAddress> resolve(const std::string& name);
std::string name_of(const HostAddress& address);  // empty: nobody knows

}  // namespace viaduct::vipl
