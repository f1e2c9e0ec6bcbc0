// A MAC without a medium: see make_null_mac().
#include <algorithm>
#include <atomic>
#include <vector>

#include <viaduct/nic_mac.hpp>

namespace viaduct::nic {

namespace {

void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {  // one writer
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

class NullMac final : public Mac {
 public:
  explicit NullMac(const NullMacOptions& options)
      : options_(options), frame_(std::max(options.frame_length, kEthernetHeader)), left_(options.frames_to_receive) {
    for (std::size_t i = 0; i < frame_.size(); ++i) frame_[i] = static_cast<std::byte>(i);
  }

  std::string name() const override { return "null"; }
  MacAddress address() const override { return {2, 0, 0, 0, 0, 0}; }
  std::uint32_t max_frame() const override { return options_.max_frame; }
  MacCounters counters() const override {
    return {sent_.load(std::memory_order_relaxed), received_.load(std::memory_order_relaxed), 0, 0};
  }

  std::size_t transmit(std::span<const Frame> frames) override {
    add(sent_, frames.size());
    return frames.size();
  }
  std::size_t receive(std::span<Frame> frames) override {
    const std::size_t count = std::min<std::uint64_t>(frames.size(), left_);
    if (left_ != UINT64_MAX) left_ -= count;
    std::fill_n(frames.begin(), count, Frame{frame_.data(), static_cast<std::uint32_t>(frame_.size())});
    add(received_, count);
    return count;
  }
  void release(std::size_t) override {}

 private:
  const NullMacOptions options_;
  std::vector<std::byte> frame_;
  std::uint64_t left_;
  alignas(64) std::atomic<std::uint64_t> sent_{0};
  alignas(64) std::atomic<std::uint64_t> received_{0};
};

}  // namespace

std::unique_ptr<Mac> make_null_mac(const NullMacOptions& options) {
  return std::make_unique<NullMac>(options);
}

}  // namespace viaduct::nic
