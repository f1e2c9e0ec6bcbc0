// Where nobody answers: what can be found out about it from here.
#pragma once

#include <string>

#include "net/route.hpp"

namespace viaduct::net {

// Asks the way once more, by a datagram and by TCP, for at most a second: what that says, and what to look at.
std::string why_silent(const Route& route);

}  // namespace viaduct::net
