// Where the two ends of a TCP connection find each other: an abstract UNIX socket named after both addresses, and what
// is said there before they share memory (docs/formats/stream.md, "How the ends meet"). The end with the lower address
// listens, the other calls and says hello, the listener sends the memory. Either may say no instead, and why: then
// both know, and neither looks again.
//
// What comes from the other side is anybody's: what is not one of these words counts as another version's.
#pragma once

#include <array>
#include <cstdint>

#include "sockets/why.hpp"

namespace viaduct::sockets {

struct MeetingPlace {
  bool known = false;
  bool mine = false;  // this end listens there
  std::uint64_t network = 0;
  std::array<std::uint8_t, 36> addresses{};  // of both ends, the listener's first
};

// Which network the socket belongs to, where a process has some of several. 0: the kernel does not tell.
std::uint64_t network_of(int socket);

// Descriptors that do not block; -1 and errno: it failed. EADDRINUSE: another process that holds this end was first.
// ECONNREFUSED: nobody listens.
int listen_at(const MeetingPlace& place);
int call_at(const MeetingPlace& place);

// False: nobody is there any more.
bool say_hello(int line);
bool say_no(int line, Why why);

enum class Heard {
  nothing,  // yet
  nobody,   // the other side has gone, without a word: another time
  no,
  hello,
  memory,  // to be received (base/segment.hpp)
};
// `why`: with Heard::no, what is in the way, as seen from here.
Heard hear(int line, int wait_ms, Why& why);

}  // namespace viaduct::sockets
