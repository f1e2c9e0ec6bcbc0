#include <fmt/format.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.hpp"
#include "cli/probe.hpp"
#include "cli/system_files.hpp"

namespace viaduct::cli {

Findings probe_io_uring() {
  const std::string name = "io-uring";
  io_uring_params parameters{};
  const Fd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 2, &parameters)));
  const int fault = errno;
  if (ring) return {{name, State::yes, fmt::format("features {:#x}", parameters.features)}};

  const auto disabled = number_in("/proc/sys/kernel/io_uring_disabled");
  if (fault == ENOSYS)
    return {{name, State::no, "", "the kernel has no io_uring, or a seccomp filter hides it",
             "use a kernel built with CONFIG_IO_URING and allow io_uring_setup in the sandbox"}};
  if (fault == EPERM && disabled.value_or(0) == 2)
    return {{name, State::no, "", "switched off for everybody (kernel.io_uring_disabled is 2)",
             "as root: sysctl -w kernel.io_uring_disabled=0"}};
  if (fault == EPERM && disabled.value_or(0) == 1)
    return {{name, State::no, "", "only for the group kernel.io_uring_group and CAP_SYS_ADMIN (io_uring_disabled is 1)",
             "join that group, or as root: sysctl -w kernel.io_uring_disabled=0"}};
  if (fault == EPERM)
    return {{name, State::no, "", "a seccomp filter or security module refuses io_uring_setup",
             "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile"}};
  if (fault == ENOMEM)
    return {
        {name, State::no, "", "no memory for the ring: the limit on locked memory is too low", "ulimit -l unlimited"}};
  return {{name, State::no, "", fmt::format("io_uring_setup: {}", std::strerror(fault)), "see io_uring_setup(2)"}};
}

}  // namespace viaduct::cli
