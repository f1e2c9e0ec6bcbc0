// What a link says over its socket once it stands: wake-ups, and the descriptors of regions.
//
// Every message is one ControlMessage; a region's descriptor travels with its message. The socket is also how a side
// learns that the other has gone: it ends.
//
// Thread safety: sending may be done by any thread (a message is one system call); receiving by one at a time.
#pragma once

#include <cstdint>

#include "base/socket_message.hpp"

namespace viaduct::copy {

struct ControlMessage {
  enum Kind : std::uint32_t { doorbell = 0x6c6c6562, region = 0x6e676572, forget = 0x67726f66 };
  std::uint32_t kind;
  std::uint32_t index;  // of the region in the receiver's table
  std::uint64_t id;     // of the region
};
static_assert(sizeof(ControlMessage) == 16);

class ControlSocket {
 public:
  // Takes a connected UNIX stream socket and makes it non-blocking.
  explicit ControlSocket(Fd socket);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  int fd() const { return socket_.get(); }

  // False: the message did not go out (no room, no memory, the peer has gone). Never blocks.
  bool send(const ControlMessage& message, int fd = -1);

  enum class Received { message, nothing, closed, garbage };
  Received receive(ControlMessage& message, Fd& fd);

  // The peer's end is closed; costs a system call.
  bool peer_has_gone() const;
  void shut_down();

 private:
  Fd socket_;
  MessageReader reader_;
  ControlMessage partial_{};
};

}  // namespace viaduct::copy
