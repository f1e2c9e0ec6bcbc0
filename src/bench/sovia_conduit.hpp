// Conduits over SoviaEnd, for the same measurements as everybody else's.
#pragma once

#include "bench/conduit.hpp"
#include "bench/sovia_options.hpp"

namespace viaduct::bench {

Result<std::unique_ptr<Conduit>> make_sovia(const SoviaOptions& options);

}  // namespace viaduct::bench
