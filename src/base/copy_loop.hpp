// The copy that rings use: a plain vector loop from 1 KB up, memcpy below.
//
// Between two cores glibc's memcpy may take its `rep movsb` path, which on several processors is many times slower than
// a loop when the lines are in the other core's cache or the two addresses are a few bytes apart modulo 4096.
#pragma once

#include <cstddef>

namespace viaduct {

void copy_through_ring(void* destination, const void* source, std::size_t size);

// The same for whoever fills a ring that another core empties: the lines it comes to, which that core has, are asked
// for ahead.
void copy_into_ring(void* destination, const void* source, std::size_t size);

}  // namespace viaduct
