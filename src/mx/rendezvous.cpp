// Long messages: the sender says where the bytes lie, and the receiver gets them straight into its receive, once there
// is one. Where there is no way to them, it says so and the sender pushes them through the channel.
//
//   sender     announce: match, length, places of memory it lends to this partner
//   receiver   gets, then done                 or: want
//   sender     complete                            data, data, ...: complete; so is the receive
#include <algorithm>

#include "base/counters.hpp"
#include "mx/core.hpp"

namespace viaduct::mx {

using Began = via::Reach::Began;

namespace {

constexpr std::uint64_t kAtOnce = 1u << 20;   // bytes of one get
constexpr std::uint64_t kInOneGo = 4u << 20;  // then others have the lock

}  // namespace

// ---- the sender

void Core::lend(Request& request) {
  Link& link = *request.link;
  const auto pieces = request.pieces.all();
  if (pieces.size() > kMostPlaces) return;
  for (const iovec& piece : pieces) {
    if (piece.iov_len == 0) continue;
    const std::uint32_t key =
        link.connection.far != nullptr
            ? link.connection.far->lend(piece.iov_base, piece.iov_len)
            : port_->registrations().add(piece.iov_base, piece.iov_len, kConnectionTag, via::kRdmaRead);
    if (key == 0) return take_back(request, false);
    request.keys.push_back(key);
    request.places.push_back({reinterpret_cast<std::uint64_t>(piece.iov_base), piece.iov_len, key, 0});
  }
}

// `wait_for_copies`: the partner may be in the middle of one.
void Core::take_back(Request& request, bool wait_for_copies) {
  Link* const link = request.link;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    void* const address = reinterpret_cast<void*>(request.places[i].address);
    if (link != nullptr && link->connection.far != nullptr)
      link->connection.far->take_back(request.keys[i], address);
    else
      port_->registrations().remove(request.keys[i], address);
  }
  if (wait_for_copies && !request.keys.empty() && link != nullptr && link->is_local()) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (via::ShmReach::Looks looks; link->connection.shared->peer_copies(looks);) ::sched_yield();
  }
  request.keys.clear();
  request.places.clear();
}

Core::Pushed Core::push_announce(Request& request) {
  Partner& partner = *request.partner;
  if (request.link != partner.out) {
    request.link = partner.out;
    lend(request);
  }
  HeaderWriter header;
  header.add(request.match);
  if (request.has_data) header.add(request.data);
  header.add(AnnounceHeader{request.length, request.number, static_cast<std::uint32_t>(request.places.size())});
  for (const PlaceOfBytes& place : request.places) header.add(place);
  const std::uint8_t flags = request.has_data ? kHasData : 0;
  const iovec piece{header.data(), header.size()};
  const Pushed pushed = try_send(partner, {&piece, 1}, Immediate{Word::announce, flags, request.space}.pack(), false);
  if (pushed != Pushed::yes) return pushed;
  partner.line.remove(request);
  request.stage = Request::Stage::announced;
  return Pushed::yes;
}

Core::Pushed Core::push_data(Request& request) {
  Partner& partner = *request.partner;
  const std::size_t largest = std::min<std::size_t>(partner.out->channel().largest_fragment(), kFragment);
  const DataHeader header{request.peer_number, 0, request.progress};
  iovec pieces[kMostPieces + 1];
  pieces[0] = {const_cast<DataHeader*>(&header), sizeof header};
  std::uint64_t part = std::min<std::uint64_t>(request.limit - request.progress, largest - sizeof header);
  const std::size_t count = request.pieces.cut(request.progress, part, pieces + 1, kMostPieces);
  const Pushed pushed = try_send(partner, {pieces, count + 1}, Immediate{Word::data, 0, 0}.pack(), false);
  if (pushed != Pushed::yes) return pushed;
  request.progress += part;
  if (request.progress == request.limit) end_of_push(request);
  return Pushed::yes;
}

Core::Took Core::take_want(Link& link, std::span<const std::byte> bytes) {
  WantHeader header;
  if (!take_field(bytes, header) || !bytes.empty()) return Took::nonsense;
  Request* const request = pool_.find(header.send);
  if (request == nullptr || request->partner != link.partner || request->stage != Request::Stage::announced)
    return Took::yes;  // given up meanwhile
  if (header.length == 0 || header.length > request->length) return Took::nonsense;
  take_back(*request, false);
  request->peer_number = header.receive;
  request->limit = header.length;
  request->progress = 0;
  request->stage = Request::Stage::pushing;
  link.partner->line.append(*request);
  run_line(*link.partner);
  return Took::yes;
}

Core::Took Core::take_done(Link& link, std::span<const std::byte> bytes) {
  DoneHeader header;
  if (!take_field(bytes, header) || !bytes.empty()) return Took::nonsense;
  Request* const request = pool_.find(header.send);
  if (request == nullptr || request->partner != link.partner) return Took::yes;
  if (request->stage != Request::Stage::announced && request->stage != Request::Stage::sent) return Took::yes;
  request->buffered = true;
  finish(*request, Status::success);
  return Took::yes;
}

// ---- the receiver

