// What endpoints say to each other over a channel (docs/formats/mx.md): messages of a channel whose immediate data says
// what they are, and which begin with a header. Everything that comes is checked: the peer may write what it likes.
//
//   message   a whole one: match, then what the flags announce, then the bytes. In several fragments if it is long
//   announce  a long one, which stays where it is: where that is, and the sender's number for it
//   want      its receiver cannot get at it: push it
//   data      a part of what was wanted
//   done      its receiver has it, or wants no more of it
//   matched   a receive has taken a message that was sent until then
//   room      there is room in the ring again
//   control   of the program's
//
// Little endian, as memory has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace viaduct::mx {

enum class Word : std::uint8_t { message = 1, announce, want, data, done, matched, room, control };

enum Flag : std::uint8_t {
  kHasLength = 1,     // u64 behind the match: it comes in several fragments
  kHasData = 2,       // u64
  kUntilMatched = 4,  // u64: the sender's number
};

struct Immediate {
  Word word;
  std::uint8_t flags;
  std::uint8_t space;

  std::uint32_t pack() const {
    return static_cast<std::uint32_t>(word) | std::uint32_t{flags} << 8 | std::uint32_t{space} << 16;
  }
  static Immediate unpack(std::uint32_t immediate) {
    return {static_cast<Word>(immediate & 0xff), static_cast<std::uint8_t>(immediate >> 8),
            static_cast<std::uint8_t>(immediate >> 16)};
  }
};

// Behind the match, and the data if there is any.
struct AnnounceHeader {
  std::uint64_t length;
  std::uint32_t number;  // of the send
  std::uint32_t places;  // that follow; 0: it has to be pushed
};
struct PlaceOfBytes {
  std::uint64_t address;
  std::uint64_t length;
  std::uint32_t key;
  std::uint32_t unused;
};
static_assert(sizeof(AnnounceHeader) == 16 && sizeof(PlaceOfBytes) == 24);
constexpr std::uint32_t kMostPlaces = 16;

struct WantHeader {
  std::uint32_t send;     // number of the sender's
  std::uint32_t receive;  // number of the receiver's
  std::uint64_t length;   // so much of it
};
struct DataHeader {
  std::uint32_t receive;
  std::uint32_t unused;
  std::uint64_t offset;
};
struct DoneHeader {
  std::uint32_t send;
  std::uint32_t unused;
};
static_assert(sizeof(WantHeader) == 16 && sizeof(DataHeader) == 16 && sizeof(DoneHeader) == 8);

constexpr std::size_t kLongestHeader = 64 + kMostPlaces * sizeof(PlaceOfBytes);
constexpr std::size_t kLongestControl = 1024;

// A header as it is put together, and as it is taken apart.
class HeaderWriter {
 public:
  template <class Field>
  void add(const Field& field) {
    std::memcpy(bytes_ + length_, &field, sizeof field);
    length_ += sizeof field;
  }
  std::byte* data() { return bytes_; }
  std::size_t size() const { return length_; }

 private:
  std::byte bytes_[kLongestHeader];
  std::size_t length_ = 0;
};

template <class Field>
bool take_field(std::span<const std::byte>& bytes, Field& field) {
  if (bytes.size() < sizeof field) return false;
  std::memcpy(&field, bytes.data(), sizeof field);
  bytes = bytes.subspan(sizeof field);
  return true;
}

// What two endpoints say before they have a channel.
struct Hello {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t nic;
  std::uint32_t endpoint;
  std::uint32_t session;
  std::uint32_t key;      // of the one that is asked
  std::uint32_t refused;  // in an answer: why, as a Status; 0: it is a yes
};
static_assert(sizeof(Hello) == 32);
constexpr std::uint32_t kHelloMagic = 0x4c48584d;  // "MXHL"
constexpr std::uint32_t kHelloVersion = 1;

}  // namespace viaduct::mx
