#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.hpp"
#include "cli/network_namespace.hpp"
#include "cli/probe.hpp"
#include "cli/system_files.hpp"

namespace viaduct::cli {

namespace {

constexpr const char* kDevice = "/dev/net/tun";

Fd open_device() {
  return Fd(::open(kDevice, O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

// The interface goes with its descriptor. Only ever called in a namespace of the caller's own: a new interface in the
// machine's would be noticed by whatever manages its network.
int make_interface() {
  const Fd device = open_device();
  if (!device) return errno;
  ifreq request{};
  std::strncpy(request.ifr_name, "viaduct%d", IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  return ::ioctl(device.get(), TUNSETIFF, &request) == 0 ? 0 : errno;
}

}  // namespace

Findings probe_tap() {
  const std::string name = "tap";
  const Fd device = open_device();
  if (!device && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
    return {{name, State::no, "", fmt::format("{} is missing", kDevice),
             "as root: modprobe tun; in a container: pass the device (--device /dev/net/tun)"}};
  if (!device)
    return {{name, State::no, "", fmt::format("{}: {}", kDevice, std::strerror(errno)),
             fmt::format("as root: chmod 666 {}", kDevice)}};
  unsigned features = 0;
  if (::ioctl(device.get(), TUNGETFEATURES, &features) != 0 || (features & IFF_TAP) == 0)
    return {{name, State::no, "", fmt::format("{} offers no TAP interfaces", kDevice), "use a kernel with CONFIG_TUN"}};

  const std::string queues = (features & IFF_MULTI_QUEUE) != 0 ? ", several queues" : "";
  if (have_capability(CAP_NET_ADMIN)) return {{name, State::yes, fmt::format("{}{}", kDevice, queues)}};
  const std::string why = "making an interface needs CAP_NET_ADMIN";
  const std::string next = "run as root, or have root make one: ip tuntap add mode tap user NAME";
  if (try_in_own_network(make_interface) == 0)
    return {{name, State::partly, fmt::format("in a network namespace of your own{}", queues), why,
             next + "; to try it without privileges: unshare -Urn PROGRAM"}};
  return {{name, State::no, "", why + "; unprivileged user namespaces are not permitted either", next}};
}

}  // namespace viaduct::cli
