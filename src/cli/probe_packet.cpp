#include <fmt/format.h>
#include <linux/bpf.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.hpp"
#include "cli/network_namespace.hpp"
#include "cli/probe.hpp"
#include "cli/system_files.hpp"

namespace viaduct::cli {

namespace {

// Protocol 0 hears nothing, so no frame is disturbed.
int open_raw(int family) {
  return Fd(::socket(family, SOCK_RAW | SOCK_CLOEXEC, 0)) ? 0 : errno;
}

// An AF_XDP socket is fed by a small program in the kernel, which finds it in a map of this kind.
int make_socket_map() {
  bpf_attr description;
  std::memset(&description, 0, sizeof description);
  description.map_type = BPF_MAP_TYPE_XSKMAP;
  description.key_size = 4;
  description.value_size = 4;
  description.max_entries = 1;
  return Fd(static_cast<int>(::syscall(SYS_bpf, BPF_MAP_CREATE, &description, sizeof description))) ? 0 : errno;
}

bool is_permission(int fault) {
  return fault == EPERM || fault == EACCES;
}

Finding packet_socket() {
  const std::string name = "packet-socket";
  const int fault = open_raw(AF_PACKET);
  if (fault == 0) return {name, State::yes, "AF_PACKET: Ethernet frames without the kernel's protocols"};
  if (!is_permission(fault))
    return {name, State::no, "", fmt::format("socket(AF_PACKET): {}", std::strerror(fault)),
            "use a kernel with CONFIG_PACKET (modprobe af_packet)"};
  const std::string why = "AF_PACKET needs CAP_NET_RAW", next = "run as root, or: setcap cap_net_raw+ep PROGRAM";
  if (try_in_own_network([] { return open_raw(AF_PACKET); }) == 0)
    return {name, State::partly, "in a network namespace of your own", why,
            next + "; to try it without privileges: unshare -Urn PROGRAM"};
  return {name, State::no, "", why + "; unprivileged user namespaces are not permitted either", next};
}

Finding xdp_socket() {
  const std::string name = "xdp-socket";
  const std::string privileges = "run as root, or: setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM";
  const int no_socket = open_raw(AF_XDP), no_map = make_socket_map();
  const auto disabled = number_in("/proc/sys/kernel/unprivileged_bpf_disabled");
  const std::string no_bpf =
      no_map == 0 ? ""
                  : fmt::format("bpf: {}{}", std::strerror(no_map),
                                disabled ? fmt::format(" (kernel.unprivileged_bpf_disabled is {})", *disabled) : "");
  if (no_socket == 0 && no_map == 0) return {name, State::yes, "AF_XDP sockets and bpf() are permitted"};
  if (no_socket == 0)
    return {name, State::partly, "AF_XDP sockets are permitted", no_bpf + "; without it no frame reaches the socket",
            privileges};
  if (!is_permission(no_socket))
    return {name, State::no, "", fmt::format("socket(AF_XDP): {}", std::strerror(no_socket)),
            "use a kernel with CONFIG_XDP_SOCKETS"};
  return {name, State::no, "", "AF_XDP needs CAP_NET_RAW" + (no_bpf.empty() ? "" : "; " + no_bpf), privileges};
}

}  // namespace

Findings probe_packet() {
  return {packet_socket(), xdp_socket()};
}

}  // namespace viaduct::cli
