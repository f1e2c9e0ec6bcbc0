#include "cli/socket_filter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "cli/nearest_name.hpp"

namespace viaduct::cli {

namespace {

using sockets_view::Socket;

bool has_port(std::string_view address, int port) {
  int number = -1;
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos) return false;
  (void)std::from_chars(address.data() + colon + 1, address.data() + address.size(), number);
  return number == port;
}

}  // namespace

bool SocketFilter::passes(const Socket& socket) const {
  // Who names a state or a port wants such sockets, connected or not.
  if (!all && state.empty() && !port && !socket.connected()) return false;
  if (port && !has_port(socket.local, *port) && !has_port(socket.peer, *port)) return false;
  if (!state.empty() && socket.state != state) return false;
  if (!path.empty() && (!socket.connected() || socket.on_rings() != (path == "ring"))) return false;
  return true;
}

Result<std::string> state_named(const std::string& word) {
  static const std::vector<std::string> kStates = {"ESTAB",      "SYN-SENT",   "SYN-RECV", "FIN-WAIT-1",
                                                   "FIN-WAIT-2", "CLOSE-WAIT", "LAST-ACK", "CLOSING",
                                                   "TIME-WAIT",  "LISTEN",     "UNCONN"};
  std::string name = word;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  if (name == "ESTABLISHED") name = "ESTAB";
  if (name == "LISTENING") name = "LISTEN";
  if (std::find(kStates.begin(), kStates.end(), name) != kStates.end()) return name;
  const auto near = nearest_name(name, kStates);
  return Error(EINVAL, fmt::format("there is no state '{}'{} (states: {})", word,
                                   near ? fmt::format("; did you mean '{}'?", *near) : "", fmt::join(kStates, ", ")));
}

}  // namespace viaduct::cli
