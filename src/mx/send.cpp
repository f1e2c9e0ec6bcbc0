// Out: what a partner's line holds goes into the channel, in order, as far as there is room.
#include <cassert>

#include "base/counters.hpp"
#include "mx/core.hpp"

namespace viaduct::mx {

Request* Core::new_request(Completion::Kind kind, Partner* partner, void* context) {
  Request* const request = pool_.take();
  if (request == nullptr) return nullptr;
  request->kind = kind;
  request->partner = partner;
  request->context = context;
  request->status = Status::pending;
  request->until_matched = request->has_data = request->forgotten = request->buffered = false;
  request->progress = request->limit = request->length = 0;
  request->data = 0;
  request->finished_match = 0;
  request->gets_under_way = 0;
  request->link = nullptr;
  if (usual_timeout_ns_ != kForever) [[unlikely]]
    give_time(*request, Clock::steady().now_ns() + usual_timeout_ns_);
  return request;
}

Request* Core::send(const Send& send) {
  assert(send.to != nullptr && send.bytes.size() <= kMostPieces);
  const Guard guard(*this);
  Request* const request = new_request(Completion::Kind::send, send.to, send.context);
  if (request == nullptr) return nullptr;
  request->match = request->finished_match = send.match;
  request->space = send.space;
  request->until_matched = send.until_matched;
  request->has_data = send.has_data;
  request->data = send.data;
  request->pieces.set(send.bytes);
  request->length = request->pieces.length();
  Partner& partner = *send.to;
  if (partner.is_self) [[unlikely]] {
    send_to_self(*request);
    return request;
  }
  request->stage = Request::Stage::queued;
  partner.requests.append(*request);
  partner.line.append(*request);
  if (partner.out == nullptr) [[unlikely]]
    begin_to_connect(partner, Clock::steady().now_ns() + kConnectNs);
  else
    run_line(partner);
  return request;
}

bool Core::send_control(Partner* to, std::uint32_t word, std::span<const std::byte> bytes) {
  if (bytes.size() > kLongestControl) return false;
  const Guard guard(*this);
  if (to->is_self) {
    const std::vector<std::byte> copy(bytes.begin(), bytes.end());
    if (events_ != nullptr) events_->control(to, word, copy);
    return true;
  }
  std::vector<std::byte> message(sizeof word + bytes.size());
  std::memcpy(message.data(), &word, sizeof word);
  if (!bytes.empty()) std::memcpy(message.data() + sizeof word, bytes.data(), bytes.size());
  if (to->out == nullptr) {
    to->controls.push_back({Immediate{Word::control, 0, 0}.pack(), std::move(message)});
    begin_to_connect(*to, Clock::steady().now_ns() + kConnectNs);
    return true;
  }
  say(*to, Immediate{Word::control, 0, 0}.pack(), message);
  return true;
}

// ---- the line

void Core::set_blocked(Partner& partner, bool now) {
  if (partner.blocked == now) [[likely]]
    return;
  partner.blocked = now;
  if (now) {
    blocked_.push_back(&partner);
    tell_leader_ = true;
    return;
  }
  std::erase(blocked_, &partner);
  if (partner.out != nullptr)
    port_->registrations().view().words(partner.out->slot).wants_room.store(0, std::memory_order_relaxed);
}

void Core::run_line(Partner& partner) {
  const Pushed pushed = run_line_until_stuck(partner);
  set_blocked(partner, pushed == Pushed::full);
  if (partner.shown != nullptr) Statistics::set(partner.shown->numbers, Number::sending, partner.line.size());
}

Core::Pushed Core::run_line_until_stuck(Partner& partner) {
  for (;;) {
    if (partner.out == nullptr || partner.out->over) return Pushed::closed;
    Pushed pushed;
    if (!partner.controls.empty() && !partner.in_the_middle) [[unlikely]] {
      const ControlMessage& first = partner.controls.front();
      const iovec piece{const_cast<std::byte*>(first.bytes.data()), first.bytes.size()};
      pushed = try_send(partner, {&piece, 1}, first.immediate, false);
      if (pushed == Pushed::yes) partner.controls.pop_front();
    } else if (Request* const request = partner.line.first(); request != nullptr) {
      pushed = push(*request);
    } else {
      return Pushed::yes;
    }
    if (pushed != Pushed::yes) return pushed;
  }
}

Core::Pushed Core::try_send(Partner& partner, std::span<const iovec> pieces, std::uint32_t immediate, bool more) {
  Link& link = *partner.out;
  switch (link.channel().try_send(pieces, immediate, more)) {
    case via::Sent::taken:
      return Pushed::yes;
    case via::Sent::full:
      return Pushed::full;
    case via::Sent::closed:
      break;
  }
  look_again_at(link);  // its end is found there, behind what has still come
  return Pushed::closed;
}

// At once if it can be, else as soon as possible; before messages that have not begun.
void Core::say(Partner& partner, std::uint32_t immediate, std::span<const std::byte> bytes) {
  if (partner.out == nullptr || partner.out->over) return;  // nobody listens any more
  if (partner.controls.empty() && !partner.in_the_middle) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    if (try_send(partner, {&piece, 1}, immediate, false) != Pushed::full) return;
  }
  partner.controls.push_back({immediate, {bytes.begin(), bytes.end()}});
  set_blocked(partner, true);
}

