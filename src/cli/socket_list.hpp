// The sockets of programs under `viaduct run` as `viaduct ls` prints them.
#pragma once

#include <string>
#include <vector>

#include "cli/table.hpp"
#include "mx/statistics.hpp"
#include "net/statistics.hpp"
#include "sockets_view/view.hpp"

namespace viaduct::cli {

std::string sockets_in_table(const std::vector<sockets_view::Socket>& sockets, const Screen& screen);

// How many connected sockets are on rings, and why the others are not, as lines that fit the screen.
std::string sockets_in_short(const std::vector<sockets_view::Socket>& sockets, const Screen& screen);

// One object, with the peers on other hosts and message endpoints as well; on one line, or laid out for people.
std::string in_json(const std::vector<sockets_view::Socket>& sockets, const std::vector<net::EngineReading>& engines,
                    const std::vector<mx::EndpointReading>& endpoints, bool one_line);

}  // namespace viaduct::cli
