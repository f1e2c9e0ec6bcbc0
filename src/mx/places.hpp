// Where endpoints are met, and the endpoints of this process.
#pragma once

#include <viaduct/mx.hpp>

#include <string>

#include "via/port/port.hpp"

namespace viaduct::mx {

class Core;

// Of this host or another: an abstract socket here, a name over the network there.
via::Place place_of(const std::string& family, const Name& name);

void make_room_for_descriptors(std::size_t things);

// The endpoints of this process, which help each other on: a program of one thread may have both ends.
void enter_population(Core& core);
void leave_population(Core& core);  // nobody helps it any more when this returns
std::size_t population();
void help_others(Core& core);

}  // namespace viaduct::mx
