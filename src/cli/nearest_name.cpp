#include "cli/nearest_name.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace viaduct::cli {

namespace {

constexpr std::size_t kLongestTyped = 256;  // nobody mistypes more than that; keeps the table below small

std::string comparable(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('-'), text.size()));
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
  // cost(i, j): from the first i characters of one to the first j of the other. Row and column 0 stand before the
  // words and are never worth taking: that is how "no earlier occurrence" drops out of the swap below.
  const std::size_t rows = from.size() + 2, columns = to.size() + 2, never = from.size() + to.size();
  std::vector<std::size_t> table(rows * columns, never);
  const auto cost = [&](std::size_t i, std::size_t j) -> std::size_t& { return table[(i + 1) * columns + j + 1]; };
  const auto before = [&](std::size_t i, std::size_t j) { return table[i * columns + j]; };  // cost(i - 1, j - 1)
  for (std::size_t i = 0; i <= from.size(); ++i) cost(i, 0) = i;
  for (std::size_t j = 0; j <= to.size(); ++j) cost(0, j) = j;

  std::array<std::size_t, 256> last_row{};  // where in `from` a character was last seen, counted from 1
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t last_column = 0;  // where in `to` this row's character was last seen
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const bool same = from[i - 1] == to[j - 1];
      const std::size_t row = last_row[static_cast<unsigned char>(to[j - 1])], column = last_column;
      if (same) last_column = j;
      const std::size_t replaced = cost(i - 1, j - 1) + (same ? 0 : 1);
      const std::size_t inserted = cost(i, j - 1) + 1, deleted = cost(i - 1, j) + 1;
      const std::size_t swapped = before(row, column) + (i - row - 1) + 1 + (j - column - 1);
      cost(i, j) = std::min({replaced, inserted, deleted, swapped});
    }
    last_row[static_cast<unsigned char>(from[i - 1])] = i;
  }
  return cost(from.size(), to.size());
}

std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& names) {
  const std::string wanted = comparable(typed);
  if (wanted.size() < 2 || wanted.size() > kLongestTyped) return std::nullopt;
  const std::size_t limit = std::max<std::size_t>(1, wanted.size() / 3);
  std::optional<std::string> nearest;
  std::size_t least = limit + 1;
  for (const std::string& name : names) {
    const std::string candidate = comparable(name);
    const bool starts_it = candidate.compare(0, wanted.size(), wanted) == 0;
    const std::size_t distance = edit_distance(wanted, candidate);
    const std::size_t effective = starts_it ? std::min(distance, limit) : distance;
    if (effective >= least) continue;
    least = effective;
    nearest = name;
  }
  return nearest;
}

}  // namespace viaduct::cli
