// What is wrong with a command line, in one line that names the nearest thing that would have been right.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace viaduct::cli {

// `app` has just thrown `fault` from parse().
std::string explain(const CLI::App& app, const CLI::ParseError& fault);

// No command was named at all.
std::string ask_for_command(const CLI::App& app);

}  // namespace viaduct::cli
