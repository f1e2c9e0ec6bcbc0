#include "base/copy_loop.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/prefetch.hpp"

namespace viaduct {

namespace {

constexpr std::size_t kLoopFrom = 1024;
constexpr std::size_t kAhead = 2048;

using CopyFunction = void (*)(std::byte*, const std::byte*, std::size_t);

template <bool fetch_ahead>
void copy_plain(std::byte* to, const std::byte* from, std::size_t size) {
  std::memcpy(to, from, size);
}

#if defined(__x86_64__)

// What is copied is asked for ahead too, but not beyond its end: those lines may be another core's to write.
template <int count, bool fetch_ahead>
inline void fetch_lines(const std::byte* to, const std::byte* from, std::size_t size) {
  for (int i = 0; fetch_ahead && i < count; ++i) prefetch_to_write(to + kAhead + 64 * i);
  for (int i = 0; size >= kAhead + 64 * count && i < count; ++i) __builtin_prefetch(from + kAhead + 64 * i);
}

// Aligned stores, four vectors in flight; head and tail by overlapping unaligned vectors. size >= kLoopFrom.
template <bool fetch_ahead>
__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from, std::size_t size) {
  const __m256i head = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i tail = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + size - 32));
  std::byte* const last = to + size - 32;
  std::byte* const first = to;
  const std::size_t skip = 32 - (reinterpret_cast<std::uintptr_t>(to) & 31);
  to += skip, from += skip, size -= skip;
  for (; size >= 128; to += 128, from += 128, size -= 128) {
    fetch_lines<2, fetch_ahead>(to, from, size);
    const auto* source = reinterpret_cast<const __m256i*>(from);
    auto* destination = reinterpret_cast<__m256i*>(to);
    const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2), d = _mm256_loadu_si256(source + 3);
    _mm256_store_si256(destination, a), _mm256_store_si256(destination + 1, b);
    _mm256_store_si256(destination + 2, c), _mm256_store_si256(destination + 3, d);
  }
  for (; size > 32; to += 32, from += 32, size -= 32)
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(first), head);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(last), tail);
}

// The same with whole lines: a full-line store needs no fetch of the line that the other core holds.
template <bool fetch_ahead>
__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, std::size_t size) {
  const __m512i head = _mm512_loadu_si512(from);
  const __m512i tail = _mm512_loadu_si512(from + size - 64);
  std::byte* const last = to + size - 64;
  std::byte* const first = to;
  const std::size_t skip = 64 - (reinterpret_cast<std::uintptr_t>(to) & 63);
  to += skip, from += skip, size -= skip;
  for (; size >= 256; to += 256, from += 256, size -= 256) {
    fetch_lines<4, fetch_ahead>(to, from, size);
    const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64);
    const __m512i c = _mm512_loadu_si512(from + 128), d = _mm512_loadu_si512(from + 192);
    _mm512_store_si512(to, a), _mm512_store_si512(to + 64, b);
    _mm512_store_si512(to + 128, c), _mm512_store_si512(to + 192, d);
  }
  for (; size > 64; to += 64, from += 64, size -= 64) _mm512_store_si512(to, _mm512_loadu_si512(from));
  _mm512_storeu_si512(first, head);
  _mm512_storeu_si512(last, tail);
}

template <bool fetch_ahead>
CopyFunction choose() {
  if (__builtin_cpu_supports("avx512f")) return copy_avx512<fetch_ahead>;
  return __builtin_cpu_supports("avx2") ? copy_avx2<fetch_ahead> : copy_plain<fetch_ahead>;
}

#else

template <bool fetch_ahead>
CopyFunction choose() {
  return copy_plain<fetch_ahead>;
}

#endif

template <bool fetch_ahead>
void copy_any(void* destination, const void* source, std::size_t size) {
  static const CopyFunction copy = choose<fetch_ahead>();
  if (size == 0) return;
  if (size < kLoopFrom)
    std::memcpy(destination, source, size);
  else
    copy(static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), size);
}

}  // namespace

void copy_through_ring(void* destination, const void* source, std::size_t size) {
  copy_any<false>(destination, source, size);
}

void copy_into_ring(void* destination, const void* source, std::size_t size) {
  copy_any<true>(destination, source, size);
}

}  // namespace viaduct
