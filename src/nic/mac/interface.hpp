// A network interface as the kernel describes it, and errors that say what to do about one.
#pragma once

#include <viaduct/nic_mac.hpp>

#include <string>

#include "base/result.hpp"

namespace viaduct::nic {

struct Interface {
  std::string name;
  int index = 0;
  std::uint32_t mtu = 0;
  MacAddress address{};
};

// Any socket of the interface's network namespace will do for the calls below.
Result<Interface> find_interface(int socket, const std::string& name);
// Up: administratively; a cable that is not plugged in is not looked at.
Link link_of(int socket, int index);
// The longest frame that its MTU allows now; `unknown` where the interface is gone.
std::uint32_t frame_now(int socket, int index, std::uint32_t unknown);
// Joined to another interface in memory: veth.
bool is_veth(int socket, const std::string& name);
Status set_mtu(int socket, const std::string& name, std::uint32_t mtu);
Status bring_up(int socket, const std::string& name);

// The longest frame: what was asked for, or what the MTU allows.
Result<std::uint32_t> longest_frame(const Interface& interface, std::uint32_t asked);

// EPERM and EACCES name the capability; everything else is errno's own text.
Error refused(int code, const std::string& what, const std::string& capability);

}  // namespace viaduct::nic
