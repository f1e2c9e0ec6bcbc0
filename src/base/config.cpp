#include "base/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>

#include "base/log.hpp"

namespace viaduct {

namespace {

constexpr Setting kSettings[] = {
    {"VIADUCT_LOG", SettingKind::choice, "warn", "trace|debug|info|warn|error|off",
     "how much is logged, to standard error"},
    {"VIADUCT_SPIN_US", SettingKind::number, "50", "0..10000",
     "longest spin before sleeping, microseconds; 0 never spins"},
    {"VIADUCT_HUGE_PAGES", SettingKind::boolean, "on", "on|off",
     "use huge pages for large segments where the system has any"},
    {"VIADUCT_COPY_CMA", SettingKind::boolean, "on", "on|off",
     "links may copy straight between the memories of two processes (process_vm_readv)"},
    {"VIADUCT_PEERS", SettingKind::choice, "user", "user|any",
     "who may share memory: processes of the same user, or those of any user on this host whose side says the same"},
    {"VIADUCT_NETWORK", SettingKind::boolean, "on", "on|off",
     "off: virtual interfaces neither reach other hosts nor are found by them"},
    {"VIADUCT_KEY_FILE", SettingKind::text, "", "a file of mode 0600; empty: none",
     "the key that processes of other hosts must have as well; what goes between them is encrypted"},
    {"VIADUCT_NETWORK_PORT", SettingKind::number, "47117", "1..65535",
     "UDP port at which the processes of a host are found; the same on all hosts that are to meet"},
    {"VIADUCT_NETWORK_SILENCE", SettingKind::number, "30", "1..3600",
     "seconds after which a process on another host that owes an answer is taken for dead"},
    {"VIADUCT_MEMNET_SERVER", SettingKind::text, "tcp-server", "NAME, or HOST/NAME",
     "the TCP server (`viaduct tcp-server`) of programs that use memnet.h"},
    {"VIADUCT_FABRIC_PATHS", SettingKind::boolean, "off", "on|off",
     "on: programs of libfabric, such as those of `viaduct mpirun`, say by which path they reach each peer"},
    {"VIADUCT_MX_BIND", SettingKind::choice, "cache", "core|cache|no",
     "where a process runs that opens an endpoint of `viaduct nic run --serve`: on the processor that moves its "
     "frames, "
     "on one that shares a cache with it, or wherever it does; a process that is bound already stays"},
    {"VIADUCT_SOCKETS", SettingKind::boolean, "on", "on|off",
     "off: a program under `viaduct run` keeps the kernel's TCP"},
    {"VIADUCT_SOCKETS_AFTER", SettingKind::number, "5", "1..65536",
     "operations on a connection before its ends look for each other; 1: at once, for tests and measuring"},
    {"VIADUCT_SOCKETS_JUDGE", SettingKind::choice, "on", "on|off|always",
     "on: connections go back to TCP for a while where that costs less; off: they stay on rings; always: they go back "
     "and "
     "forth all the time, for tests"},
    {"VIADUCT_COUNTERS", SettingKind::boolean, "on", "on|off", "publish counters for `viaduct top`"},
    {"VIADUCT_COPY_PROCESSORS", SettingKind::text, "auto", "auto, none, or a list such as 1,3-5",
     "processors of the copy engine's workers"},
    {"VIADUCT_COPY_GPU", SettingKind::choice, "auto", "auto|on|off",
     "copy with a GPU's copy engines; auto: where the program uses CUDA itself"},
    {"VIADUCT_CUDA_LIBRARY", SettingKind::text, "libcuda.so.1", "a library's name or path", "the CUDA driver"},
    {"VIADUCT_PIN_CACHE", SettingKind::bytes, "1G", "0..1024G",
     "memory that stays pinned between copies of a GPU; 0 keeps none"},
};

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

bool within(std::string_view range, std::uint64_t value) {
  const auto dots = range.find("..");
  const auto least = parse_bytes(range.substr(0, dots)), most = parse_bytes(range.substr(dots + 2));
  return least && most && value >= *least && value <= *most;
}

bool one_of(std::string_view choices, std::string_view text) {
  for (std::size_t at = 0; at <= choices.size();) {
    const std::size_t end = std::min(choices.find('|', at), choices.size());
    if (choices.substr(at, end - at) == text) return true;
    at = end + 1;
  }
  return false;
}

std::optional<bool> parse_flag(std::string_view text) {
  if (text == "on" || text == "1" || text == "yes" || text == "true") return true;
  if (text == "off" || text == "0" || text == "no" || text == "false") return false;
  return std::nullopt;
}

bool acceptable(const Setting& setting, std::string_view text) {
  switch (setting.kind) {
    case SettingKind::text:
      return true;
    case SettingKind::boolean:
      return parse_flag(text).has_value();
    case SettingKind::choice:
      return one_of(setting.range, text);
    case SettingKind::number: {
      const auto value = parse_number(text);
      return value && within(setting.range, *value);
    }
    case SettingKind::bytes: {
      const auto value = parse_bytes(text);
      return value && within(setting.range, *value);
    }
  }
  return false;
}

std::string file_key(std::string_view variable) {
  std::string key(variable.substr(std::string_view("VIADUCT_").size()));
  std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::tolower(c); });
  return key;
}

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

