// Large numbers in four or five characters: 999, 1.2k, 3.4M.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <string>

namespace viaduct::cli {

inline std::string compact(double amount) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  while (amount >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < std::size(kUnits)) amount /= 1000, ++unit;
  return fmt::format("{:.{}f}{}", amount, unit == 0 ? 0 : 1, kUnits[unit]);
}

}  // namespace viaduct::cli
