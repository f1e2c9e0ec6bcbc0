#include <fcntl.h>
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>

#include "base/fd.hpp"
#include "base/fence.hpp"
#include "cli/probe.hpp"
#include "cli/system_files.hpp"

namespace viaduct::cli {

namespace {

Finding kernel() {
  utsname name{};
  ::uname(&name);
  const auto detail = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  int major = 0, minor = 0;
  if (std::sscanf(name.release, "%d.%d", &major, &minor) == 2 && (major > 5 || (major == 5 && minor >= 10)))
    return {"kernel", State::yes, detail};
  return {"kernel", State::partly, detail, "older than 5.10, the oldest that Viaduct is written for",
          "update the kernel"};
}

Finding membarrier() {
  const std::string name = "membarrier";
  if (fence::asymmetric()) return {name, State::yes, "global expedited: publishing needs no fence while nobody sleeps"};
  const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  const int fault = errno;
  const std::string without = "not available: publishing pays a full fence each time";
  if (commands >= 0)
    return {name, State::no, without, "the kernel offers membarrier without the global expedited command",
            "update the kernel (4.16 or newer)"};
  if (fault == EPERM || seccomp_filtered())
    return {name, State::no, without, fmt::format("membarrier: {}; a seccomp filter refuses it", std::strerror(fault)),
            "allow membarrier in the container's seccomp profile"};
  return {name, State::no, without, fmt::format("membarrier: {}", std::strerror(fault)),
          "use a kernel built with CONFIG_MEMBARRIER"};
}

Finding memfd_seals() {
  const std::string name = "memfd-seals";
  const std::string advice = "use a kernel built with CONFIG_MEMFD_CREATE, and allow memfd_create in the sandbox";
  const Fd file(::memfd_create("viaduct-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return {name, State::no, "", fmt::format("memfd_create: {}", std::strerror(errno)), advice};
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::ftruncate(file.get(), 4096) != 0 || ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    return {name, State::no, "", fmt::format("sealing: {}", std::strerror(errno)), advice};
  if (::ftruncate(file.get(), 0) == 0) return {name, State::no, "", "a sealed file could still be truncated", advice};
  return {name, State::yes, "shared memory that a peer can neither truncate nor grow"};
}

}  // namespace

Findings probe_kernel() {
  return {kernel(), membarrier(), memfd_seals()};
}

}  // namespace viaduct::cli
