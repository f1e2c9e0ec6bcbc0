// The memory of one message in pieces: a list of its own, few of them without an allocation.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace viaduct::mx {

class Pieces {
 public:
  void set(std::span<const iovec> pieces) {
    count_ = static_cast<std::uint32_t>(pieces.size());
    if (count_ > kFew) many_ = std::make_unique<iovec[]>(count_);
    std::copy(pieces.begin(), pieces.end(), data());
    length_ = 0;
    for (const iovec& piece : pieces) length_ += piece.iov_len;
  }
  void clear() {
    many_.reset();
    count_ = 0;
    length_ = 0;
  }

  std::uint64_t length() const { return length_; }
  std::span<const iovec> all() const { return {const_cast<Pieces*>(this)->data(), count_}; }

  // The pieces of `length` bytes from `offset` on; at most `most` of them, and `length` says how much they hold.
  std::size_t cut(std::uint64_t offset, std::uint64_t& length, iovec* out, std::size_t most) const {
    std::size_t count = 0;
    std::uint64_t done = 0;
    for (const iovec& piece : all()) {
      if (offset >= piece.iov_len) {
        offset -= piece.iov_len;
        continue;
      }
      if (done == length || count == most) break;
      const std::uint64_t part = std::min<std::uint64_t>(piece.iov_len - offset, length - done);
      out[count++] = {static_cast<std::byte*>(piece.iov_base) + offset, part};
      done += part;
      offset = 0;
    }
    length = done;
    return count;
  }

  // As much of it as there is place for.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const {
    if (count_ == 1 && offset <= length_) [[likely]] {
      const std::size_t part = std::min<std::uint64_t>(bytes.size(), length_ - offset);
      if (part != 0) std::memcpy(static_cast<std::byte*>(all()[0].iov_base) + offset, bytes.data(), part);
      return;
    }
    for (const iovec& piece : all()) {
      if (offset >= piece.iov_len) {
        offset -= piece.iov_len;
        continue;
      }
      if (bytes.empty()) return;
      const std::size_t part = std::min<std::size_t>(piece.iov_len - offset, bytes.size());
      std::memcpy(static_cast<std::byte*>(piece.iov_base) + offset, bytes.data(), part);
      bytes = bytes.subspan(part);
      offset = 0;
    }
  }

 private:
  static constexpr std::uint32_t kFew = 2;
  iovec* data() { return count_ > kFew ? many_.get() : few_; }

  iovec few_[kFew]{};
  std::unique_ptr<iovec[]> many_;
  std::uint32_t count_ = 0;
  std::uint64_t length_ = 0;
};

// From one list to another, as much as both hold.
inline std::uint64_t copy_pieces(const Pieces& from, const Pieces& to) {
  std::uint64_t at = 0;
  for (const iovec& piece : from.all()) {
    if (at >= to.length()) break;
    to.write(at, {static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
    at += piece.iov_len;
  }
  return std::min(from.length(), to.length());
}

}  // namespace viaduct::mx
