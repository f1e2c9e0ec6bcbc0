#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <string>

namespace viaduct::log {

namespace {

// Its own logger, unknown to spdlog's registry: the host program may use spdlog too.
spdlog::logger& logger() {
  static auto* const instance = [] {  // never destroyed: threads log until the very end
    auto* const made = new spdlog::logger("viaduct", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("viaduct[%P] %l: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(std::string_view level) {
  logger().set_level(spdlog::level::from_str(std::string(level)));
}

void fault(std::string_view line) {
  logger().error("{}", line);
}

void notice(std::string_view line) {
  logger().info("{}", line);
}

void detail(std::string_view line) {
  logger().debug("{}", line);
}

}  // namespace viaduct::log
