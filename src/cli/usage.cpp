#include "cli/usage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/nearest_name.hpp"

namespace viaduct::cli {

namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// The command that was named last: `run` of `viaduct nic run`.
const CLI::App& innermost(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.front());
}

// "nic run"
std::string full_name(const CLI::App& app, const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  if (parent == nullptr || parent == &app) return command.get_name();
  return fmt::format("{} {}", full_name(app, *parent), command.get_name());
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string suggestion(std::string_view typed, const std::vector<std::string>& names) {
  const auto near = nearest_name(typed, names);
  return near ? fmt::format("; did you mean '{}'?", *near) : "";
}

std::string explain_leftover(const CLI::App& app, const CLI::App& command, const std::string& argument) {
  const bool in_command = &app != &command;
  const std::string name = in_command ? full_name(app, command) : "";
  if (argument.size() > 1 && argument.front() == '-') {
    const std::string option = argument.substr(0, argument.find('='));
    if (in_command)
      return fmt::format("{} has no option '{}'{} (viaduct {} --help lists them)", name, option,
                         suggestion(option, option_names(command)), name);
    return fmt::format("there is no option '{}'{} (viaduct --help lists them)", option,
                       suggestion(option, option_names(app)));
  }
  if (in_command && !command_names(command).empty())
    return fmt::format("{} has no command '{}'{} (viaduct {} --help lists them)", name, argument,
                       suggestion(argument, command_names(command)), name);
  if (in_command)
    return fmt::format("{} does not take '{}' (viaduct {} --help says what it takes)", name, argument, name);
  return fmt::format("there is no command '{}'{} (viaduct --help lists them)", argument,
                     suggestion(argument, command_names(app)));
}

std::string in_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// CLI11's "--interval: 1 required SECONDS missing", for somebody who has not read its source.
std::string in_plain_words(const CLI::ParseError& fault) {
  const std::string text = in_one_line(fault.what());
  constexpr std::string_view kBefore = ": 1 required ", kAfter = " missing";
  const auto at = text.find(kBefore);
  if (at == std::string::npos || !text.ends_with(kAfter)) return text;
  const auto type = at + kBefore.size();
  return fmt::format("{} needs a value: {}", text.substr(0, at), text.substr(type, text.size() - kAfter.size() - type));
}

}  // namespace

std::string explain(const CLI::App& app, const CLI::ParseError& fault) {
  const CLI::App& command = innermost(app);
  if (dynamic_cast<const CLI::ExtrasError*>(&fault) != nullptr) {
    if (const auto left = app.remaining(); !left.empty()) return in_one_line(explain_leftover(app, app, left.front()));
    if (const auto left = command.remaining(); !left.empty())
      return in_one_line(explain_leftover(app, command, left.front()));
  }
  const std::string name = &app == &command ? "" : full_name(app, command);
  return in_one_line(fmt::format("{}{} (viaduct {}{}--help says more)", name.empty() ? "" : name + ": ",
                                 in_plain_words(fault), name, name.empty() ? "" : " "));
}

std::string ask_for_command(const CLI::App& app) {
  return fmt::format("name a command: {} (viaduct --help describes them)", fmt::join(command_names(app), ", "));
}

}  // namespace viaduct::cli
