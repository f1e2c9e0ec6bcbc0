// A capture file: pcapng, so that several interfaces and the direction of each frame fit in. One section; an interface
// description block per MAC; an enhanced packet block per frame, with nanoseconds and the direction.
#include <fmt/format.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "nic/mac/forwarding_mac.hpp"
#include "nic/mac/macs.hpp"

namespace viaduct::nic {

namespace {

constexpr std::uint32_t kSection = 0x0a0d0d0a, kInterface = 1, kPacket = 6;
constexpr std::uint16_t kEnd = 0, kName = 2, kFlags = 2, kResolution = 9;

// One block: type, length, body in words of 32 bits, length again.
class Block {
 public:
  explicit Block(std::uint32_t type) { word(type), word(0); }
  void word(std::uint32_t value) { raw(&value, sizeof value); }
  void half(std::uint16_t value) { raw(&value, sizeof value); }
  void raw(const void* from, std::size_t size) {
    bytes_.insert(bytes_.end(), static_cast<const char*>(from), static_cast<const char*>(from) + size);
  }
  void padded(const void* from, std::size_t size) {
    raw(from, size);
    bytes_.resize((bytes_.size() + 3) & ~std::size_t{3});
  }
  void option(std::uint16_t code, const void* value, std::uint16_t size) {
    half(code), half(size);
    padded(value, size);
  }
  const std::vector<char>& finished() {
    const auto length = static_cast<std::uint32_t>(bytes_.size() + 4);
    std::memcpy(bytes_.data() + 4, &length, sizeof length);
    word(length);
    return bytes_;
  }

 private:
  std::vector<char> bytes_;
};

struct CloseFile {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

class PcapngFile final : public Capture {
 public:
  explicit PcapngFile(std::FILE* file) : file_(file) {
    Block section(kSection);
    section.word(0x1a2b3c4d);                            // byte order
    section.half(1), section.half(0);                    // version
    section.word(UINT32_MAX), section.word(UINT32_MAX);  // length of the section: not said
    put(section);
  }

  std::uint32_t add_interface(std::string_view name, std::uint32_t max_frame) override {
    const std::lock_guard locked(lock_);
    Block description(kInterface);
    description.half(1), description.half(0);  // Ethernet
    description.word(max_frame);
    description.option(kName, name.data(), static_cast<std::uint16_t>(name.size()));
    const std::uint8_t nanoseconds = 9;
    description.option(kResolution, &nanoseconds, 1);
    description.option(kEnd, nullptr, 0);
    put(description);
    return interfaces_++;
  }

  void write(std::uint32_t interface, Way way, std::span<const Frame> frames) override {
    if (frames.empty()) return;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::uint64_t ns =
        static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
    const auto flags = static_cast<std::uint32_t>(way);
    const std::lock_guard locked(lock_);
    for (const Frame& frame : frames) {
      Block packet(kPacket);
      packet.word(interface);
      packet.word(static_cast<std::uint32_t>(ns >> 32)), packet.word(static_cast<std::uint32_t>(ns));
      packet.word(frame.length), packet.word(frame.length);
      packet.padded(frame.data, frame.length);
      packet.option(kFlags, &flags, sizeof flags);
      packet.option(kEnd, nullptr, 0);
      put(packet);
    }
  }

  bool flush() override {
    const std::lock_guard locked(lock_);
    good_ = good_ && std::fflush(file_.get()) == 0;
    return good_;
  }

 private:
  // After the first block that could not be written the file would not make sense: nothing follows it.
  void put(Block& block) {
    const std::vector<char>& bytes = block.finished();
    good_ = good_ && std::fwrite(bytes.data(), bytes.size(), 1, file_.get()) == 1;
  }

  std::mutex lock_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  bool good_ = true;
  std::uint32_t interfaces_ = 0;
};

class CapturedMac final : public ForwardingMac {
 public:
  CapturedMac(std::unique_ptr<Mac> mac, std::shared_ptr<Capture> capture)
      : ForwardingMac(std::move(mac)),
        capture_(std::move(capture)),
        interface_(capture_->add_interface(mac_->name(), mac_->max_frame())) {}

  std::size_t transmit(std::span<const Frame> frames) override {
    const std::size_t taken = mac_->transmit(frames);
    capture_->write(interface_, Capture::Way::out, frames.first(taken));
    return taken;
  }
  std::size_t receive(std::span<Frame> frames) override {
    const std::size_t count = mac_->receive(frames);
    capture_->write(interface_, Capture::Way::in, frames.first(count));
    return count;
  }

 private:
  const std::shared_ptr<Capture> capture_;
  const std::uint32_t interface_;
};

}  // namespace

std::shared_ptr<Capture> Capture::create(const std::string& path, Failure& why) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file != nullptr) return std::make_shared<PcapngFile>(file);
  why = {std::error_code(errno, std::generic_category()),
         fmt::format("write frames to {}: {}", path, std::strerror(errno))};
  return nullptr;
}

std::unique_ptr<Mac> make_captured_mac(std::unique_ptr<Mac> mac, std::shared_ptr<Capture> capture) {
  return std::make_unique<CapturedMac>(std::move(mac), std::move(capture));
}

}  // namespace viaduct::nic
