// Atomic operations of libfabric on arrays of its data types.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>

#include <cstddef>

#include "fabric/operation.hpp"
#include "fabric/remote_wire.hpp"

namespace viaduct::fabric {

// Whether there is such an operation on that type, asked for in that way.
bool is_possible(fi_datatype type, fi_op op, RemoteKind kind);
std::size_t size_of(fi_datatype type);  // 0: no such type
// Arrays that go along: none for reading, two for those that compare.
std::size_t operands_of(fi_op op);
inline std::size_t most_elements(fi_datatype type, fi_op op) {
  return kMostAsked / (size_of(type) * (operands_of(op) == 2 ? 2 : 1));
}

// On memory of any alignment. Whoever calls keeps others away.
void apply(fi_datatype type, fi_op op, std::byte* memory, const std::byte* operand, const std::byte* compare,
           std::size_t count);

}  // namespace viaduct::fabric
