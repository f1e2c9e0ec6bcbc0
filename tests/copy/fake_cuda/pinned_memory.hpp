// Memory pinned as a device's driver pins it: the pages of a range are taken once and used from then on, whatever the
// program maps at those addresses later. io_uring's registered buffers do exactly that, so a copy through a stale
// registration really reads and writes the old pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace fake_cuda {

class PinnedMemory {
 public:
  bool open();                                        // false: no io_uring here
  int pin(std::uintptr_t begin, std::size_t length);  // 0, an errno value, or EALREADY where it overlaps
  bool unpin(std::uintptr_t begin);
  bool covers(std::uintptr_t address, std::size_t length);
  bool range_of(std::uintptr_t address, std::uintptr_t& begin, std::size_t& length);
  int count();

  // Between pinned memory and a file. False: not pinned, or the kernel refused.
  bool write_to_file(int file, std::uint64_t offset, const void* from, std::size_t length);
  bool read_from_file(int file, std::uint64_t offset, void* to, std::size_t length);

 private:
  static constexpr unsigned kMostRanges = 4096;
  struct Range {
    std::size_t length;
    unsigned index;
  };

  bool update(unsigned index, void* base, std::size_t length);
  bool move(int operation, int file, std::uint64_t offset, std::uintptr_t address, std::size_t length);
  std::map<std::uintptr_t, Range>::iterator find(std::uintptr_t address);

  std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;
  std::vector<unsigned> free_;
  int ring_ = -1;
  std::byte* rings_ = nullptr;
  std::byte* entries_ = nullptr;
  unsigned tail_offset_ = 0, array_offset_ = 0, mask_ = 0;
  unsigned done_head_offset_ = 0, done_tail_offset_ = 0, done_entries_offset_ = 0, done_mask_ = 0;
};

}  // namespace fake_cuda
