// The copy that rings use: a plain vector loop from 1 KB up, memcpy below.
//
// Between two cores glibc's memcpy may take its `rep movsb` path, which on several processors is many times slower than
// a loop when the lines are in the other core's cache or the two addresses are a few bytes apart modulo 4096.
#pragma once

#include <cstddef>

namespace viaduct {

// Which lines are asked for ahead of the copy.
enum class Ahead {
  nothing,
  read,  // those that are read
  both   // and those that are written, which another core has or which are out of the near caches
};

void copy_through_ring(void* destination, const void* source, std::size_t size, Ahead ahead = Ahead::read);

// Written to memory, past the caches: for a reader whose core shares no cache with this one, where to write a line
// means to wait until the other's cache has given it up. Done before anything that is stored next.
void copy_past_caches(void* destination, const void* source, std::size_t size);

// How this processor copies best is found out at the first use of each of them: now, for whoever must not do so then,
// as in a signal handler.
void prepare_copies();

}  // namespace viaduct
