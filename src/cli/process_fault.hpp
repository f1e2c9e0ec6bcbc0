// Why the sockets of a process cannot be read, as a user should be told.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/result.hpp"
#include "sockets_view/view.hpp"

namespace viaduct::cli {

// Where nothing is found: what may be there nevertheless.
inline std::string_view whose_are_seen() {
  return ::geteuid() == 0 ? "" : "; only programs of this user are seen, root sees all";
}

// `command`: of ours, that was asked.
inline Error explain_unread_sockets(int pid, const Error& fault, std::string_view command) {
  if (fault.code() == ESRCH) return {ESRCH, fmt::format("there is no process {}", pid)};
  if (fault.code() == EACCES || fault.code() == EPERM)
    return {EACCES,
            fmt::format("process {} belongs to somebody else: run viaduct {} as its user or as root", pid, command)};
  if (fault.code() == ENOENT && sockets_view::has_library(pid))
    return {ENOENT, fmt::format("process {} runs under `viaduct run`, and has had no TCP socket so far", pid)};
  if (fault.code() == ENOENT)
    return {ENOENT,
            fmt::format("process {} does not run under `viaduct run`: start it as `viaduct run -- PROGRAM`", pid)};
  return fault;
}

}  // namespace viaduct::cli
