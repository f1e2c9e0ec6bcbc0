// What two connected VIs say to each other over their channel (docs/formats/vipl.md).
//
// The channel's immediate word is the message word: a kind, and whether VIPL immediate data comes with it. A header of
// that kind begins the first fragment; the bytes follow, over as many fragments as it takes. Messages of one direction
// never interleave.
#pragma once

#include <viaduct/via.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace viaduct::vipl {

enum MessageKind : std::uint32_t {
  kSend = 1,       // one fragment. Header: the immediate data, if any
  kLongSend = 2,   // LongHeader, then the bytes in fragments
  kRdmaDone = 3,   // RdmaDoneHeader: an RDMA write with immediate data has been done
  kWrite = 4,      // WriteHeader, bytes: an RDMA write that only the receiving library can do
  kRead = 5,       // ReadHeader: an RDMA read likewise; answered by kReadReply in order
  kReadReply = 6,  // ReplyHeader, bytes
  kPlaced = 7,     // PlacedHeader: reliable reception's acknowledgement
  kRoom = 8,       // nothing: there is room in the ring again, for a sender that sleeps
  kBroken = 9,     // BrokenHeader: the connection has failed, for this reason
  kDisconnect = 10,
  kReference = 11,  // ReferenceHeader: a send whose bytes the receiver fetches; answered by kTaken or kDeclined
  kTaken = 12,      // nothing: the oldest send by reference is in the receiver's memory
  kDeclined = 13,   // nothing: the sender's memory cannot be reached; send the bytes
  kDirect = 14,     // DirectHeader: a send whose bytes the sender has put into the receive descriptor
  kOffer = 15,      // OfferHeader: a send of which the receiver fetches a part, unless the sender takes it back
  kRest = 16        // RestHeader: what the sender has kept of the offer before
};
constexpr std::size_t kMostTransfer = std::size_t{16} << 20;  // bytes of a message, at most
constexpr std::uint32_t kKindMask = 0xff;
constexpr std::uint32_t kWithImmediate = 0x100;

constexpr std::uint32_t kind_of(std::uint32_t word) {
  return word & kKindMask;
}

// Shorter ones are as fast through the ring: their receives are not shown.
constexpr std::uint32_t kLeastDirect = 8u << 10;

struct LongHeader {
  std::uint32_t length;
  std::uint32_t immediate;
};

struct RdmaDoneHeader {
  std::uint32_t length;
  std::uint32_t immediate;
};

struct WriteHeader {
  std::uint64_t address;
  std::uint32_t handle;
  std::uint32_t length;
  std::uint32_t immediate;
  std::uint32_t unused;
};
static_assert(sizeof(WriteHeader) == 24);

struct ReadHeader {
  std::uint64_t address;
  std::uint32_t handle;
  std::uint32_t length;
};
static_assert(sizeof(ReadHeader) == 16);

struct ReplyHeader {
  std::uint32_t length;
  std::uint32_t unused;
};

struct PlacedHeader {
  std::uint64_t messages;  // how many of the sender's messages are in the receiver's memory, since they connected
};

struct BrokenHeader {
  std::uint32_t code;        // VIP_ERROR_CODE
  std::uint32_t descriptor;  // 1: a receive descriptor of the sender of this is to blame
};

struct ReferenceHeader {
  std::uint64_t address;
  std::uint32_t handle;
  std::uint32_t length;
  std::uint32_t immediate;
  std::uint32_t unused;
};
static_assert(sizeof(ReferenceHeader) == 24);

struct RestHeader {
  std::uint32_t is_there;  // 0: the receiver has to fetch it as well
  std::uint32_t unused;
};

struct DirectHeader {
  std::uint32_t number;  // of the receive descriptor, since they connected
  std::uint32_t length;
  std::uint32_t immediate;
  std::uint32_t unused;
};
static_assert(sizeof(DirectHeader) == 16);

struct OfferHeader {
  std::uint64_t address;
  std::uint32_t handle;
  std::uint32_t length;  // of the message
  std::uint32_t immediate;
  std::uint32_t part;    // bytes at the front that are offered; the sender puts the others there, and says kRest
  std::uint32_t number;  // of the receive descriptor, since they connected
  std::uint32_t unused;
  std::uint64_t offer;  // its number, from 1
};
static_assert(sizeof(OfferHeader) == 40);

// How far an offer is: in the words of its sender in the channel, at its number modulo kMostOffers. Each change is by
// whoever has it.
enum class OfferState : std::uint64_t {
  made = 1,      // whoever comes first: the receiver, to fetch it, or the sender, who takes it back
  fetching = 2,  // the receiver has it
  returned = 3,  // it found no way: the sender has it
  taken = 4,     // the sender has it, and copies
  placed = 5,    // the bytes are there, whoever has moved them
  through = 6    // the receiver is through with it: the place is free
};
constexpr std::uint64_t kMostOffers = 4;  // at once

struct OfferWords {
  std::atomic<std::uint64_t> states[kMostOffers];  // number << 3 | OfferState
  std::atomic<std::uint64_t> fetches;              // 1: this side can fetch from any memory of the other
};

constexpr std::uint64_t offer_word(std::uint64_t offer, OfferState state) {
  return offer << 3 | static_cast<std::uint64_t>(state);
}

constexpr std::uint32_t kMostReadsUnderWay = 64;  // per VI, by message: whoever asks for more is broken

// ---- headers in fragments

template <class Header>
std::span<const std::byte> bytes_of(const Header& header) {
  return std::as_bytes(std::span(&header, 1));
}

// The header at the front of a fragment, copied once: the peer may change what it lies in.
template <class Header>
bool read_header(const via::Fragment& fragment, Header& header) {
  if (fragment.bytes.size() < sizeof header) return false;
  std::memcpy(&header, fragment.bytes.data(), sizeof header);
  return true;
}

// Of a message that is nothing else.
template <class Header>
bool read_whole(const via::Fragment& fragment, Header& header) {
  return fragment.last && fragment.bytes.size() == sizeof header && read_header(fragment, header);
}

}  // namespace viaduct::vipl
