#include <fcntl.h>
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.hpp"
#include "cli/probe.hpp"
#include "cli/system_files.hpp"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace viaduct::cli {

Findings probe_userfaultfd() {
  const std::string name = "userfaultfd";
  const auto attempt = [](int flags) {
    return Fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags)));
  };
  const auto allowed = number_in("/proc/sys/vm/unprivileged_userfaultfd");
  const std::string setting =
      allowed ? fmt::format("vm.unprivileged_userfaultfd is {}", *allowed) : std::string("no sysctl for it");
  if (attempt(0)) return {{name, State::yes, fmt::format("faults of programs and of the kernel; {}", setting)}};
  const int fault = errno;
  const std::string advice =
      "as root: sysctl -w vm.unprivileged_userfaultfd=1; or give the program CAP_SYS_PTRACE, or access to "
      "/dev/userfaultfd";
  if (attempt(UFFD_USER_MODE_ONLY))
    return {{name, State::partly, fmt::format("faults of programs; {}", setting),
             "faults inside system calls need a privilege", advice}};
  if (fault == ENOSYS)
    return {{name, State::no, "", "the kernel has none, or a seccomp filter hides it",
             "use a kernel built with CONFIG_USERFAULTFD and allow userfaultfd in the sandbox"}};
  if (fault == EPERM && seccomp_filtered())
    return {{name, State::no, setting, "a seccomp filter refuses userfaultfd",
             "allow userfaultfd in the container's seccomp profile"}};
  return {{name, State::no, setting, fmt::format("userfaultfd: {}", std::strerror(fault)), advice}};
}

}  // namespace viaduct::cli