struct FileValue {
  std::string text;
  std::string where;
};
using FileValues = std::map<std::string, FileValue, std::less<>>;

std::string config_path(const Config::Environment& environment, bool& demanded) {
  demanded = false;
  if (const char* named = environment("VIADUCT_CONFIG"); named != nullptr && *named != 0) return demanded = true, named;
  if (const char* home = environment("HOME"); home != nullptr && *home != 0) {
    std::string path = std::string(home) + "/.config/viaduct/config";
    if (std::ifstream(path)) return path;
  }
  return "/etc/viaduct/config";
}

FileValues read_file(const Config::Environment& environment, std::vector<Error>& faults) {
  FileValues values;
  bool demanded = false;
  const std::string path = config_path(environment, demanded);
  std::ifstream file(path);
  if (!file) {
    if (demanded)
      faults.push_back(Error(ENOENT, fmt::format("configuration {}: cannot be read (VIADUCT_CONFIG)", path)));
    return values;
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view content = trim(std::string_view(line).substr(0, line.find('#')));
    if (content.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const auto equals = content.find('=');
    const std::string key(trim(content.substr(0, equals)));
    const bool known = std::any_of(std::begin(kSettings), std::end(kSettings),
                                   [&](const Setting& setting) { return file_key(setting.name) == key; });
    if (equals == std::string_view::npos || !known)
      faults.push_back(
          Error(EINVAL, fmt::format("configuration {}: '{}' is not a setting (viaduct info lists them)", where, key)));
    else
      values[key] = {std::string(trim(content.substr(equals + 1))), where};
  }
  if (file.bad()) faults.push_back(Error(EIO, fmt::format("configuration {}: cannot be read", path)));
  return values;
}

}  // namespace

std::span<const Setting> settings() {
  return kSettings;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t unit = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'k':
      case 'K':
        unit = std::uint64_t{1} << 10;
        break;
      case 'm':
      case 'M':
        unit = std::uint64_t{1} << 20;
        break;
      case 'g':
      case 'G':
        unit = std::uint64_t{1} << 30;
        break;
      default:
        break;
    }
    if (unit != 1) text.remove_suffix(1);
  }
  const auto value = parse_number(text);
  if (!value || *value > UINT64_MAX / unit) return std::nullopt;
  return *value * unit;
}

Config Config::read_leniently(const Environment& environment, std::vector<Error>& faults) {
  Config config;
  const FileValues file = read_file(environment, faults);
  for (const Setting& setting : kSettings) {
    Value value{&setting, std::string(setting.fallback), "default"};
    const auto consider = [&](std::string_view text, const std::string& source) {
      if (acceptable(setting, text))
        value = {&setting, std::string(text), source};
      else
        faults.push_back(Error(
            EINVAL, fmt::format("{}: '{}' ({}) is not acceptable: {}", setting.name, text, source, setting.range)));
    };
    if (const auto entry = file.find(file_key(setting.name)); entry != file.end())
      consider(entry->second.text, entry->second.where);
    if (const char* text = environment(std::string(setting.name).c_str()); text != nullptr)
      consider(text, "environment");
    config.values_.push_back(std::move(value));
  }
  return config;
}

Result<Config> Config::read(const Environment& environment) {
  std::vector<Error> faults;
  Config config = read_leniently(environment, faults);
  if (!faults.empty()) return faults.front();
  return config;
}

const Config& Config::process() {
  static const auto* const config = [] {  // never destroyed: threads read it until the very end
    std::vector<Error> faults;
    Config read = read_leniently([](const char* name) { return std::getenv(name); }, faults);
    log::set_level(read.text("VIADUCT_LOG"));
    for (const Error& fault : faults) log::fault(fault.message() + "; the default is used");
    return new Config(std::move(read));
  }();
  return *config;
}

const Config::Value& Config::find(std::string_view name) const {
  const auto found =
      std::find_if(values_.begin(), values_.end(), [&](const Value& v) { return v.setting->name == name; });
  assert(found != values_.end() && "not in the table of settings");
  return *found;
}

std::uint64_t Config::number(std::string_view name) const {
  return parse_bytes(find(name).text).value_or(0);
}

bool Config::flag(std::string_view name) const {
  return parse_flag(find(name).text).value_or(false);
}

}  // namespace viaduct
