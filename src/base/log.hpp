// One line per fault, to standard error: what failed, on what, and what to do next.
//
// The first function that can tell what an error is logs it, once; those above pass it on. The level comes from
// VIADUCT_LOG. Data paths count (counters.hpp) instead of logging.
#pragma once

#include <string_view>

namespace viaduct::log {

void set_level(std::string_view level);  // trace, debug, info, warn, error or off

void fault(std::string_view line);   // something failed; the user should know
void notice(std::string_view line);  // the user may want to know (level info)
void detail(std::string_view line);  // for whoever debugs Viaduct (level debug)

}  // namespace viaduct::log
