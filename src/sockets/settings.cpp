#include "sockets/settings.hpp"

#include "base/config.hpp"

namespace viaduct::sockets {

const Settings& settings() {
  static const auto* const read = [] {
    const Config& config = Config::process();
    return new Settings{.enabled = config.flag("VIADUCT_SOCKETS"),
                        .any_user = config.text("VIADUCT_PEERS") == "any",
                        .spin_ns = config.number("VIADUCT_SPIN_US") * 1000,
                        .after = static_cast<std::uint32_t>(config.number("VIADUCT_SOCKETS_AFTER"))};
  }();
  return *read;
}

}  // namespace viaduct::sockets
