// The loops that move bytes, chosen once for this processor.
//
//   keep    through the cache: memcpy, or a vector loop where source and destination lie a few bytes apart modulo 4096,
//   where
//           `rep movsb` (which memcpy uses) falls to a tenth of its speed on some processors
//   stream  past the cache: non-temporal stores, the source fetched ahead into the second-level cache; ends with a
//   fence,
//           so that the bytes are visible before anything that is stored afterwards
//   fill    the same for a constant
//
// None of them allows overlap.
#pragma once

#include <cstddef>

namespace viaduct::copy {

struct Kernels {
  const char* name;
  void (*keep)(std::byte* to, const std::byte* from, std::size_t size);
  void (*stream)(std::byte* to, const std::byte* from, std::size_t size);
  void (*fill_stream)(std::byte* to, int byte, std::size_t size);
};

const Kernels& kernels();

}  // namespace viaduct::copy
