// The name a user most likely meant.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace viaduct::cli {

// How many insertions, deletions, replacements and swaps of neighbours turn one word into the other
// (Damerau-Levenshtein).
std::size_t edit_distance(std::string_view from, std::string_view to);

// The nearest of `names`, not minding upper case and leading dashes; the first of equals. Nothing where even that is a
// different word: more than a third of what was typed would have to change, and it is not the start of the name either.
std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& names);

}  // namespace viaduct::cli
