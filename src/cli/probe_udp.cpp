#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cstring>

#include "base/fd.hpp"
#include "cli/probe.hpp"

namespace viaduct::cli {

namespace {

Finding udp_option(const std::string& name, int option, int value, const std::string& meaning,
                   const std::string& since) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket)
    return {name, State::no, "", fmt::format("no UDP socket: {}", std::strerror(errno)),
            "allow IPv4 sockets in the sandbox"};
  if (::setsockopt(socket.get(), SOL_UDP, option, &value, sizeof value) == 0) return {name, State::yes, meaning};
  return {name, State::no, "", fmt::format("the kernel refuses it: {}", std::strerror(errno)),
          fmt::format("update the kernel ({} or newer)", since)};
}

}  // namespace

Findings probe_udp() {
  return {udp_option("udp-gso", UDP_SEGMENT, 1400, "many datagrams sent with one call (UDP_SEGMENT)", "4.18"),
          udp_option("udp-gro", UDP_GRO, 1, "many datagrams received with one call (UDP_GRO)", "5.0")};
}

}  // namespace viaduct::cli
