#include "copy/kernels.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "base/clock.hpp"
#include "base/copy_loop.hpp"
#include "copy/kernel_contest.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace viaduct::copy {

namespace {

constexpr std::size_t kStreamFrom = 4096;  // shorter runs are not worth aligning and fencing

using Copy = void (*)(std::byte*, const std::byte*, std::size_t);

void copy_plain(std::byte* to, const std::byte* from, std::size_t size) {
  std::memcpy(to, from, size);
}

// ---- where memcpy may stumble

void copy_with_loop(std::byte* to, const std::byte* from, std::size_t size) {
  copy_through_ring(to, from, size);
}

// The best of a few: noise only ever adds. The call is through a pointer, so that none of them is left out.
std::uint64_t best_time(Copy copy, std::byte* to, const std::byte* from, std::size_t size) {
  const Clock& clock = Clock::steady();
  Copy volatile any = copy;
  std::uint64_t best = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t start = clock.now_ns();
    any(to, from, size);
    best = std::min(best, clock.now_ns() - start);
  }
  return best;
}

// For one class of sizes: who copies better between such addresses, the loop or memcpy. The loop does it until there
// have been enough such copies for the measuring, some 0.1 ms, to be nothing beside them.
class Stumbling {
 public:
  explicit constexpr Stumbling(std::size_t typical_size) : size_(typical_size) {}

  bool loop_is_better() {
    const Answer known = answer_.load(std::memory_order_relaxed);
    if (known != Answer::unknown) return known == Answer::loop;
    if (asked_.fetch_add(1, std::memory_order_relaxed) == kBefore) answer_.store(measure(), std::memory_order_relaxed);
    return true;
  }

 private:
  enum class Answer : std::uint32_t { unknown, loop, memcpy };
  static constexpr std::uint32_t kBefore = 512;

  Answer measure() const {
    constexpr std::size_t kPage = 4096, kShift = 8;
    const std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[2 * size_ + 2 * kPage]());
    if (!memory) return Answer::unknown;
    std::byte* const to = memory.get() + size_ + kPage + kShift;
    const std::uint64_t loop = best_time(copy_with_loop, to, memory.get(), size_);
    return best_time(copy_plain, to, memory.get(), size_) > loop + loop / 20 ? Answer::loop : Answer::memcpy;
  }

  const std::size_t size_;
  std::atomic<Answer> answer_{Answer::unknown};
  std::atomic<std::uint32_t> asked_{0};
};

constexpr std::size_t kInFirstLevelCache = 20 << 10;  // source and target together
constinit Stumbling stumbling_short{16 << 10};
constinit Stumbling stumbling_long{128 << 10};

bool loop_is_better(std::size_t size) {
  return (size <= kInFirstLevelCache ? stumbling_short : stumbling_long).loop_is_better();
}

// ---- past the cache

#if defined(__x86_64__)

std::size_t up_to_line(const std::byte* to) {
  return (-reinterpret_cast<std::uintptr_t>(to)) % 64;
}

// The source is asked for ahead of the copy, past the caches: that pushes nothing out of the large ones, and must fit
// into the small one. How far ahead hides the memory's latency differs.
constexpr std::size_t kNear = 8192, kFar = 16384;

// Inline whatever happens: a call that does nothing but ask is dropped as one without effect.
[[gnu::always_inline]] inline void fetch(const std::byte* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_NTA);
}

[[gnu::always_inline]] inline void fetch_first(const std::byte* from, std::size_t size) {
  for (std::size_t at = 0; at < size; at += 64) fetch(from + at);
}

