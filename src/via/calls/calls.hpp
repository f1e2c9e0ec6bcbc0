// What the exported functions share. They look handles up, check what a program gave, and call the objects.
#pragma once

#include <viaduct/vipl.h>

#include <memory>
#include <mutex>

#include "via/vipl/nic.hpp"
#include "via/vipl/tables.hpp"

namespace viaduct::vipl {

// Every VI and every completion queue is an adapter's of ours.
template <class Object>
Nic& nic_of(const Object& object) {
  return static_cast<Nic&>(object.adapter());
}

inline Deadline deadline_after(VIP_ULONG milliseconds) {
  if (milliseconds >= UINT64_MAX / 1'000'000) return Deadline::never();
  return Deadline::after_ns(Clock::steady(), milliseconds * 1'000'000);
}

}  // namespace viaduct::vipl
