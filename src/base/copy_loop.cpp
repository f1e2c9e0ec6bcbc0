#include "base/copy_loop.hpp"

#include <cstdint>
#include <cstring>
#include <initializer_list>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/prefetch.hpp"

namespace viaduct {

namespace {

constexpr std::size_t kLoopFrom = 1024;
constexpr std::size_t kAhead = 2048;

using CopyFunction = void (*)(std::byte*, const std::byte*, std::size_t);

enum class Written { into_caches, past_caches };

template <Ahead, Written>
void copy_plain(std::byte* to, const std::byte* from, std::size_t size) {
  std::memcpy(to, from, size);
}

#if defined(__x86_64__)

// What is copied is not asked for beyond its end: those lines may be another core's to write. Inline whatever happens:
// a call that does nothing but ask is dropped as one without effect.
template <int count, Ahead ahead>
[[gnu::always_inline]] inline void fetch_lines(const std::byte* to, const std::byte* from, std::size_t size) {
  for (int i = 0; ahead == Ahead::both && i < count; ++i) prefetch_to_write(to + kAhead + 64 * i);
  if (ahead == Ahead::nothing || size < kAhead + 64 * count) return;
  for (int i = 0; i < count; ++i) __builtin_prefetch(from + kAhead + 64 * i);
}

template <Written written>
__attribute__((target("avx2"))) inline void store(std::byte* to, __m256i bytes) {
  auto* const destination = reinterpret_cast<__m256i*>(to);
  written == Written::past_caches ? _mm256_stream_si256(destination, bytes) : _mm256_store_si256(destination, bytes);
}

// How many bytes to leave out so that the rest begins with a whole vector of so many. Some, in any case, where the
// first line is better stored last: nothing has asked for it, and what is stored behind it would have to wait.
template <std::size_t width, Written written>
std::size_t before_first_vector(const std::byte* to) {
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(to) % width;
  return written == Written::past_caches && beyond == 0 ? 0 : width - beyond;
}

// Aligned stores, four vectors in flight; head and tail by overlapping unaligned vectors. size >= kLoopFrom.
template <Ahead ahead, Written written>
__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from, std::size_t size) {
  const __m256i head = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i tail = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + size - 32));
  std::byte* const last = to + size - 32;
  std::byte* const first = to;
  const std::size_t skip = before_first_vector<32, written>(to);
  to += skip, from += skip, size -= skip;
  for (; size >= 128; to += 128, from += 128, size -= 128) {
    fetch_lines<2, ahead>(to, from, size);
    const auto* source = reinterpret_cast<const __m256i*>(from);
    const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2), d = _mm256_loadu_si256(source + 3);
    store<written>(to, a), store<written>(to + 32, b), store<written>(to + 64, c), store<written>(to + 96, d);
  }
  for (; size >= 32; to += 32, from += 32, size -= 32)
    store<written>(to, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  if (skip != 0) _mm256_storeu_si256(reinterpret_cast<__m256i*>(first), head);
  if (size != 0) _mm256_storeu_si256(reinterpret_cast<__m256i*>(last), tail);
}

template <Written written>
__attribute__((target("avx512f"))) inline void store(std::byte* to, __m512i bytes) {
  written == Written::past_caches ? _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bytes)
                                  : _mm512_store_si512(to, bytes);
}

// The same with whole lines: a full-line store needs no fetch of the line that the other core holds.
template <Ahead ahead, Written written>
__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, std::size_t size) {
  const __m512i head = _mm512_loadu_si512(from);
  const __m512i tail = _mm512_loadu_si512(from + size - 64);
  std::byte* const last = to + size - 64;
  std::byte* const first = to;
  const std::size_t skip = before_first_vector<64, written>(to);
  to += skip, from += skip, size -= skip;
  for (; size >= 256; to += 256, from += 256, size -= 256) {
    fetch_lines<4, ahead>(to, from, size);
    const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64);
    const __m512i c = _mm512_loadu_si512(from + 128), d = _mm512_loadu_si512(from + 192);
    store<written>(to, a), store<written>(to + 64, b), store<written>(to + 128, c), store<written>(to + 192, d);
  }
  for (; size >= 64; to += 64, from += 64, size -= 64) store<written>(to, _mm512_loadu_si512(from));
  if (skip != 0) _mm512_storeu_si512(first, head);
  if (size != 0) _mm512_storeu_si512(last, tail);
}

void end_streaming() {
  _mm_sfence();
}

template <Ahead ahead, Written written>
CopyFunction choose() {
  if (__builtin_cpu_supports("avx512f")) return copy_avx512<ahead, written>;
  return __builtin_cpu_supports("avx2") ? copy_avx2<ahead, written> : copy_plain<ahead, written>;
}

#else

void end_streaming() {}

template <Ahead ahead, Written written>
CopyFunction choose() {
  return copy_plain<ahead, written>;
}

#endif

template <Ahead ahead, Written written = Written::into_caches>
void copy_any(void* destination, const void* source, std::size_t size) {
  static const CopyFunction copy = choose<ahead, written>();
  if (size == 0) return;
  if (size < kLoopFrom)
    std::memcpy(destination, source, size);
  else
    copy(static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), size);
}

}  // namespace

void copy_through_ring(void* destination, const void* source, std::size_t size, Ahead ahead) {
  switch (ahead) {
    case Ahead::nothing:
      return copy_any<Ahead::nothing>(destination, source, size);
    case Ahead::read:
      return copy_any<Ahead::read>(destination, source, size);
    case Ahead::both:
      return copy_any<Ahead::both>(destination, source, size);
  }
}

void copy_past_caches(void* destination, const void* source, std::size_t size) {
  copy_any<Ahead::read, Written::past_caches>(destination, source, size);
  end_streaming();
}

void prepare_copies() {
  for (const Ahead ahead : {Ahead::nothing, Ahead::read, Ahead::both}) copy_through_ring(nullptr, nullptr, 0, ahead);
  copy_past_caches(nullptr, nullptr, 0);
}

}  // namespace viaduct
