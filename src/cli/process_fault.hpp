// Why the sockets of a process cannot be read, as a user should be told.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <string_view>

#include "base/result.hpp"

namespace viaduct::cli {

// `command`: of ours, that was asked.
inline Error explain_unread_sockets(int pid, const Error& fault, std::string_view command) {
  if (fault.code() == ESRCH) return {ESRCH, fmt::format("there is no process {}", pid)};
  if (fault.code() == EACCES || fault.code() == EPERM)
    return {EACCES,
            fmt::format("process {} belongs to somebody else: run viaduct {} as its user or as root", pid, command)};
  if (fault.code() == ENOENT)
    return {ENOENT,
            fmt::format("process {} shows no TCP socket: it does not run under `viaduct run`, or has none", pid)};
  return fault;
}

}  // namespace viaduct::cli
