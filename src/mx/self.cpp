// Messages to ourselves: a copy from one piece of the program's memory to another, and matching as for all others.
#include "mx/core.hpp"

namespace viaduct::mx {

void Core::send_to_self(Request& request) {
  Partner& self = *request.partner;
  Request* receiver = find_receive(request.match, request.space, self);
  const bool is_short = request.length <= kEagerMost;
  if (receiver == nullptr && events_ != nullptr) {
    std::unique_ptr<std::byte[]> copy;
    const std::byte* bytes = nullptr;
    if (is_short) {
      copy = std::make_unique_for_overwrite<std::byte[]>(request.length);
      std::uint64_t at = 0;
      for (const iovec& piece : request.pieces.all()) {
        if (piece.iov_len != 0) std::memcpy(copy.get() + at, piece.iov_base, piece.iov_len);
        at += piece.iov_len;
      }
      bytes = copy.get();
    }
    const Waiting waiting{&self, request.match, request.length, request.has_data, request.data};
    if (events_->unexpected(waiting, bytes) && is_short) {
      request.buffered = true;
      return finish(request, Status::success);
    }
    receiver = find_receive(request.match, request.space, self);
  }
  if (receiver != nullptr) {
    matcher_.withdraw(*receiver);
    begin_receive(*receiver, self, request.match, request.length, request.has_data, request.data);
    copy_pieces(request.pieces, receiver->pieces);
    end_receive(*receiver);
    request.buffered = true;
    return finish(request, Status::success);
  }
  Message& message = new_message(self, request.match, request.space, request.length);
  message.has_data = request.has_data;
  message.data = request.data;
  message.complete = true;
  // A short one is copied where there is room; others stay where they are.
  if (is_short && !request.until_matched && has_room_for(request.length)) {
    message.bytes = std::make_unique_for_overwrite<std::byte[]>(request.length);
    for (const iovec& piece : request.pieces.all()) {
      if (piece.iov_len != 0) std::memcpy(message.bytes.get() + message.have, piece.iov_base, piece.iov_len);
      message.have += piece.iov_len;
    }
    unexpected_bytes_ += sizeof(Message) + message.length;
    request.buffered = true;
    finish(request, Status::success);
  } else {
    request.stage = Request::Stage::sent;
    request.to_self = &message;
    message.sender = &request;
    self.requests.append(request);
  }
  matcher_.arrive(message);
  tell_waiters_ = true;
}

}  // namespace viaduct::mx
