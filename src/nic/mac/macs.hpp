// The operating system's MACs, each with the reason why not; nic_macs.hpp is their door.
#pragma once

#include <viaduct/nic_macs.hpp>

#include "base/result.hpp"

namespace viaduct::nic {

Result<std::unique_ptr<Mac>> open_packet_mac(const PacketMacOptions& options);
Result<std::unique_ptr<Mac>> open_udp_mac(const UdpMacOptions& options);
Result<std::unique_ptr<UdpSwitch>> open_udp_switch(const UdpSwitchOptions& options);
Result<std::unique_ptr<Mac>> open_tap_mac(const TapMacOptions& options);
Result<std::unique_ptr<Mac>> open_xdp_mac(const XdpMacOptions& options);

}  // namespace viaduct::nic
