// Message endpoints and their partners, as `viaduct ls` prints them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/table.hpp"
#include "mx/statistics.hpp"

namespace viaduct::cli {

// Endpoints, and a line for each partner; nothing where there is none.
std::string endpoints_in_table(const std::vector<mx::EndpointReading>& endpoints, const Screen& screen);

nlohmann::ordered_json endpoints_in_json(const std::vector<mx::EndpointReading>& endpoints);

}  // namespace viaduct::cli
