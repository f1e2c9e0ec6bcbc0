// What a report about SOVIA amounts to: its rows beside the paper's, and the parts that they speak for. Both are added
// as notes.
#pragma once

#include <span>

#include "bench/bench.hpp"
#include "bench/sovia_table.hpp"

namespace viaduct::bench {

constexpr const char* kNativeVipl = "native VIPL";

void compare_with_paper(Report& report, std::span<const SoviaConfiguration> table);
void choose_defaults(Report& report, std::size_t copy_limit);

}  // namespace viaduct::bench
