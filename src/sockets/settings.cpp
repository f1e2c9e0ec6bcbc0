#include "sockets/settings.hpp"

#include <string_view>

#include "base/config.hpp"

namespace viaduct::sockets {

namespace {

Settings::Judging judging(std::string_view word) {
  if (word == "always") return Settings::Judging::always;
  return word == "off" ? Settings::Judging::off : Settings::Judging::on;
}

}  // namespace

const Settings& settings() {
  static const auto* const read = [] {
    const Config& config = Config::process();
    return new Settings{.enabled = config.flag("VIADUCT_SOCKETS"),
                        .any_user = config.text("VIADUCT_PEERS") == "any",
                        .spin_ns = config.number("VIADUCT_SPIN_US") * 1000,
                        .after = static_cast<std::uint32_t>(config.number("VIADUCT_SOCKETS_AFTER")),
                        .judge = judging(config.text("VIADUCT_SOCKETS_JUDGE"))};
  }();
  return *read;
}

}  // namespace viaduct::sockets
