// Seeded randomness (xoshiro256**): one seed, one run. Satisfies UniformRandomBitGenerator.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace viaduct {

class Random {
 public:
  using result_type = std::uint64_t;

  explicit Random(std::uint64_t seed) {
    for (auto& word : state_) {  // splitmix64 spreads a small seed over the whole state
      seed += 0x9e3779b97f4a7c15;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
  }

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  result_type operator()() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound), bound > 0, by multiplication (the bias is below 2^-64 * bound).
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>((*this)()) * bound) >> 64);
  }
  bool chance(double probability) { return static_cast<double>((*this)() >> 11) * 0x1p-53 < probability; }

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace viaduct