void Core::tell_of_room(Link& link) {
  if (!link.is_local()) return;                          // credit tells
  asymmetric_ ? fence::compiler_only() : fence::full();  // what we consumed, then the wish: see ask_for_room()
  if (!link.connection.shared->wants_room()) [[likely]]
    return;
  Partner& partner = *link.partner;
  // Where there is no room for this the peer has something to read, and does not sleep.
  if (partner.out != nullptr && !partner.out->over && !partner.in_the_middle)
    (void)partner.out->channel().try_send({}, Immediate{Word::room, 0, 0}.pack(), false);
}

// ---- one request, a fragment of it

Core::Pushed Core::push(Request& request) {
  if (request.stage == Request::Stage::pushing) return push_data(request);
  return request.length > kEagerMost ? push_announce(request) : push_message(request);
}

Core::Pushed Core::push_message(Request& request) {
  Partner& partner = *request.partner;
  const std::size_t largest = std::min<std::size_t>(partner.out->channel().largest_fragment(), kFragment);
  const std::uint64_t left = request.length - request.progress;
  HeaderWriter header;
  std::uint8_t flags = 0;
  const std::size_t room_needed = 8 + (request.has_data ? 8 : 0) + (request.until_matched ? 8 : 0) + left;
  const bool in_fragments = request.progress != 0 || room_needed > largest;
  if (in_fragments) flags |= kHasLength;
  if (request.has_data) flags |= kHasData;
  if (request.until_matched) flags |= kUntilMatched;
  if (request.progress == 0) {
    header.add(request.match);
    if (in_fragments) header.add(request.length);
    if (request.has_data) header.add(request.data);
    if (request.until_matched) header.add(std::uint64_t{request.number});
  }
  std::uint64_t part = std::min<std::uint64_t>(left, largest - header.size());
  iovec pieces[kMostPieces + 1];
  std::size_t count = 0;
  if (header.size() != 0) pieces[count++] = {header.data(), header.size()};
  count += request.pieces.cut(request.progress, part, pieces + count, kMostPieces);
  const bool more = part != left;
  const Pushed pushed = try_send(partner, {pieces, count}, Immediate{Word::message, flags, request.space}.pack(), more);
  if (pushed != Pushed::yes) return pushed;
  request.progress += part;
  partner.in_the_middle = more;
  if (!more) end_of_push(request);
  return Pushed::yes;
}

void Core::end_of_push(Request& request) {
  request.partner->line.remove(request);
  request.buffered = true;
  if (request.until_matched && request.length <= kEagerMost)
    request.stage = Request::Stage::sent;
  else
    finish(request, Status::success);
}

}  // namespace viaduct::mx
