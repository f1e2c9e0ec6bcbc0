// In: messages find their receives, or wait for one.
#include <algorithm>

#include "base/log.hpp"
#include "mx/core.hpp"

namespace viaduct::mx {

namespace {

std::uint64_t space_taken(const Message& message) {
  return sizeof(Message) + (message.announced ? 0 : message.length);
}

Waiting waiting_of(const Message& message) {
  return {message.from, message.match, message.length, message.has_data, message.data};
}

}  // namespace

// ---- what the program asks

Request* Core::receive(const Receive& receive) {
  const Guard guard(*this);
  Request* const request = new_request(Completion::Kind::receive, nullptr, receive.context);
  if (request == nullptr) return nullptr;
  request->match = receive.match;
  request->mask = receive.mask;
  request->space = receive.space;
  request->from = receive.from;
  request->pieces.set(receive.into);
  request->stage = Request::Stage::posted;
  auto* const message =
      static_cast<Message*>(matcher_.message_for(receive.match, receive.mask, receive.space, receive.from));
  if (message != nullptr) {
    deliver(*message, *request);
  } else {
    matcher_.post(*request);
    if (!stalled_.empty()) unstall();
  }
  return request;
}

bool Core::probe(const Receive& like, Waiting& found) {
  const Guard guard(*this);
  const auto* const message =
      static_cast<const Message*>(matcher_.message_for(like.match, like.mask, like.space, like.from));
  if (message == nullptr) return false;
  found = waiting_of(*message);
  return true;
}

Message* Core::claim(const Receive& like, Waiting& found) {
  const Guard guard(*this);
  auto* const message = static_cast<Message*>(matcher_.message_for(like.match, like.mask, like.space, like.from));
  if (message == nullptr) return nullptr;
  found = waiting_of(*message);
  matcher_.remove(*message);
  message->claimed = true;
  return message;
}

Request* Core::receive_claimed(Message* message, const Receive& receive) {
  const Guard guard(*this);
  Request* const request = new_request(Completion::Kind::receive, nullptr, receive.context);
  if (request == nullptr) return nullptr;
  request->space = message->space;
  request->pieces.set(receive.into);
  deliver(*message, *request);
  return request;
}

// ---- messages that wait

Message& Core::new_message(Partner& from, std::uint64_t match, Space space, std::uint64_t length) {
  if (free_messages_.empty()) {
    all_messages_.push_back(std::make_unique<Message>());
    free_messages_.push_back(all_messages_.back().get());
  }
  Message& message = *free_messages_.back();
  free_messages_.pop_back();
  message.from = &from;
  message.match = match;
  message.space = space;
  message.length = length;
  message.has_data = message.until_matched = message.announced = message.complete = message.claimed = false;
  message.lost = Status::success;
  message.have = 0;
  message.sender = nullptr;
  message.link = nullptr;
  return message;
}

void Core::free_message(Message& message) {
  matcher_.remove(message);
  message.from->messages.remove(message);
  message.bytes.reset();
  message.places.clear();
  free_messages_.push_back(&message);
}

void Core::forget_room(const Message& message) {
  unexpected_bytes_ -= space_taken(message);
  if (!stalled_.empty()) unstall();
}

bool Core::has_room_for(std::uint64_t bytes) const {
  return matcher_.arrived().empty() || unexpected_bytes_ + sizeof(Message) + bytes <= most_unexpected_;
}

// There may be room for what was not consumed. By whoever leads.
void Core::unstall() {
  for (Link* const link : stalled_) {
    link->stalled = false;
    look_again_at(*link);
  }
  stalled_.clear();
}

// A message that waited goes to a receive.
void Core::deliver(Message& message, Request& request) {
  Partner& from = *message.from;
  matcher_.remove(message);
  if (message.sender == nullptr) forget_room(message);
  begin_receive(request, from, message.match, message.length, message.has_data, message.data);
  if (message.lost != Status::success) {
    finish(request, message.lost);
    return free_message(message);
  }
  if (message.sender != nullptr) {  // to ourselves, and still where it was
    copy_pieces(message.sender->pieces, request.pieces);
    message.sender->to_self = nullptr;
    message.sender->buffered = true;
    finish(*message.sender, Status::success);
    free_message(message);
    return end_receive(request);
  }
  if (message.until_matched && !message.announced) tell_matched(from, message.peer_number);
  if (message.announced) {
    request.peer_number = message.peer_number;
    request.places = std::move(message.places);
    request.link = message.link;
    free_message(message);
    return begin_to_get(request);
  }
  request.pieces.write(0, {message.bytes.get(), message.have});
  if (!message.complete) {
    request.stage = Request::Stage::arriving;
    request.link = message.link;
    message.link->receiver = &request;
    message.link->message = nullptr;
    return free_message(message);
  }
  free_message(message);
  end_receive(request);
}

void Core::begin_receive(Request& request, Partner& from, std::uint64_t match, std::uint64_t length, bool has_data,
                         std::uint64_t data) {
  request.partner = &from;
  request.finished_match = match;
  request.length = length;
  request.limit = std::min(length, request.pieces.length());
  request.has_data = has_data;
  request.data = data;
  request.progress = 0;
  from.requests.append(request);
}

void Core::end_receive(Request& request) {
  finish(request, request.limit < request.length ? Status::truncated : Status::success);
}

void Core::tell_matched(Partner& partner, std::uint32_t number) {
  say(partner, Word::matched, DoneHeader{number, 0});
}

// ---- what comes

Core::Took Core::take_fragment(Link& link, const via::Fragment& fragment) {
  if (link.immediate != 0) [[unlikely]]
    return more_of_message(link, fragment);
  const Immediate immediate = Immediate::unpack(fragment.immediate);
  if (immediate.word == Word::message) [[likely]]
    return take_message(link, fragment, immediate);
  if (!fragment.last) return Took::nonsense;
  return take_control(link, fragment.bytes, immediate);
}

Core::Took Core::take_control(Link& link, std::span<const std::byte> bytes, Immediate immediate) {
  switch (immediate.word) {
    case Word::announce:
      return take_announce(link, bytes, immediate);
    case Word::want:
      return take_want(link, bytes);
    case Word::data:
      return take_data(link, bytes);
    case Word::done:
    case Word::matched:
      return take_done(link, bytes);
    case Word::room:
      return Took::yes;  // whatever comes lets us try again
    case Word::control: {
      std::uint32_t word = 0;
      if (!take_field(bytes, word) || bytes.size() > kLongestControl) return Took::nonsense;
      const std::vector<std::byte> copy(bytes.begin(), bytes.end());
      if (events_ != nullptr) events_->control(link.partner, word, copy);
      return Took::yes;
    }
    case Word::message:
      break;
  }
  return Took::nonsense;
}

Request* Core::find_receive(std::uint64_t match, Space space, Partner& from) {
  return static_cast<Request*>(matcher_.receive_for(match, space, &from));
}

Core::Took Core::take_message(Link& link, const via::Fragment& fragment, Immediate immediate) {
  Partner& from = *link.partner;
  std::span<const std::byte> bytes = fragment.bytes;
  std::uint64_t match = 0, length = 0, data = 0, number = 0;
  const std::uint8_t flags = immediate.flags;
  const bool in_fragments = (flags & kHasLength) != 0;
  if (!take_field(bytes, match) || in_fragments == fragment.last) return Took::nonsense;
  if (flags != 0) [[unlikely]] {
    if ((flags & ~(kHasLength | kHasData | kUntilMatched)) != 0) return Took::nonsense;
    if (in_fragments && !take_field(bytes, length)) return Took::nonsense;
    if ((flags & kHasData) != 0 && !take_field(bytes, data)) return Took::nonsense;
    if ((flags & kUntilMatched) != 0 && !take_field(bytes, number)) return Took::nonsense;
  }
  if (!in_fragments) length = bytes.size();
  if (length > kEagerMost || bytes.size() > length || (in_fragments && bytes.size() == length)) return Took::nonsense;

  Request* request = find_receive(match, immediate.space, from);
  const bool until_matched = (flags & kUntilMatched) != 0;
  if (request == nullptr) {
    if (!has_room_for(length)) return Took::not_now;
    if (events_ != nullptr) {
      const Waiting waiting{&from, match, length, (flags & kHasData) != 0, data};
      if (events_->unexpected(waiting, in_fragments ? nullptr : bytes.data()) && !in_fragments) {
        if (until_matched) tell_matched(from, static_cast<std::uint32_t>(number));
        return Took::yes;
      }
      request = find_receive(match, immediate.space, from);
    }
  }
  if (request != nullptr) {
    matcher_.withdraw(*request);
    begin_receive(*request, from, match, length, (flags & kHasData) != 0, data);
    request->pieces.write(0, bytes);
    if (until_matched) tell_matched(from, static_cast<std::uint32_t>(number));
    if (!in_fragments) {
      end_receive(*request);
      return Took::yes;
    }
    request->stage = Request::Stage::arriving;
    request->link = &link;
    link.receiver = request;
  } else {
    Message& message = new_message(from, match, immediate.space, length);
    message.bytes = std::make_unique_for_overwrite<std::byte[]>(length);
    if (!bytes.empty()) std::memcpy(message.bytes.get(), bytes.data(), bytes.size());
    message.have = bytes.size();
    message.has_data = (flags & kHasData) != 0;
    message.data = data;
    message.until_matched = until_matched;
    message.peer_number = static_cast<std::uint32_t>(number);
    message.complete = !in_fragments;
    message.link = &link;
    unexpected_bytes_ += space_taken(message);
    matcher_.arrive(message);
    tell_waiters_ = true;  // somebody may probe for it
    if (!in_fragments) return Took::yes;
    from.messages.append(message);
    link.message = &message;
  }
  link.immediate = fragment.immediate;
  link.have = bytes.size();
  link.length = length;
  return Took::yes;
}

Core::Took Core::more_of_message(Link& link, const via::Fragment& fragment) {
  const std::uint64_t left = link.length - link.have;
  const std::span<const std::byte> bytes = fragment.bytes;
  if (fragment.immediate != link.immediate || bytes.empty() || bytes.size() > left) return Took::nonsense;
  if (fragment.last != (bytes.size() == left)) return Took::nonsense;
  if (link.receiver != nullptr) {
    link.receiver->pieces.write(link.have, bytes);
  } else if (link.message != nullptr) {
    std::memcpy(link.message->bytes.get() + link.have, bytes.data(), bytes.size());
    link.message->have += bytes.size();
  }  // else nobody wants it any more
  link.have += bytes.size();
  if (!fragment.last) return Took::yes;
  link.immediate = 0;
  if (Request* const request = std::exchange(link.receiver, nullptr); request != nullptr) end_receive(*request);
  if (Message* const message = std::exchange(link.message, nullptr); message != nullptr) {
    message->complete = true;
    link.partner->messages.remove(*message);
  }
  return Took::yes;
}

}  // namespace viaduct::mx
