#include "base/crc32c.hpp"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace viaduct {

namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::uint32_t shifted_by_a_byte(std::uint32_t sum) {
  for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) ? kPolynomial : 0);
  return sum;
}

// Row k: what a byte does to the sum when k bytes follow it in its word of eight.
constexpr auto kRows = [] {
  std::array<std::array<std::uint32_t, 256>, 8> rows{};
  for (std::uint32_t value = 0; value < 256; ++value) rows[0][value] = shifted_by_a_byte(value);
  for (std::size_t row = 1; row < 8; ++row) {
    for (std::uint32_t value = 0; value < 256; ++value) {
      const std::uint32_t sum = rows[row - 1][value];
      rows[row][value] = (sum >> 8) ^ rows[0][sum & 0xff];
    }
  }
  return rows;
}();

std::uint64_t word_at(const std::byte* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

#if defined(__x86_64__)
// The instruction takes three cycles and one may begin in each: three lanes of this many bytes run side by side, and
// are put together with tables of what a lane's worth of zeros does to a sum.
constexpr std::size_t kLane = 256;

constexpr std::uint32_t after_zeros(std::uint32_t sum, std::size_t bytes) {
  for (; bytes > 0; --bytes) sum = (sum >> 8) ^ kRows[0][sum & 0xff];
  return sum;
}

// shift[k][b]: what byte b at place k of a sum becomes after kLane zeros.
constexpr auto kLaneShift = [] {
  std::array<std::array<std::uint32_t, 256>, 4> shift{};
  std::array<std::uint32_t, 32> of_bit{};
  for (std::uint32_t bit = 0; bit < 32; ++bit) of_bit[bit] = after_zeros(std::uint32_t{1} << bit, kLane);
  for (std::uint32_t place = 0; place < 4; ++place) {
    for (std::uint32_t value = 0; value < 256; ++value) {
      for (std::uint32_t bit = 0; bit < 8; ++bit) {
        if (value >> bit & 1) shift[place][value] ^= of_bit[place * 8 + bit];
      }
    }
  }
  return shift;
}();

std::uint32_t over_a_lane(std::uint32_t sum) {
  return kLaneShift[0][sum & 0xff] ^ kLaneShift[1][sum >> 8 & 0xff] ^ kLaneShift[2][sum >> 16 & 0xff] ^
         kLaneShift[3][sum >> 24];
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const std::byte* from, std::size_t size,
                                                               std::uint32_t before) {
  std::uint64_t sum = ~before;
  for (; size >= 3 * kLane; from += 3 * kLane, size -= 3 * kLane) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t at = 0; at < kLane; at += 8) {
      sum = _mm_crc32_u64(sum, word_at(from + at));
      second = _mm_crc32_u64(second, word_at(from + kLane + at));
      third = _mm_crc32_u64(third, word_at(from + 2 * kLane + at));
    }
    const std::uint32_t first_two = over_a_lane(static_cast<std::uint32_t>(sum)) ^ static_cast<std::uint32_t>(second);
    sum = over_a_lane(first_two) ^ static_cast<std::uint32_t>(third);
  }
  for (; size >= 8; from += 8, size -= 8) sum = _mm_crc32_u64(sum, word_at(from));
  auto narrow = static_cast<std::uint32_t>(sum);
  for (; size > 0; ++from, --size) narrow = _mm_crc32_u8(narrow, static_cast<std::uint8_t>(*from));
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t sum = ~before;
  const std::byte* from = bytes.data();
  std::size_t size = bytes.size();
  for (; size >= 8; from += 8, size -= 8) {
    const std::uint64_t word = word_at(from) ^ sum;
    sum = 0;
    for (std::size_t place = 0; place < 8; ++place) sum ^= kRows[7 - place][word >> (8 * place) & 0xff];
  }
  for (; size > 0; ++from, --size) sum = (sum >> 8) ^ kRows[0][(sum ^ static_cast<std::uint8_t>(*from)) & 0xff];
  return ~sum;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return by_instruction(bytes.data(), bytes.size(), before);
#endif
  return crc32c_by_table(bytes, before);
}

}  // namespace viaduct
