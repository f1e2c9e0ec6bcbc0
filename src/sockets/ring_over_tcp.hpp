// What a ring holds goes over TCP instead: for a receiver who knows no rings, or may soon be one who does not.
#pragma once

#include <cstddef>
#include <optional>

#include "sockets/connection.hpp"

namespace viaduct::sockets {

// A send buffer that somebody made smaller than what is in the ring, by SO_SNDBUF or TCP_NOTSENT_LOWAT, and nobody may
// be there to empty it. As it was, once this is gone.
class RoomySendBuffer {
 public:
  explicit RoomySendBuffer(int fd) : fd_(fd) {}
  ~RoomySendBuffer();
  RoomySendBuffer(const RoomySendBuffer&) = delete;
  RoomySendBuffer& operator=(const RoomySendBuffer&) = delete;

  // False: it was done before.
  bool grow();
  // It takes so many bytes, whether or not the peer reads.
  bool makes_room_for(std::size_t bytes) { return has_room_for(bytes) || (grow() && has_room_for(bytes)); }

 private:
  bool has_room_for(std::size_t bytes) const;
  int get(int level, int option) const;
  bool set(int level, int option, int value) const;
  void resize(int bytes) const;

  int fd_;
  bool grown_ = false;
  int size_ = 0, locked_ = 0;  // as it was
  std::optional<int> unsent_;
};

// The following under the sending lock of the direction; `fd`: the end that sends in it.

// From here on it is TCP; what the ring holds comes before that.
void leave_ring(Direction& direction, int fd, Opened opened);

// Nobody reads the ring any more. A descriptor that is set to non-blocking must not lose bytes here: where the socket
// takes no more we wait, or say false.
bool send_ring_over_tcp(const StreamMemory& memory, int direction, int fd, bool may_wait);

// Both, because the receiver has asked for it.
void send_unread_over_tcp(const StreamMemory& memory, int direction, int fd, Opened opened);

}  // namespace viaduct::sockets
