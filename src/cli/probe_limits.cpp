#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/resource.h>

#include "cli/probe.hpp"
#include "cli/system_files.hpp"

namespace viaduct::cli {

namespace {

constexpr rlim_t kEnoughLocked = rlim_t{64} << 20;
constexpr rlim_t kEnoughFiles = 4096;

Finding locked_memory() {
  const std::string name = "locked-memory";
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
    return {name, State::no, "", "the limit cannot be read", "allow getrlimit in the sandbox"};
  const auto words = [](rlim_t value) { return value == RLIM_INFINITY ? std::string("unlimited") : in_bytes(value); };
  const std::string detail = fmt::format("{} (at most {})", words(limit.rlim_cur), words(limit.rlim_max));
  if (have_capability(CAP_IPC_LOCK)) return {name, State::yes, detail + "; CAP_IPC_LOCK lifts it"};
  if (limit.rlim_cur >= kEnoughLocked) return {name, State::yes, detail};
  return {name, State::partly, detail, "large buffers cannot be locked in memory",
          "ulimit -l unlimited, or memlock in /etc/security/limits.conf, or LimitMEMLOCK= of the service"};
}

Finding open_files() {
  const std::string name = "open-files";
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return {name, State::no, "", "the limit cannot be read", "allow getrlimit in the sandbox"};
  const std::string detail = fmt::format("{} (at most {})", limit.rlim_cur, limit.rlim_max);
  if (limit.rlim_cur >= kEnoughFiles) return {name, State::yes, detail};
  return {name, State::partly, detail, "too few for a server of thousands of connections",
          limit.rlim_max > limit.rlim_cur
              ? fmt::format("ulimit -n {}", limit.rlim_max)
              : std::string("nofile in /etc/security/limits.conf, or LimitNOFILE= of the service")};
}

}  // namespace

Findings probe_limits() {
  return {locked_memory(), open_files()};
}

}  // namespace viaduct::cli
