// The frames of docs/formats/net.md: constants, and cursors that write and read them without leaving their bounds.
#pragma once

#include <viaduct/net.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace viaduct::net {

inline constexpr std::uint8_t kVersion = 1;
inline constexpr std::uint16_t kNumbersTracked = 1024;  // how far numbers under way may lie apart
inline constexpr std::size_t kSmallPut = 16384;         // a put of at most this size is sent without being asked for
inline constexpr std::uint32_t kControlFlow = 0;
inline constexpr std::uint32_t kControlSlots = 64;
inline constexpr std::uint32_t kControlSlotSize = 2048;
inline constexpr std::uint32_t kTransferOfAcceptor = 0x80000000;

enum class FrameKind : std::uint8_t { session = 1, hello, answer, refusal, unknown };

enum class Refusal : std::uint8_t { other_version = 1, no_such_name, too_many, needs_key, has_no_key, other_key };

enum class ChunkKind : std::uint8_t { ack = 1, item, fragment, credit, ask, data, result, ping, bye };

enum class What : std::uint8_t { message = 0, put, offer, get, end, open, accept, refuse, close };

struct FrameHeader {
  std::uint32_t checksum;
  std::uint8_t version;
  std::uint8_t kind;
  std::uint16_t length;
  std::uint64_t session;
  std::uint64_t number;
  std::uint16_t span;
  std::uint16_t flags;
};
inline constexpr std::size_t kHeaderSize = 28;  // on the wire; the structure has padding behind it
static_assert(offsetof(FrameHeader, span) == 24 && offsetof(FrameHeader, number) == 16);
static_assert(offsetof(FrameHeader, session) == 8 && offsetof(FrameHeader, length) == 6);

inline constexpr std::uint16_t kSealed = 1;  // of flags: what only who has the key can write stands behind the chunks

// What a chunk costs beside its bytes.
inline constexpr std::size_t kItemOverhead = 12;
inline constexpr std::size_t kFragmentOverhead = 20;
inline constexpr std::size_t kDataOverhead = 15;
inline constexpr std::size_t kAckOverhead = 18;
inline constexpr std::size_t kSmallestFrame = 256;  // room for any header, a whole ack and a useful rest

static_assert(std::endian::native == std::endian::little, "integers are copied as they stand");

class Writer {
 public:
  explicit Writer(std::span<std::byte> room) : room_(room) {}

  std::size_t used() const { return used_; }
  std::size_t left() const { return room_.size() - used_; }

  template <class T>
  void put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    std::memcpy(take(sizeof value).data(), &value, sizeof value);
  }
  void put_bytes(std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(take(bytes.size()).data(), bytes.data(), bytes.size());
  }
  // The next `size` bytes, for the caller to fill. There must be as many left.
  std::span<std::byte> take(std::size_t size) {
    const auto taken = room_.subspan(used_, size);
    used_ += size;
    return taken;
  }

 private:
  std::span<std::byte> room_;
  std::size_t used_ = 0;
};

// The bytes of an item, put together before there is a frame for them.
class GrowingBytes {
 public:
  template <class T>
  GrowingBytes& add(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    return add_all(std::as_bytes(std::span(&value, 1)));
  }
  GrowingBytes& add_all(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reading past the end gives zeros and makes the reader fail, for good: check good() before acting on what was read.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool good() const { return good_; }
  bool done() const { return rest_.empty() || !good_; }
  std::size_t left() const { return rest_.size(); }

  template <class T>
  T get() {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    T value{};
    const auto bytes = get_bytes(sizeof value);
    if (good_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::span<const std::byte> get_bytes(std::size_t size) {
    if (!good_ || size > rest_.size()) {
      good_ = false;
      return {};
    }
    const auto bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }
  std::span<const std::byte> rest() { return get_bytes(rest_.size()); }

 private:
  std::span<const std::byte> rest_;
  bool good_ = true;
};

// Version and length.
void fill_in(FrameHeader& header, std::size_t size);
// Finishes the frame in `frame`, whose chunks stand behind the header.
void seal_frame(std::span<std::byte> frame, FrameHeader header);

struct OpenedFrame {
  FrameHeader header;
  std::span<const std::byte> chunks;
};

// Nothing where it is not a whole frame of this version with a right checksum.
std::optional<OpenedFrame> open_frame(std::span<const std::byte> bytes);
// The same, of any version.
std::optional<OpenedFrame> open_frame_of_any_version(std::span<const std::byte> bytes);

}  // namespace viaduct::net
