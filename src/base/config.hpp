// Settings: one table, read from the environment (VIADUCT_*), then a file, then the default.
//
// The file is named by VIADUCT_CONFIG, else ~/.config/viaduct/config, else /etc/viaduct/config; its lines read
// `name = value` with the variable's name in lower case and without the prefix (spin_us = 50); # starts a comment.
// A value that cannot be used is an error in the command and, in a library inside somebody's program, one log line and
// the default.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace viaduct {

enum class SettingKind { text, number, bytes, boolean, choice };

// One row of the table. `name` is the environment variable; `range` says what is accepted, in words for the reader and,
// for numbers, as least..most; for choices, as a|b|c.
struct Setting {
  std::string_view name;
  SettingKind kind;
  std::string_view fallback;
  std::string_view range;
  std::string_view meaning;
};

std::span<const Setting> settings();

class Config {
 public:
  struct Value {
    const Setting* setting;
    std::string text;
    std::string source;  // "default", "environment", or the file's path and line
  };

  using Environment = std::function<const char*(const char*)>;

  // Reads and checks everything; the first bad value is the error.
  static Result<Config> read(const Environment& environment);
  // Reads everything; bad values are replaced by the default and returned in `faults`.
  static Config read_leniently(const Environment& environment, std::vector<Error>& faults);

  // This process's settings, read once; faults are logged.
  static const Config& process();

  const std::vector<Value>& values() const { return values_; }

  std::string_view text(std::string_view name) const { return find(name).text; }
  std::uint64_t number(std::string_view name) const;  // number and bytes (with K, M, G)
  bool flag(std::string_view name) const;

 private:
  const Value& find(std::string_view name) const;
  std::vector<Value> values_;
};

// "64K", "2M", "1G" or plain; nothing where it is not a size.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace viaduct
