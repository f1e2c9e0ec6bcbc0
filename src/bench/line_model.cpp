#include "bench/line_model.hpp"

#include <unordered_map>

namespace viaduct::bench {

namespace {

constexpr std::uint32_t kFrameLines = 2;  // of a small message
constexpr std::uint32_t kReturnEntriesPerLine = 4, kFreeEntriesPerLine = 16;

enum Line : std::uint64_t {  // then the lines of rings and buffers
  kLock,
  kPrivateState,
  kFreeStack,
  kReturnProducer,
  kUserWord,
  kFreeProducer,
  kReturnRing = 1 << 10,
  kFreeRing = 1 << 20,
  kBuffers = 1 << 30,
};

class Caches {
 public:
  void read(std::uint32_t processor, std::uint64_t line) {
    std::uint64_t& holders = holders_[line];
    const std::uint64_t mine = std::uint64_t{1} << processor % 64;
    if (holders != 0 && (holders & mine) == 0) ++moved_;
    holders |= mine;
  }
  void write(std::uint32_t processor, std::uint64_t line) {
    read(processor, line);
    holders_[line] = std::uint64_t{1} << processor % 64;
  }
  std::uint64_t moved() const { return moved_; }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> holders_;  // a bit each
  std::uint64_t moved_ = 0;
};

}  // namespace

double lines_moved(std::uint32_t home, std::span<const MovedFrame> frames) {
  if (frames.empty()) return 0;
  Caches caches;
  std::uint64_t index = 0;
  for (const MovedFrame& frame : frames) {
    const std::uint32_t mover = frame.queue;
    // What Port::deliver() and ring_user() touch.
    for (const Line line : {kLock, kPrivateState, kFreeStack}) caches.write(mover, line);
    caches.read(mover, kFreeProducer);
    caches.read(mover, kFreeRing + index / kFreeEntriesPerLine);
    for (std::uint32_t i = 0; i < kFrameLines; ++i)
      caches.write(mover, kBuffers + std::uint64_t{frame.buffer} * kFrameLines + i);
    caches.write(mover, kReturnRing + index / kReturnEntriesPerLine);
    caches.write(mover, kReturnProducer);
    caches.read(mover, kUserWord);
    // What EndpointRings::receive() and give_back() touch.
    caches.read(home, kReturnProducer);
    caches.read(home, kReturnRing + index / kReturnEntriesPerLine);
    for (std::uint32_t i = 0; i < kFrameLines; ++i)
      caches.read(home, kBuffers + std::uint64_t{frame.buffer} * kFrameLines + i);
    caches.write(home, kFreeRing + index / kFreeEntriesPerLine);
    caches.write(home, kFreeProducer);
    ++index;
  }
  return static_cast<double>(caches.moved()) / static_cast<double>(frames.size());
}

}  // namespace viaduct::bench
