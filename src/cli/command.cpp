#include "cli/command.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/config.hpp"

namespace viaduct::cli {

namespace {

ExitCode chosen = ExitCode::ok;

ExitCode say(ExitCode code, std::string_view what) {
  fmt::print(stderr, "viaduct: {}\n", what);
  return code;
}

// A full disk shows only now; a reading that nobody got is a failure.
ExitCode with_output_written(ExitCode code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const ExitCode failed = failure("the output could not be written");
  return code == ExitCode::ok ? failed : code;
}

}  // namespace

void on_run(CLI::App& command, std::function<ExitCode()> action) {
  command.callback([action = std::move(action)] {
    const auto config = Config::read([](const char* name) { return std::getenv(name); });
    chosen = config ? with_output_written(action()) : usage_error(config.error().message());
  });
}

ExitCode failure(std::string_view what) {
  return say(ExitCode::failed, what);
}

ExitCode usage_error(std::string_view what) {
  return say(ExitCode::usage, what);
}

CLI::Validator number_between(double least, double most) {
  const auto check = [least, most](std::string& text) -> std::string {
    double value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = fault == std::errc{} && end == text.data() + text.size();
    if (number && value >= least && value <= most) return "";
    return fmt::format("'{}' is not a number from {} to {}", text, least, most);
  };
  return {check, ""};
}

void add_watch_options(CLI::App& command, WatchOptions& options, const std::string& whose) {
  command.add_flag("--once", options.once, "Print one reading and end");
  command.add_flag("--json", options.json, "Print each reading as one JSON object on a line");
  command.add_option("--interval", options.interval, "Seconds between readings")
      ->type_name("SECONDS")
      ->check(number_between(0.05, 3600))
      ->capture_default_str();
  command.add_option("PID", options.pids, whose)->type_name("")->check(number_between(1, kHighestPid));
}

ExitCode exit_code() {
  return chosen;
}

}  // namespace viaduct::cli
