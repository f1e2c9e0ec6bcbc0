// Which of the sockets that `viaduct ls` has read it shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "sockets_view/view.hpp"

namespace viaduct::cli {

struct SocketFilter {
  bool all = false;         // not only connections
  std::optional<int> port;  // of either end
  std::string state;        // as ss(8) prints it; empty: any
  std::string path;         // "ring": both directions; "tcp": any other connection; empty: any

  bool passes(const sockets_view::Socket& socket) const;
  bool is_narrow() const { return port || !state.empty() || !path.empty(); }
};

// The state as ss(8) prints it, from any of the ways to write it: estab, ESTAB, established. EINVAL names them.
Result<std::string> state_named(const std::string& word);

}  // namespace viaduct::cli
