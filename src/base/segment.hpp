// A sealed, memfd-backed shared mapping: the only kind of shared memory in Viaduct.
//
// Layout (docs/formats/segment.md):  [ SegmentHeader, 64 bytes | reserved up to 4096 ] [ payload ... ]
// The memfd is sealed against shrinking, growing and further sealing, so a peer can never make our mapping fault by
// truncating it. Pages are reserved when they are committed, so running out of memory is an error value from create()
// or commit(), not SIGBUS later. There is no name anywhere: a segment lives as long as someone holds it.
//
// Thread safety: a Segment is owned by one thread; the memory it maps is shared as its user defines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct {

// Written once by the creator before the segment is shared; afterwards constant, and checked by whoever adopts it.
struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t payload_offset;
  std::uint64_t total_size;   // of the memfd, header included
  std::uint64_t layout_hash;  // which structures live in the payload, from layout_hash()
  std::uint64_t reserved[4];
};
static_assert(sizeof(SegmentHeader) == 64);

constexpr std::uint64_t kSegmentMagic = 0x0054'4355'4441'4956;  // "VIADUCT\0", little endian
constexpr std::uint32_t kSegmentVersion = 1;
constexpr std::size_t kSegmentPayloadOffset = 4096;

// Names a layout: hash of a description that changes whenever the structures in the payload change (FNV-1a).
constexpr std::uint64_t layout_hash(std::string_view description) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : description) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

enum class HugePages {
  never,   // small control blocks
  prefer,  // reserved huge pages, else transparent ones, else ordinary pages
};

struct SegmentSpec {
  std::string name;  // shown in /proc/PID/maps as memfd:NAME; not a file
  std::uint64_t layout = 0;
  std::size_t payload_size = 0;
  HugePages huge_pages = HugePages::never;
  // How much of the payload gets its memory now; the rest must be committed before it is touched.
  std::size_t committed = SIZE_MAX;
  // Nobody who is handed the descriptor can map it for writing: only this mapping writes.
  bool peers_only_read = false;
};

class Segment {
 public:
  static Result<Segment> create(const SegmentSpec& spec);

  // Takes a descriptor from a peer, which is not trusted: magic, version, size, layout and seals are checked.
  static Result<Segment> adopt(Fd fd, std::uint64_t expected_layout);
  // The same for one that is only read here: a store through it faults.
  static Result<Segment> adopt_to_read(Fd fd, std::uint64_t expected_layout);

  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Reserves memory for the first `bytes` of the payload. ENOMEM when there is none.
  Status commit(std::size_t bytes);

  std::span<std::byte> payload() const {  // nothing where there is no segment
    if (base_ == nullptr) return {};
    return {base_ + kSegmentPayloadOffset, size_ - kSegmentPayloadOffset};
  }
  std::size_t committed() const { return committed_; }
  std::size_t page_size() const { return page_size_; }  // of the backing: 4096, or the huge page size when reserved
  int fd() const { return fd_.get(); }
  explicit operator bool() const { return base_ != nullptr; }

  // For owners whose life is not a scope: the mapping stays until they unmap it, header page included.
  struct Parts {
    Fd fd;
    std::span<std::byte> payload;
  };
  Parts release() && {
    Parts parts{std::move(fd_), payload()};
    base_ = nullptr;
    return parts;
  }

  // The structure at the start of the payload.
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(base_ + kSegmentPayloadOffset);
  }

 private:
  static Result<Segment> adopt_with(Fd fd, std::uint64_t expected_layout, int protection);
  void unmap();

  Fd fd_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::size_t committed_ = 0;  // payload bytes
  std::size_t page_size_ = 4096;
};

// Hands a segment to the process at the other end of a connected UNIX socket, and takes one.
Status send_segment(int socket, const Segment& segment);
Result<Segment> receive_segment(int socket, std::uint64_t expected_layout);

}  // namespace viaduct
