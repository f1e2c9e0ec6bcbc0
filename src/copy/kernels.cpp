#include "copy/kernels.hpp"

#include <cstdint>
#include <cstring>

#include "base/copy_loop.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace viaduct::copy {

namespace {

constexpr std::size_t kStreamFrom = 4096;  // shorter runs are not worth aligning and fencing

// Where `rep movsb` stumbles: the destination 1..63 bytes behind the source, modulo 4096.
bool aliases(const std::byte* to, const std::byte* from) {
  const std::uintptr_t distance =
      (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % 4096;
  return distance - 1 < 63;
}

void keep(std::byte* to, const std::byte* from, std::size_t size) {
  if (size >= 1024 && aliases(to, from)) [[unlikely]]
    copy_through_ring(to, from, size);
  else
    std::memcpy(to, from, size);
}

#if defined(__x86_64__)

std::size_t up_to_line(const std::byte* to) {
  return (-reinterpret_cast<std::uintptr_t>(to)) % 64;
}

// Far enough ahead to hide memory's latency, near enough that a short chunk profits too.
constexpr std::size_t kAhead = 8192;
constexpr std::size_t kAheadShort = 4096;

std::size_t fetch_distance(std::size_t size) {
  return size <= 65536 ? kAheadShort : kAhead;
}

void fetch_first(const std::byte* from, std::size_t size) {
  for (std::size_t at = 0; at < size; at += 64) _mm_prefetch(reinterpret_cast<const char*>(from + at), _MM_HINT_T1);
}

__attribute__((target("avx512f"))) void stream_avx512(std::byte* to, const std::byte* from, std::size_t size) {
  if (size < kStreamFrom) return keep(to, from, size);
  if (const std::size_t skip = up_to_line(to); skip != 0) {
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
    to += skip, from += skip, size -= skip;
  }
  constexpr std::size_t kStep = 512;
  const std::size_t ahead = fetch_distance(size), body = size / kStep * kStep;
  fetch_first(from, body < ahead ? body : ahead);
  for (std::size_t at = 0; at < body; at += kStep) {
    if (at + ahead < body)
      for (std::size_t line = 0; line < kStep; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(from + at + ahead + line), _MM_HINT_T1);
    __m512i lines[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) lines[i] = _mm512_loadu_si512(from + at + 64 * i);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 64 * i), lines[i]);
  }
  _mm_sfence();
  if (size > body) std::memcpy(to + body, from + body, size - body);
}

__attribute__((target("avx512f,avx512bw"))) void fill_avx512(std::byte* to, int byte, std::size_t size) {
  if (size < kStreamFrom) return void(std::memset(to, byte, size));
  const __m512i line = _mm512_set1_epi8(static_cast<char>(byte));
  if (const std::size_t skip = up_to_line(to); skip != 0) {
    _mm512_storeu_si512(to, line);
    to += skip, size -= skip;
  }
  const std::size_t body = size / 64 * 64;
  for (std::size_t at = 0; at < body; at += 64) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), line);
  _mm_sfence();
  if (size > body) std::memset(to + body, byte, size - body);
}

// Both halves of a line back to back, so that it leaves the write-combining buffer whole.
__attribute__((target("avx2"))) void stream_avx2(std::byte* to, const std::byte* from, std::size_t size) {
  if (size < kStreamFrom) return keep(to, from, size);
  if (const std::size_t skip = up_to_line(to); skip != 0) {
    std::memcpy(to, from, skip);
    to += skip, from += skip, size -= skip;
  }
  const std::size_t ahead = fetch_distance(size), body = size / 64 * 64;
  fetch_first(from, body < ahead ? body : ahead);
  for (std::size_t at = 0; at < body; at += 64) {
    if (at + ahead < body) _mm_prefetch(reinterpret_cast<const char*>(from + at + ahead), _MM_HINT_T1);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), high);
  }
  _mm_sfence();
  if (size > body) std::memcpy(to + body, from + body, size - body);
}

__attribute__((target("avx2"))) void fill_avx2(std::byte* to, int byte, std::size_t size) {
  if (size < kStreamFrom) return void(std::memset(to, byte, size));
  const __m256i half = _mm256_set1_epi8(static_cast<char>(byte));
  if (const std::size_t skip = up_to_line(to); skip != 0) {
    std::memset(to, byte, skip);
    to += skip, size -= skip;
  }
  const std::size_t body = size / 64 * 64;
  for (std::size_t at = 0; at < body; at += 32) _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), half);
  _mm_sfence();
  if (size > body) std::memset(to + body, byte, size - body);
}

#endif

void stream_plain(std::byte* to, const std::byte* from, std::size_t size) {
  keep(to, from, size);
}

void fill_plain(std::byte* to, int byte, std::size_t size) {
  std::memset(to, byte, size);
}

Kernels choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
    return {"AVX-512", keep, stream_avx512, fill_avx512};
  if (__builtin_cpu_supports("avx2")) return {"AVX2", keep, stream_avx2, fill_avx2};
#endif
  return {"plain", keep, stream_plain, fill_plain};
}

}  // namespace

const Kernels& kernels() {
  static const Kernels chosen = choose();
  return chosen;
}

}  // namespace viaduct::copy
