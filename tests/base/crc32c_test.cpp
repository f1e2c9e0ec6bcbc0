#include "base/crc32c.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/random.hpp"

namespace viaduct {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

// The published check values: of "123456789", and those of RFC 3720, B.4.
TEST(Crc32c, IsTheOneOfTheStandard) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xff});
  EXPECT_EQ(crc32c(zeros), 0x8a9136aaU);
  EXPECT_EQ(crc32c(ones), 0x62a8ab43U);
  std::vector<std::byte> rising(32);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, InstructionAndTableAgreeAtEveryLengthAndAlignment) {
  const auto bytes = random_bytes(5000, 1);
  for (std::size_t start = 0; start < 9; ++start) {
    for (std::size_t size = 0; size + start <= bytes.size(); size += size < 900 ? 1 : 97) {
      const auto part = std::span(bytes).subspan(start, size);
      ASSERT_EQ(crc32c(part), crc32c_by_table(part)) << start << " " << size;
    }
  }
}

TEST(Crc32c, GoesOnFromWhatStoodBefore) {
  const auto bytes = random_bytes(3000, 2);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 61) {
    EXPECT_EQ(crc32c(std::span(bytes).subspan(cut), crc32c(std::span(bytes).first(cut))), whole) << cut;
  }
}

TEST(Crc32c, SeesEveryChangedBit) {
  auto bytes = random_bytes(1500, 3);
  const std::uint32_t before = crc32c(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_NE(crc32c(bytes), before) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

}  // namespace
}  // namespace viaduct