Core::Took Core::take_announce(Link& link, std::span<const std::byte> bytes, Immediate immediate) {
  Partner& from = *link.partner;
  std::uint64_t match = 0, data = 0;
  AnnounceHeader header;
  const bool has_data = (immediate.flags & kHasData) != 0;
  if ((immediate.flags & ~kHasData) != 0 || !take_field(bytes, match)) return Took::nonsense;
  if (has_data && !take_field(bytes, data)) return Took::nonsense;
  if (!take_field(bytes, header) || header.places > kMostPlaces || header.length > kLongestMessage)
    return Took::nonsense;
  if (bytes.size() != header.places * sizeof(PlaceOfBytes)) return Took::nonsense;
  std::vector<PlaceOfBytes> places(header.places);
  std::uint64_t there = 0;
  for (PlaceOfBytes& place : places) {
    (void)take_field(bytes, place);
    if (place.length > header.length - there) return Took::nonsense;
    there += place.length;
  }
  if (!places.empty() && there != header.length) return Took::nonsense;

  Request* request = find_receive(match, immediate.space, from);
  if (request == nullptr) {
    if (!has_room_for(0)) return Took::not_now;
    if (events_ != nullptr) {
      (void)events_->unexpected({&from, match, header.length, has_data, data}, nullptr);
      request = find_receive(match, immediate.space, from);
    }
  }
  if (request != nullptr) {
    matcher_.withdraw(*request);
    begin_receive(*request, from, match, header.length, has_data, data);
    request->peer_number = header.number;
    request->places = std::move(places);
    request->link = &link;
    begin_to_get(*request);
    return Took::yes;
  }
  Message& message = new_message(from, match, immediate.space, header.length);
  message.has_data = has_data;
  message.data = data;
  message.announced = true;
  message.peer_number = header.number;
  message.places = std::move(places);
  message.link = &link;
  unexpected_bytes_ += sizeof(Message);
  from.messages.append(message);
  matcher_.arrive(message);
  tell_waiters_ = true;
  return Took::yes;
}

void Core::begin_to_get(Request& request) {
  request.stage = Request::Stage::getting;
  if (request.limit != 0 && request.places.empty()) return want_it_pushed(request);
  go_on_getting(request);
}

// Asks for what has not been asked for yet; when all of it is here, it is done.
void Core::go_on_getting(Request& request) {
  Partner& partner = *request.partner;
  const std::uint64_t before = request.progress;
  while (request.progress < request.limit) {
    std::uint64_t skipped = 0;
    std::size_t i = 0;
    while (request.progress - skipped >= request.places[i].length) skipped += request.places[i++].length;
    const std::uint64_t within = request.progress - skipped;
    const PlaceOfBytes& place = request.places[i];
    std::uint64_t part = std::min({place.length - within, request.limit - request.progress, kAtOnce});
    iovec pieces[kMostPieces];
    const std::size_t count = request.pieces.cut(request.progress, part, pieces, kMostPieces);
    const via::RemoteBytes from{place.key, place.address + within, part};
    switch (request.link->connection.reach->get({pieces, count}, from, request.number)) {
      case Began::done:
        request.progress += part;
        if (request.progress - before < kInOneGo || request.progress == request.limit) continue;
        partner.getters.push_back(&request);
        look_again_at(*request.link);
        return;
      case Began::under_way:
        request.progress += part;
        ++request.gets_under_way;
        continue;
      case Began::full:
        partner.getters.push_back(&request);
        return;
      case Began::no_way:
        if (request.gets_under_way == 0) return want_it_pushed(request);
        [[fallthrough]];
      case Began::refused:
      case Began::failed:  // the sender has given it up
        say(partner, Word::done, DoneHeader{request.peer_number, 0});
        return finish(request, Status::aborted);
      case Began::gone:
        look_again_at(*request.link);
        return;  // ends with its partner
    }
  }
  if (request.gets_under_way != 0) return;
  static Counter got = counter("mx.messages_got");
  got.add();
  say(partner, Word::done, DoneHeader{request.peer_number, 0});
  end_receive(request);
}

void Core::want_it_pushed(Request& request) {
  static Counter pushed = counter("mx.messages_pushed");
  pushed.add();
  request.stage = Request::Stage::wanted;
  request.progress = 0;
  say(*request.partner, Word::want, WantHeader{request.peer_number, request.number, request.limit});
}

Core::Took Core::take_data(Link& link, std::span<const std::byte> bytes) {
  DataHeader header;
  if (!take_field(bytes, header)) return Took::nonsense;
  Request* const request = pool_.find(header.receive);
  if (request == nullptr || request->partner != link.partner || request->stage != Request::Stage::wanted)
    return Took::yes;  // given up meanwhile
  if (header.offset != request->progress || bytes.empty() || bytes.size() > request->limit - request->progress)
    return Took::nonsense;
  request->pieces.write(header.offset, bytes);
  request->progress += bytes.size();
  if (request->progress == request->limit) end_receive(*request);
  return Took::yes;
}

// ---- what the reach tells

void Core::take_ends(Link& link) {
  via::Reach::End end;
  while (link.connection.reach->take_end(end)) {
    Request* const request = pool_.find(static_cast<std::uint32_t>(end.cookie));
    if (request == nullptr || request->partner != link.partner || request->gets_under_way == 0) continue;
    --request->gets_under_way;
    if (request->stage == Request::Stage::moving) {
      move_ended(*request, end.how);
      continue;
    }
    if (request->stage != Request::Stage::getting) continue;
    if (end.how == Began::done) {
      if (request->gets_under_way == 0) go_on_getting(*request);
    } else if (end.how != Began::gone) {
      say(*link.partner, Word::done, DoneHeader{request->peer_number, 0});
      finish(*request, Status::aborted);
    }
  }
}

void Core::run_getters(Partner& partner) {
  if (partner.getters.empty()) [[likely]]
    return;
  std::vector<Request*> waiting;
  waiting.swap(partner.getters);
  for (Request* const request : waiting) {
    if (request->stage == Request::Stage::getting)
      go_on_getting(*request);
    else if (request->stage == Request::Stage::moving)
      go_on_moving(*request);
  }
}

}  // namespace viaduct::mx
