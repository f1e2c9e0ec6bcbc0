#include "nic/mac/interface.hpp"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>

namespace viaduct::nic {

namespace {

Result<ifreq> request_for(const std::string& name) {
  ifreq request{};
  if (name.empty() || name.size() >= IFNAMSIZ)
    return Error(EINVAL,
                 fmt::format("'{}' cannot be the name of an interface: 1 to {} characters", name, IFNAMSIZ - 1));
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

}  // namespace

Result<Interface> find_interface(int socket, const std::string& name) {
  VIADUCT_TRY(ifreq request, request_for(name));
  Interface found{.name = name};
  if (::ioctl(socket, SIOCGIFINDEX, &request) != 0) {
    if (errno == ENODEV) return Error(ENODEV, fmt::format("there is no interface {} (ip link lists them)", name));
    return Error::from_errno(fmt::format("look for the interface {}", name));
  }
  found.index = request.ifr_ifindex;
  if (::ioctl(socket, SIOCGIFMTU, &request) != 0) return Error::from_errno(fmt::format("read the MTU of {}", name));
  found.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
  if (::ioctl(socket, SIOCGIFHWADDR, &request) != 0)
    return Error::from_errno(fmt::format("read the address of {}", name));
  if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER && request.ifr_hwaddr.sa_family != ARPHRD_LOOPBACK)
    return Error(EINVAL,
                 fmt::format("{} does not carry Ethernet frames (type {})", name, request.ifr_hwaddr.sa_family));
  std::copy_n(reinterpret_cast<const std::uint8_t*>(request.ifr_hwaddr.sa_data), found.address.size(),
              found.address.begin());
  return found;
}

Link link_of(int socket, int index) {
  ifreq request{};
  request.ifr_ifindex = index;
  if (::ioctl(socket, SIOCGIFNAME, &request) != 0) return Link::gone;
  if (::ioctl(socket, SIOCGIFFLAGS, &request) != 0) return errno == ENODEV ? Link::gone : Link::down;
  return (request.ifr_flags & IFF_UP) != 0 ? Link::up : Link::down;
}

std::uint32_t frame_now(int socket, int index, std::uint32_t unknown) {
  ifreq request{};
  request.ifr_ifindex = index;
  if (::ioctl(socket, SIOCGIFNAME, &request) != 0 || ::ioctl(socket, SIOCGIFMTU, &request) != 0) return unknown;
  return static_cast<std::uint32_t>(request.ifr_mtu) + kEthernetHeader;
}

bool is_veth(int socket, const std::string& name) {
  auto request = request_for(name);
  if (!request) return false;
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  request->ifr_data = reinterpret_cast<char*>(&driver);
  return ::ioctl(socket, SIOCETHTOOL, &*request) == 0 && std::strcmp(driver.driver, "veth") == 0;
}

Status set_mtu(int socket, const std::string& name, std::uint32_t mtu) {
  VIADUCT_TRY(ifreq request, request_for(name));
  request.ifr_mtu = static_cast<int>(mtu);
  if (::ioctl(socket, SIOCSIFMTU, &request) == 0) return {};
  return refused(errno, fmt::format("give {} an MTU of {}", name, mtu), "CAP_NET_ADMIN");
}

Status bring_up(int socket, const std::string& name) {
  VIADUCT_TRY(ifreq request, request_for(name));
  if (::ioctl(socket, SIOCGIFFLAGS, &request) != 0) return Error::from_errno(fmt::format("read the flags of {}", name));
  if ((request.ifr_flags & IFF_UP) != 0) return {};
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (::ioctl(socket, SIOCSIFFLAGS, &request) == 0) return {};
  return refused(errno, fmt::format("bring {} up", name), "CAP_NET_ADMIN");
}

Result<std::uint32_t> longest_frame(const Interface& interface, std::uint32_t asked) {
  const std::uint32_t most = interface.mtu + kEthernetHeader;
  if (asked == 0) return std::min(most, std::uint32_t{65535});
  if (asked > most)
    return Error(EMSGSIZE,
                 fmt::format("{} has an MTU of {}, frames of {} bytes need {} (ip link set {} mtu {})", interface.name,
                             interface.mtu, asked, asked - kEthernetHeader, interface.name, asked - kEthernetHeader));
  if (asked < 60) return Error(EINVAL, fmt::format("frames of at most {} bytes: say 60 or more", asked));
  return asked;
}

Error refused(int code, const std::string& what, const std::string& capability) {
  if (code == EPERM || code == EACCES)
    return {code, fmt::format("{}: needs {} (run as root, or: setcap {}+ep PROGRAM; unshare -Urn gives it in a network "
                              "namespace of your own)",
                              what, capability, [&] {
                                std::string lower = capability;
                                std::transform(lower.begin(), lower.end(), lower.begin(),
                                               [](unsigned char c) { return std::tolower(c); });
                                return lower;
                              }())};
  return Error::from_code(code, what);
}

}  // namespace viaduct::nic
