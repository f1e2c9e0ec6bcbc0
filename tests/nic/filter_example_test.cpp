// The worked example of docs/nic.md: a filter that counts packets by EtherType and drops those of one.
#include <map>

#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

// [example]
class PacketCounter final : public Filter {
 public:
  explicit PacketCounter(std::uint16_t unwanted) : unwanted_(unwanted) {}

  // Runs on the processor that handles Receive Complete, once a batch. Frames are hostile: look at lengths first.
  void inspect(std::span<const Frame> frames, std::span<bool> keep) override {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      if (frames[i].length < kEthernetHeader) continue;  // the firmware drops it anyway
      const auto type = static_cast<std::uint16_t>(std::to_integer<unsigned>(frames[i].data[12]) << 8 |
                                                   std::to_integer<unsigned>(frames[i].data[13]));
      ++counts_[type];
      keep[i] = type != unwanted_;
    }
  }
  std::uint64_t count(std::uint16_t type) const { return counts_.contains(type) ? counts_.at(type) : 0; }

 private:
  const std::uint16_t unwanted_;
  std::map<std::uint16_t, std::uint64_t> counts_;
};
// [example]

TEST(FilterExample, CountsAndDrops) {
  PacketCounter filter(0x0806);
  Config config = inlined();
  config.filter = &filter;
  Pair pair(inlined(), config, {});
  for (std::uint32_t i = 0; i < 30; ++i) {
    Bytes frame = numbered_frame(i, 60);
    if (i % 3 == 0) frame[12] = std::byte{0x08}, frame[13] = std::byte{0x06};
    ASSERT_TRUE(pair.left->host().send_copy(frame));
  }
  pair.left->host().ring();
  pair.turn();
  EXPECT_EQ(receive_all(pair.right->host()).size(), 20u);
  EXPECT_EQ(filter.count(0x0806), 10u);
  EXPECT_EQ(filter.count(0x88b5), 20u);
  EXPECT_EQ(pair.right->statistics().totals.filtered_frames, 10u);
}

}  // namespace
}  // namespace viaduct::nic
