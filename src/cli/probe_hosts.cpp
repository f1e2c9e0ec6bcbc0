// The paths to other hosts.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <viaduct/net.hpp>

#include <cstring>

#include "base/config.hpp"
#include "base/fd.hpp"
#include "cli/probe.hpp"
#include "net/ping.hpp"

namespace viaduct::cli {

namespace {

class NoMemory final : public net::RegisteredMemory {
 public:
  Reached reach(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, Access) override { return {}; }
};

// As every process that offers a name takes it, beside the others of its user.
int take_port(std::uint16_t port) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 ? 0 : errno;
}

std::string in_words(const std::vector<net::OwnAddress>& addresses) {
  std::vector<std::string> words;
  for (const net::OwnAddress& own : addresses) words.push_back(fmt::format("{} on {}", own.address, own.interface));
  return fmt::format("{}", fmt::join(words, ", "));
}

Finding by_udp(const std::vector<net::OwnAddress>& addresses) {
  const std::string name = "hosts-udp";
  const Config& config = Config::process();
  if (config.text("VIADUCT_NETWORK") == "off")
    return {name, State::no, "", "VIADUCT_NETWORK is off: virtual interfaces stay on this host", "set it to on"};
  NoMemory memory;
  net::Failure why;
  if (net::Engine::open({}, memory, why) == nullptr)
    return {name, State::no, "", why.message, "mend what it says, or the setting it names"};
  if (addresses.empty())
    return {name, State::no, "", "no interface with an IPv4 address is up, but the loopback", "ip link, ip address"};
  const auto port = static_cast<std::uint16_t>(config.number("VIADUCT_NETWORK_PORT"));
  const std::string detail = fmt::format("what goes to other hosts, at UDP port {}: {}", port, in_words(addresses));
  if (const int fault = take_port(port); fault != 0)
    return {name, State::partly, detail,
            fmt::format("another user has the port ({}): programs are found as long as his run", std::strerror(fault)),
            "nothing, or another VIADUCT_NETWORK_PORT on all hosts"};
  return {name, State::yes, detail};
}

Finding by_frames(const std::vector<net::OwnAddress>& addresses) {
  const std::string name = "hosts-packet";
  if (addresses.empty())
    return {name, State::no, "", "no interface with an IPv4 address is up, but the loopback", "ip link, ip address"};
  for (const net::OwnAddress& own : addresses) {
    const auto mac = net::open_frames(own.interface);
    if (mac)
      return {name, State::partly, fmt::format("Ethernet frames past the kernel's UDP, on {}", own.interface),
              "connections between hosts go by UDP", "nothing; `viaduct ping HOST` measures both"};
    if (&own == &addresses.back())
      return {name, State::no, "", mac.error().message(), "run as root, or: setcap cap_net_raw+ep PROGRAM"};
  }
  return {};
}

}  // namespace

Findings probe_hosts() {
  const std::vector<net::OwnAddress> addresses = net::own_addresses();
  return {by_udp(addresses), by_frames(addresses)};
}

}  // namespace viaduct::cli
