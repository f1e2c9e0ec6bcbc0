// Cross-memory attach: may one process copy straight out of another one's memory?
//
// Peers of Viaduct are siblings at best. Under Yama a parent may read its child while siblings may not read each other,
// so both are tried, with real processes.
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli/child_process.hpp"
#include "cli/probe.hpp"
#include "cli/system_files.hpp"

namespace viaduct::cli {

namespace {

using namespace std::chrono_literals;

constexpr auto kLimit = 2000ms;
constexpr std::uint64_t kWritten = 0x7661'6475'6374'0001;
std::uint64_t exposed = 0;  // at the same address in every child

// 0, or the errno of reading the target's `exposed`.
int read_from(pid_t target) {
  std::uint64_t seen = 0;
  const iovec here{&seen, sizeof seen}, there{&exposed, sizeof exposed};
  const ssize_t got = ::process_vm_readv(target, &here, 1, &there, 1, 0);
  if (got < 0) return errno;
  return got == sizeof seen && seen == kWritten ? 0 : EIO;
}

std::string worked_or_not(int fault) {
  return fault == 0 ? "yes" : std::strerror(fault);
}

std::string reason(int fault, const std::optional<std::uint64_t>& yama) {
  if (fault == ENOSYS)
    return seccomp_filtered() ? "a seccomp filter hides process_vm_readv"
                              : "the kernel is built without CONFIG_CROSS_MEMORY_ATTACH";
  if (fault == EPERM && yama == 1) return "Yama lets a process read its own descendants only (ptrace_scope 1)";
  if (fault == EPERM && yama == 2) return "Yama lets only CAP_SYS_PTRACE read other processes (ptrace_scope 2)";
  if (fault == EPERM && yama == 3) return "Yama lets nobody read other processes (ptrace_scope 3)";
  if (fault == EPERM && seccomp_filtered()) return "a seccomp filter refuses process_vm_readv";
  return fmt::format("process_vm_readv: {}", std::strerror(fault));
}

std::string advice(int fault, const std::optional<std::uint64_t>& yama) {
  if (fault == EPERM && yama == 3) return "boot with kernel.yama.ptrace_scope=0: level 3 cannot be left at run time";
  if (fault == EPERM && yama.value_or(0) > 0)
    return "as root: sysctl -w kernel.yama.ptrace_scope=0; or give the reader CAP_SYS_PTRACE";
  if (seccomp_filtered()) return "allow process_vm_readv in the sandbox (docker run --cap-add SYS_PTRACE)";
  return "use a kernel that has process_vm_readv; copies go through shared memory meanwhile";
}

}  // namespace

Findings probe_cma() {
  const std::string name = "process-vm-readv";
  const auto yama = number_in("/proc/sys/kernel/yama/ptrace_scope");
  auto target = ChildProcess::start([](int answer) {
    exposed = kWritten;
    if (::write(answer, "r", 1) == 1)
      for (;;) ::pause();
  });
  if (!target) return {{name, State::no, "", target.error().message(), "raise the limit on processes (ulimit -u)"}};
  if (const auto ready = target->read(1, kLimit); !ready)
    return {{name, State::no, "", ready.error().message(), "try again on a less busy machine"}};

  const int from_parent = read_from(target->pid());
  const int from_sibling = try_in_child([&] { return read_from(target->pid()); }, kLimit);
  const auto detail =
      fmt::format("between siblings: {}; parent from child: {}; Yama ptrace_scope: {}{}", worked_or_not(from_sibling),
                  worked_or_not(from_parent), yama ? std::to_string(*yama) : "not in this kernel",
                  have_capability(CAP_SYS_PTRACE) ? "; this user has CAP_SYS_PTRACE" : "");
  if (from_sibling == 0) return {{name, State::yes, detail}};
  return {{name, from_parent == 0 ? State::partly : State::no, detail, reason(from_sibling, yama),
           advice(from_sibling, yama)}};
}

}  // namespace viaduct::cli
