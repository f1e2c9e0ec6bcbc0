// What a client of MemNet and a TCP server say to each other, over a channel of via (docs/formats/memnet.md).
//
// A message is one fragment. Its immediate word says what it is and of which socket: the kind in the upper 8 bits, the
// socket's number in the lower 24. A number belongs to the line, as the connection between the two is called here: one
// cannot name anybody else's socket. The client numbers the sockets that it makes, the server those that it accepts.
//
// Both sides read what the other has written as hostile: lengths first, then a copy, then the values.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace viaduct::memnet {

constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kMagic = 0x3174'654e'6d65'4d56;  // "VMemNet1", little endian

// From client to server.
enum class Ask : std::uint8_t {
  make = 1,        // MakeWords: a socket with this number
  bind,            // AddressWords
  listen,          // ListenWords
  connect,         // AddressWords; the reply comes when it is connected or is not
  send,            // the bytes themselves; SendWindow
  send_more,       // the same, as with MSG_MORE
  send_memory,     // JobWords: from registered memory; done tells the end
  receive_memory,  // JobWords: into registered memory
  send_file,       // FileWords
  shut_down,       // ShutdownWords
  close,           // nothing: the number is free for the server after this, for the client after `closed`
  get_option,      // OptionWords
  set_option,      // OptionWords, then the value
  name,            // NameWords; the reply is an address
  window,          // CountWords: so many pushed bytes were taken by the program
  mode,            // ModeWords: push what comes, or keep it until memory is posted
  may_accept,      // CountWords: so many more connections may be told
  cancel,          // CountWords: the job; what has not begun of it is given up
  room,            // nothing, of no socket: there is room in the server's direction again
};

// From server to client.
enum class Tell : std::uint8_t {
  reply = 1,  // ReplyWords, then what was asked for
  data,       // the bytes themselves, within the window
  end,        // nothing: the peer sends no more
  failed,     // FailedWords: the connection is over
  credit,     // CountWords: so many bytes of `send` are the kernel's now
  accepted,   // AcceptedWords: a connection of this listener
  done,       // DoneWords, one or several, of no socket
  readable,   // nothing: something is there, and no memory for it
  quiet,      // nothing: no data will be pushed until the mode changes
  closed,     // nothing: the number may be used again
  writable,   // nothing: what was queued of the socket is the kernel's
  room,       // nothing, of no socket: there is room in the client's direction again
};

constexpr std::uint32_t kMostSockets = 1u << 23;     // of either side's numbering
constexpr std::uint32_t kAcceptedBit = 1u << 23;     // the server's
constexpr std::uint32_t kSendWindow = 256u << 10;    // bytes of `send` that the kernel has not taken, per socket
constexpr std::uint32_t kReceiveWindow = 64u << 10;  // bytes pushed and not taken, per socket
constexpr std::uint32_t kCreditStep = 64u << 10;     // of the first, told at once
constexpr std::uint32_t kWindowStep = 16u << 10;     // of the second
constexpr std::uint32_t kMostJobs = 256;             // per socket and direction
constexpr std::uint32_t kMostOption = 256;           // bytes of an option's value
constexpr std::uint32_t kMostTransfer = 1u << 30;    // of one job

template <class Kind>
constexpr std::uint32_t immediate_of(Kind kind, std::uint32_t socket) {
  return static_cast<std::uint32_t>(kind) << 24 | socket;
}
constexpr std::uint8_t kind_of(std::uint32_t immediate) {
  return static_cast<std::uint8_t>(immediate >> 24);
}
constexpr std::uint32_t socket_of(std::uint32_t immediate) {
  return immediate & 0xff'ffff;
}

struct Hello {  // the client's, in the handshake
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t worker = 0;  // which it wants, from 1; 0: the server chooses
  std::uint64_t client = 0;  // random: lines of one process say the same
  char program[32] = {};
};
static_assert(sizeof(Hello) == 56);

struct Welcome {  // the answer, whether yes or no
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t workers = 0;
  std::uint32_t worker = 0;
  std::int32_t error = 0;    // of a refusal, an errno value: EBUSY, EACCES, EPROTO
  std::uint64_t server = 0;  // random: the same as long as it runs
};
static_assert(sizeof(Welcome) == 32);

struct WireAddress {
  std::uint32_t length = 0;
  std::uint8_t bytes[28] = {};

  static WireAddress of(const sockaddr* address, socklen_t length) {
    WireAddress made;
    made.length = length <= sizeof made.bytes ? length : 0;
    if (made.length > 0) std::memcpy(made.bytes, address, made.length);
    return made;
  }
  // What can be said of it without trusting it.
  bool sane() const { return length <= sizeof bytes; }
  sockaddr_storage storage() const {
    sockaddr_storage made{};
    std::memcpy(&made, bytes, length <= sizeof bytes ? length : 0);
    return made;
  }
};
static_assert(sizeof(WireAddress) == 32 && sizeof(sockaddr_in6) <= sizeof(WireAddress::bytes));

struct MakeWords {
  std::uint32_t request;
  std::int32_t family;
  std::int32_t type;
  std::int32_t protocol;
};
struct AddressWords {
  std::uint32_t request;
  WireAddress address;
};
struct ListenWords {
  std::uint32_t request;
  std::int32_t backlog;
};
struct JobWords {
  std::uint32_t job;
  std::uint32_t key;
  std::uint64_t address;
  std::uint32_t length;
  std::int32_t flags;
};
struct FileWords {
  std::uint32_t job;
  std::int32_t file;  // a descriptor of the client
  std::uint64_t inode;
  std::uint64_t device;
  std::uint64_t offset;
  std::uint32_t length;
  std::uint32_t flags;
};
struct ShutdownWords {
  std::uint32_t request;
  std::int32_t how;
};
struct OptionWords {
  std::uint32_t request;
  std::int32_t level;
  std::int32_t name;
  std::uint32_t length;
};
struct NameWords {
  std::uint32_t request;
  std::uint32_t peer;  // or this side
};
struct CountWords {
  std::uint32_t count;
};
struct ModeWords {
  std::uint32_t push;
};
struct ReplyWords {
  std::uint32_t request;
  std::int32_t error;
};
struct FailedWords {
  std::int32_t error;
};
struct AcceptedWords {
  std::uint32_t socket;
  WireAddress peer;
};
struct DoneWords {
  std::uint32_t job;
  std::int32_t result;  // bytes, or an errno value below zero
};
static_assert(sizeof(FileWords) <= 52 && sizeof(AcceptedWords) <= 52, "they fit a line");
constexpr std::size_t kDonesAtOnce = 6;  // fit a line

// The words of a message, if it is long enough for them.
template <class Words>
bool read_words(std::span<const std::byte> bytes, Words& words) {
  if (bytes.size() < sizeof words) return false;
  std::memcpy(&words, bytes.data(), sizeof words);
  return true;
}

// Where a server of that name is met: "NAME" on this host, "HOST/NAME" on another.
struct ServerPlace {
  std::string host;
  std::string name;
};
ServerPlace parse_server(std::string_view text);
// The name in the abstract space, and over the network.
std::string meeting_name(const std::string& server, bool any_user);
std::string network_name(const std::string& server);

}  // namespace viaduct::memnet
