// Calls of an operations table that an object does not have: -FI_ENOSYS, with the arguments of whatever is asked for.
#pragma once

#include <rdma/fi_errno.h>

namespace viaduct::fabric {

template <class Function>
struct None;
template <class Result, class... Arguments>
struct None<Result (*)(Arguments...)> {
  static Result call(Arguments...) { return static_cast<Result>(-FI_ENOSYS); }
};

}  // namespace viaduct::fabric

#define VIADUCT_NONE(table, entry) ::viaduct::fabric::None<decltype(table::entry)>::call
