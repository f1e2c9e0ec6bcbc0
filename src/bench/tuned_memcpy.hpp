// The peer "memcpy, tuned": glibc reads its non-temporal threshold at start only, so this is another process: the
// command itself, started anew with GLIBC_TUNABLES set, which measures what it is told on a pipe.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::bench {

class TunedMemcpy {
 public:
  static Result<TunedMemcpy> start(std::size_t buffer_size, int processor);
  TunedMemcpy(TunedMemcpy&& other) noexcept;
  TunedMemcpy& operator=(TunedMemcpy&&) = delete;
  ~TunedMemcpy();

  // Nanoseconds per copy of `length` bytes, cold, over `count` copies.
  double cold_copy_ns(std::size_t length, int count);

 private:
  TunedMemcpy(pid_t child, Fd commands, Fd answers);
  pid_t child_;
  Fd commands_;
  Fd answers_;
};

}  // namespace viaduct::bench
