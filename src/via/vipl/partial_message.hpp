// A message of several fragments of which some have come.
#pragma once

#include <cstdint>

#include "via/vipl/message.hpp"

namespace viaduct::vipl {

struct PartialMessage {
  std::uint32_t word = 0;    // 0: none
  bool has_receive = false;  // else what comes is dropped
  std::uint32_t length = 0;
  std::uint32_t have = 0;
  std::uint32_t immediate = 0;
  std::uint32_t handle = 0;
  std::uint64_t address = 0;

  std::uint32_t kind() const { return kind_of(word); }
};

}  // namespace viaduct::vipl
