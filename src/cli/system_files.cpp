#include "cli/system_files.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>

namespace viaduct::cli {

namespace {

std::optional<std::uint64_t> parse(const std::string& text, int base) {
  std::uint64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (fault != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  const auto line = first_line(path);
  return line ? parse(*line, 10) : std::nullopt;
}

std::optional<std::string> chosen_word_in(const std::string& path) {
  const auto line = first_line(path);
  if (!line) return std::nullopt;
  const auto open = line->find('['), close = line->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  return line->substr(open + 1, close - open - 1);
}

std::optional<std::string> own_status(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field + ":", 0) != 0) continue;
    const auto start = line.find_first_not_of(" \t", field.size() + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return std::nullopt;
}

bool have_capability(int capability) {
  const auto set = own_status("CapEff");
  const auto bits = set ? parse(*set, 16) : std::nullopt;
  return bits && ((*bits >> capability) & 1) != 0;
}

bool seccomp_filtered() {
  return own_status("Seccomp") == "2";
}

std::string in_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto amount = static_cast<double>(bytes);
  while (amount >= 1024 && unit + 1 < std::size(kUnits)) amount /= 1024, ++unit;
  const bool whole = amount == static_cast<double>(static_cast<std::uint64_t>(amount));
  return fmt::format("{:.{}f} {}", amount, whole ? 0 : 1, kUnits[unit]);
}

std::string in_ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end - i == 1 ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace viaduct::cli