template <std::size_t ahead>
__attribute__((target("avx512f"))) void stream_avx512(std::byte* to, const std::byte* from, std::size_t size) {
  if (size < kStreamFrom) return copy_kept(to, from, size);
  if (const std::size_t skip = up_to_line(to); skip != 0) {
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
    to += skip, from += skip, size -= skip;
  }
  constexpr std::size_t kStep = 512;
  const std::size_t body = size / kStep * kStep;
  fetch_first(from, std::min(body, ahead));
  for (std::size_t at = 0; at < body; at += kStep) {
    if (at + ahead < body)
      for (std::size_t line = 0; line < kStep; line += 64) fetch(from + at + ahead + line);
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
template <std::size_t ahead>
__attribute__((target("avx2"))) void stream_avx2(std::byte* to, const std::byte* from, std::size_t size) {
  if (size < kStreamFrom) return copy_kept(to, from, size);
  if (const std::size_t skip = up_to_line(to); skip != 0) {
    std::memcpy(to, from, skip);
    to += skip, from += skip, size -= skip;
  }
  const std::size_t body = size / 64 * 64;
  fetch_first(from, std::min(body, ahead));
  for (std::size_t at = 0; at < body; at += 64) {
    if (at + ahead < body) fetch(from + at + ahead);
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

// The processor's own: many go past the cache by themselves where the copy is long.
void stream_string(std::byte* to, const std::byte* from, std::size_t size) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
  _mm_sfence();
}

#endif

void fill_plain(std::byte* to, int byte, std::size_t size) {
  std::memset(to, byte, size);
}

// ---- which of them

struct Kernels {
  std::array<StreamKernel, 4> stream{};
  std::size_t count = 0;
  void (*fill)(std::byte*, int, std::size_t) = fill_plain;

  void add(const StreamKernel& kernel) { stream[count++] = kernel; }
};

Kernels choose() {
  Kernels kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
    kernels.add({"AVX-512", stream_avx512<kNear>});
    kernels.add({"AVX-512, from further ahead", stream_avx512<kFar>});
    kernels.fill = fill_avx512;
  } else if (__builtin_cpu_supports("avx2")) {
    kernels.add({"AVX2", stream_avx2<kNear>});
    kernels.add({"AVX2, from further ahead", stream_avx2<kFar>});
    kernels.fill = fill_avx2;
  }
  if (kernels.count > 0) kernels.add({"rep movsb", stream_string});
#endif
  kernels.add({"memcpy", copy_plain});
  return kernels;
}

const Kernels& kernels() {
  static const Kernels chosen = choose();
  return chosen;
}

constexpr std::size_t kBrief = 96 << 10;  // shorter copies have a contest of their own

KernelContest& contest(Copier copier, std::size_t size) {
  static const int candidates = static_cast<int>(kernels().count);
  static KernelContest brief(candidates), alone(candidates), shared(candidates);
  return size < kBrief ? brief : copier == Copier::alone ? alone : shared;
}

}  // namespace

bool aliases(const std::byte* to, const std::byte* from) {
  const std::uintptr_t distance =
      (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % 4096;
  return distance - 1 < 63;
}

void copy_kept(std::byte* to, const std::byte* from, std::size_t size) {
  if (size >= 1024 && aliases(to, from) && loop_is_better(size)) [[unlikely]]
    copy_through_ring(to, from, size);
  else
    std::memcpy(to, from, size);
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t size, Copier copier) {
  if (size < kStreamFrom) return copy_kept(to, from, size);
  const Kernels& known = kernels();
  // The favourite never stumbles, unless memcpy is all there is.
  if (aliases(to, from)) return known.count > 1 ? known.stream[0].copy(to, from, size) : copy_kept(to, from, size);
  KernelContest& contest = copy::contest(copier, size);
  const int who = contest.current();
  const Copy copy = known.stream[static_cast<std::size_t>(who)].copy;
  if (!contest.timed()) {
    copy(to, from, size);
    return contest.copied(size);
  }
  const Clock& clock = Clock::steady();
  const std::uint64_t start = clock.now_ns();
  copy(to, from, size);
  contest.copied(who, size, clock.now_ns() - start);
}

void fill_streaming(std::byte* to, int byte, std::size_t size) {
  kernels().fill(to, byte, size);
}

std::span<const StreamKernel> stream_kernels() {
  return {kernels().stream.data(), kernels().count};
}

const char* stream_kernel_name(Copier copier) {
  return kernels().stream[static_cast<std::size_t>(contest(copier, kBrief).current())].name;
}

}  // namespace viaduct::copy
