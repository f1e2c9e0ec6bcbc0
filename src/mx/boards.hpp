// The interfaces of this host, as the boards of MX. A nic id is 0x0200 and the four bytes of the interface's IPv4
// address: the form of an Ethernet address that its owner has given out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace viaduct::mx {

struct Board {
  std::uint64_t nic = 0;
  std::string interface;
};

// Those that are up, the loopback interface last.
std::vector<Board> boards();

bool is_nic(std::uint64_t nic);
bool is_loopback(std::uint64_t nic);
std::uint64_t nic_of_ipv4(std::uint32_t address);  // in the host's byte order
std::string address_text(std::uint64_t nic);       // "192.0.2.1"

std::string own_host_name();
bool nic_of_host(const std::string& name, std::uint64_t& nic);
bool host_of_nic(std::uint64_t nic, std::string& name);

}  // namespace viaduct::mx
