// A capture file holds what passed, in the format that others read.
#include <gmock/gmock.h>
#include <unistd.h>
#include <viaduct/nic_macs.hpp>

#include <fstream>
#include <iterator>

#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Block {
  std::uint32_t type;
  std::string body;
  std::uint32_t word(std::size_t at) const {
    std::uint32_t value = 0;
    std::memcpy(&value, body.data() + at, sizeof value);
    return value;
  }
};

// Every block ends with its length again: a reader can go through the file without knowing the types.
std::vector<Block> blocks_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<Block> blocks;
  for (std::size_t at = 0; at + 12 <= text.size();) {
    std::uint32_t head[2], again = 0;
    std::memcpy(head, text.data() + at, sizeof head);
    if (head[1] % 4 != 0 || head[1] < 12 || at + head[1] > text.size()) break;
    std::memcpy(&again, text.data() + at + head[1] - 4, sizeof again);
    EXPECT_EQ(again, head[1]);
    blocks.push_back({head[0], text.substr(at + 8, head[1] - 12)});
    at += head[1];
  }
  return blocks;
}

TEST(Capture, HoldsEveryFrameWithItsDirection) {
  const std::string path = testing::TempDir() + "capture-" + std::to_string(::getpid()) + ".pcapng";
  Failure why;
  auto capture = Capture::create(path, why);
  ASSERT_TRUE(capture) << why.message;
  auto [a, b] = make_wire();
  const auto here = make_captured_mac(std::move(a), capture), there = make_captured_mac(std::move(b), capture);
  const Bytes frame = numbered_frame(7, 61);
  const Frame offered{frame.data(), 61};
  ASSERT_EQ(here->transmit({&offered, 1}), 1u);
  Frame got;
  ASSERT_EQ(there->receive({&got, 1}), 1u);
  there->release(1);
  ASSERT_TRUE(capture->flush());

  const auto blocks = blocks_of(path);
  std::vector<std::uint32_t> types;
  for (const Block& block : blocks) types.push_back(block.type);
  ASSERT_THAT(types, ElementsAre(0x0a0d0d0au, 1u, 1u, 6u, 6u));
  EXPECT_EQ(blocks[0].word(0), 0x1a2b3c4du);
  for (const std::size_t i : {3u, 4u}) {
    const Block& packet = blocks[i];
    EXPECT_EQ(packet.word(0), i - 3) << "the interface";
    EXPECT_EQ(packet.word(12), 61u);
    EXPECT_EQ(packet.word(16), 61u);
    EXPECT_EQ(std::memcmp(packet.body.data() + 20, frame.data(), 61), 0);
    EXPECT_EQ(packet.word(20 + 64 + 4), i == 3 ? 2u : 1u) << "out, then in";
  }
  ::unlink(path.c_str());
}

TEST(Capture, SaysWhereItCannotWrite) {
  Failure why;
  EXPECT_FALSE(Capture::create("/nowhere/frames.pcapng", why));
  EXPECT_THAT(why.message, HasSubstr("/nowhere/frames.pcapng"));
}

TEST(Capture, EndsWhereTheDiskIsFullAndSaysSo) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  Failure why;
  const auto capture = Capture::create("/dev/full", why);
  ASSERT_TRUE(capture) << why.message;
  EXPECT_FALSE(capture->flush());
  EXPECT_FALSE(capture->flush());
}

}  // namespace
}  // namespace viaduct::nic
