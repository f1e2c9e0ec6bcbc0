// How two processes agree on a link, over a connected UNIX stream socket (docs/formats/copy-link.md).
//
//   both    Hello   {magic, version, token, where the token lies}, with the kernel's word for who sends it
//   lower   Offer   {can I read your token?} and the link's segment; the lower token's side makes it
//   higher  Answer  {can I read your token?}
//
// Whether one process may reach into the other (cross-memory attach) is tried, not guessed: each reads the other's
// token out of the other's memory. Every step ends by the deadline; the peer may send anything or nothing.
#pragma once

#include <memory>

#include "base/clock.hpp"
#include "base/segment.hpp"
#include "copy/peer_memory.hpp"

namespace viaduct::copy {

struct HandshakeOptions {
  bool cma = true;  // false on either side: neither uses it
};

struct Agreement {
  int side = 0;  // 0 or 1: which half of everything is ours
  std::unique_ptr<PeerMemory> peer;
  bool peer_reaches = false;  // ours, by cross-memory attach
  Segment table;
};

// EPROTO: not a Viaduct peer, or of another version. EACCES: another user. ETIMEDOUT. ECONNRESET: it went away.
Result<Agreement> shake_hands(int socket, Deadline deadline, const HandshakeOptions& options);

namespace handshake_format {

constexpr std::uint64_t kMagic = 0x6b6e696c616d6461;  // "admalink", little endian

// Of this size in every version, so that versions can tell each other apart.
struct Hello {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t flags;          // kNoCma
  std::uint64_t token;          // random; also decides who makes the segment
  std::uint64_t token_address;  // where it lies in the sender's memory
  std::uint64_t reserved[4];
};
static_assert(sizeof(Hello) == 64);
constexpr std::uint32_t kNoCma = 1;

struct Verdict {  // Offer and Answer
  std::uint64_t magic;
  std::uint32_t reaches;  // 1: the sender read the receiver's token
  std::uint32_t reserved;
};
static_assert(sizeof(Verdict) == 16);

}  // namespace handshake_format

}  // namespace viaduct::copy
