// The log inside somebody else's program: one line to standard error, nothing loaded for it.
#include "base/log.hpp"

#include <unistd.h>

#include <string>

namespace viaduct::log {

namespace {

void line(std::string_view text) {
  std::string whole = "viaduct: ";
  whole += text;
  whole += '\n';
  [[maybe_unused]] const ssize_t written = ::write(2, whole.data(), whole.size());
}

}  // namespace

void set_level(std::string_view) {}
void fault(std::string_view text) {
  line(text);
}
void notice(std::string_view) {}
void detail(std::string_view) {}

}  // namespace viaduct::log
