// Times in nanoseconds, for tests.
#pragma once

#include <cstdint>

namespace viaduct::net {

inline constexpr std::uint64_t kMillisecond = 1'000'000;
inline constexpr std::uint64_t kSecond = 1'000'000'000;

}  // namespace viaduct::net
