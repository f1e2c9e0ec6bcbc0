// The settings of this library, read once (base/config.hpp).
#pragma once

#include <cstdint>

namespace viaduct::sockets {

struct Settings {
  bool enabled;
  bool any_user;                                 // VIADUCT_PEERS
  std::uint64_t spin_ns;                         // VIADUCT_SPIN_US
  std::uint32_t after;                           // VIADUCT_SOCKETS_AFTER
  enum class Judging { on, off, always } judge;  // VIADUCT_SOCKETS_JUDGE
};

const Settings& settings();

}  // namespace viaduct::sockets
