// A stream in plain memory, for tests of Sender and Receiver.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <random>
#include <vector>

#include "sockets/stream.hpp"
#include "sockets/stream_format.hpp"

namespace viaduct::sockets {

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    memory_.base = static_cast<std::byte*>(::mmap(nullptr, stream_bytes(kMostBulkBytes), PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    memory_.bulk_bytes = kMostBulkBytes;
    for (int which = 0; which < 2; ++which)
      Sender::begin(memory_.direction(which), static_cast<std::uint8_t>(which * 3 * kFewSlots));
  }
  ~StreamTest() override { ::munmap(memory_.base, stream_bytes(kMostBulkBytes)); }

  // Takes what fits.
  std::size_t write(const std::vector<unsigned char>& bytes, int direction = 0) {
    const iovec piece{const_cast<unsigned char*>(bytes.data()), bytes.size()};
    Pieces pieces(&piece, 1);
    return Sender(memory_, direction).write(pieces);
  }
  std::size_t write_crowded(const std::vector<unsigned char>& bytes) {
    const iovec piece{const_cast<unsigned char*>(bytes.data()), bytes.size()};
    Pieces pieces(&piece, 1);
    return Sender(memory_, 0).write_crowded(pieces);
  }
  std::vector<unsigned char> read(std::size_t most, Receiver::Take take = Receiver::Take::consume, int direction = 0) {
    std::vector<unsigned char> bytes(most);
    const iovec piece{bytes.data(), most};
    Pieces pieces(&piece, 1);
    bytes.resize(Receiver(memory_, direction).read(pieces, take));
    return bytes;
  }

  StreamMemory memory_;
  std::minstd_rand random_{42};
};

inline std::vector<unsigned char> bytes_from(std::uint64_t offset, std::size_t size) {
  std::vector<unsigned char> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<unsigned char>(((offset + i) * 0x9e3779b97f4a7c15) >> 56);
  return bytes;
}

}  // namespace viaduct::sockets
