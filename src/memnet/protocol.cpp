#include "memnet/protocol.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "base/meeting.hpp"

namespace viaduct::memnet {

ServerPlace parse_server(std::string_view text) {
  const auto slash = text.rfind('/');
  ServerPlace place;
  if (slash != std::string_view::npos) place.host = text.substr(0, slash);
  place.name = slash == std::string_view::npos ? text : text.substr(slash + 1);
  if (place.name.empty()) place.name = "tcp-server";
  return place;
}

std::string meeting_name(const std::string& server, bool any_user) {
  const std::string whose = any_user ? "any" : fmt::format("{}", ::geteuid());
  return meeting::fit_name(fmt::format("viaduct/memnet/{}/{}", whose, server));
}

std::string network_name(const std::string& server) {
  return meeting::fit_name("memnet/" + server);
}

}  // namespace viaduct::memnet
