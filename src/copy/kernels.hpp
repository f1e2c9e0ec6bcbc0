// The loops that move bytes.
//
//   keep    through the cache: memcpy, or a vector loop where source and destination lie a few bytes apart modulo 4096
//           and memcpy stumbles there: `rep movsb`, which it uses, falls to a tenth of its speed on some processors
//   stream  past the cache; the bytes are visible before anything that is stored afterwards. Several loops can do it,
//           and which is fastest differs between processors: memcpy itself is among them, so that it is never beaten by
//           it for long (kernel_contest.hpp)
//   fill    past the cache, for a constant
//
// None of them allows overlap.
#pragma once

#include <cstddef>
#include <span>

namespace viaduct::copy {

// The destination 1..63 bytes behind the source, modulo 4096.
bool aliases(const std::byte* to, const std::byte* from);

void copy_kept(std::byte* to, const std::byte* from, std::size_t size);

// Alone: the whole copy by one thread. Shared: a part, beside others that do the rest. Each has its own contest, and so
// have short copies.
enum class Copier { alone, shared };
void copy_streaming(std::byte* to, const std::byte* from, std::size_t size, Copier copier);
void fill_streaming(std::byte* to, int byte, std::size_t size);

struct StreamKernel {
  const char* name;
  void (*copy)(std::byte* to, const std::byte* from, std::size_t size);
};

// What this processor can run: the favourite first, memcpy last.
std::span<const StreamKernel> stream_kernels();

// The one in use, for people.
const char* stream_kernel_name(Copier copier);

}  // namespace viaduct::copy
