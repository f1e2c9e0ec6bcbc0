// The door of the operating system's MACs: factories that explain, and MACs by name.
#include "nic/mac/macs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace viaduct::nic {

namespace {

// For traffic of all kinds, whose bursts nobody knows beforehand.
constexpr std::uint32_t kDeepRing = 4096;

template <class AnyMac>
std::unique_ptr<AnyMac> or_why(Result<std::unique_ptr<AnyMac>> mac, const std::string& name, Failure& why) {
  if (mac) return std::move(*mac);
  why = {std::error_code(mac.error().code(), std::generic_category()), name + ": " + mac.error().message()};
  return nullptr;
}

// An interface with hardware behind it, whose driver works before packets are made; veth, tap and bridges gain nothing.
bool gains_by_xdp(const std::string& interface) {
  std::error_code ignored;
  return std::filesystem::exists("/sys/class/net/" + interface + "/device", ignored) &&
         !std::filesystem::exists("/sys/class/net/" + interface + "/queues/rx-1", ignored);
}

std::unique_ptr<Mac> make_suitable_mac(const std::string& interface, std::uint32_t max_frame, Failure& why) {
  if (gains_by_xdp(interface))
    if (auto mac = make_xdp_mac({.interface = interface, .max_frame = max_frame, .ring_frames = kDeepRing}, why))
      return mac;
  return make_packet_mac({.interface = interface, .max_frame = max_frame, .ring_frames = kDeepRing}, why);
}

}  // namespace

std::unique_ptr<Mac> make_packet_mac(const PacketMacOptions& options, Failure& why) {
  return or_why(open_packet_mac(options), "packet:" + options.interface, why);
}
std::unique_ptr<Mac> make_udp_mac(const UdpMacOptions& options, Failure& why) {
  return or_why(open_udp_mac(options), "udp:" + options.local + "," + options.remote, why);
}
std::unique_ptr<UdpSwitch> make_udp_switch(const UdpSwitchOptions& options, Failure& why) {
  return or_why(open_udp_switch(options), "udp:" + options.local, why);
}
std::unique_ptr<Mac> make_tap_mac(const TapMacOptions& options, Failure& why) {
  return or_why(open_tap_mac(options), "tap:" + options.interface, why);
}
std::unique_ptr<Mac> make_xdp_mac(const XdpMacOptions& options, Failure& why) {
  return or_why(open_xdp_mac(options), "xdp:" + options.interface, why);
}

std::unique_ptr<Mac> make_mac(std::string_view name, std::uint32_t max_frame, Failure& why) {
  const auto colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  const std::string rest(colon == std::string_view::npos ? "" : name.substr(colon + 1));
  if (kind == "packet")
    return make_packet_mac({.interface = rest, .max_frame = max_frame, .ring_frames = kDeepRing}, why);
  if (kind == "xdp") return make_xdp_mac({.interface = rest, .max_frame = max_frame, .ring_frames = kDeepRing}, why);
  if (kind == "auto") return make_suitable_mac(rest, max_frame, why);
  if (kind == "tap") {
    const std::uint32_t mtu = max_frame == 0 ? 1500 : max_frame - std::min(max_frame, kEthernetHeader);
    return make_tap_mac({.interface = rest, .mtu = mtu}, why);
  }
  if (kind == "udp") {
    const auto comma = rest.find(',');
    if (comma != std::string::npos)
      return make_udp_mac({.local = rest.substr(0, comma), .remote = rest.substr(comma + 1), .max_frame = max_frame},
                          why);
  }
  why = {std::make_error_code(std::errc::invalid_argument),
         fmt::format("'{}' is no MAC: packet:INTERFACE, xdp:INTERFACE, auto:INTERFACE, tap:INTERFACE or "
                     "udp:LOCAL,REMOTE (addresses as HOST:PORT)",
                     name)};
  return nullptr;
}

}  // namespace viaduct::nic
