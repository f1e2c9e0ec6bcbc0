// Registered memory, and what else of the port virtual interfaces use under its own name.
#pragma once

#include "via/port/registrations.hpp"
#include "via/port/remote_port.hpp"

namespace viaduct::vipl {

using via::ConnectionWords;
using via::Enable;
using via::kMostConnections;
using via::kMostRegions;
using via::kPostedPerConnection;
using via::kRdmaRead;
using via::kRdmaWrite;
using via::posted_stamp;
using via::PostedReceive;
using via::Registration;
using via::RegistrationEntry;
using via::Registrations;
using via::RemotePort;
using via::TableView;
using via::tags_agree;

}  // namespace viaduct::vipl
