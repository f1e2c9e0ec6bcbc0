#include "net/station.hpp"

#include <algorithm>

namespace viaduct::net {

namespace {
constexpr std::uint64_t kFirstPause = 5'000'000;  // ns between two hellos
constexpr std::uint64_t kLongestPause = 500'000'000;
constexpr std::size_t kMostLetters = 256;  // not sent yet; more are dropped, and asked for again
constexpr std::size_t kLongestText = 200;
}  // namespace

Station::Station(const StationOptions& options, RegisteredMemory& memory, std::function<std::uint64_t()> random)
    : options_(options), memory_(memory), random_(std::move(random)), incarnation_(random_()) {}

std::uint64_t Station::fresh_number() {
  for (;;) {
    const std::uint64_t number = random_();
    if (number != 0 && !entries_.contains(number)) return number;
  }
}

Station::Entry* Station::find(std::uint64_t number) {
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : &found->second;
}

void Station::post(const Place& to, FrameKind kind, std::uint64_t session, std::vector<std::byte> body) {
  if (letters_.size() >= kMostLetters) return;
  std::vector<std::byte> bytes(kHeaderSize);
  bytes.insert(bytes.end(), body.begin(), body.end());
  FrameHeader header{};
  header.kind = static_cast<std::uint8_t>(kind);
  header.session = session;
  seal_frame(bytes, header);
  letters_.push_back({to, std::move(bytes)});
}

// Connecting.

std::uint64_t Station::connect(const Place& place, const std::string& name, std::size_t frame_size, std::uint64_t now,
                               std::uint64_t deadline) {
  const std::uint64_t number = fresh_number();
  Entry& entry = entries_[number];
  entry.number = number;
  entry.place = place;
  entry.name = name.substr(0, UINT8_MAX);
  entry.frame_size = std::min(frame_size, options_.session.frame_size);
  entry.give_up_at = deadline;
  entry.pause = kFirstPause;
  say_hello(entry, now);
  return number;
}

void Station::say_hello(Entry& entry, std::uint64_t now) {
  ++counters_.hellos_sent;
  post(entry.place, FrameKind::hello, 0,
       GrowingBytes()
           .add(entry.number)
           .add(incarnation_)
           .add(static_cast<std::uint16_t>(entry.frame_size))
           .add(answer_port_)
           .add(static_cast<std::uint8_t>(entry.name.size()))
           .add_all(std::as_bytes(std::span(entry.name)))
           .take());
  entry.hello_at = now + entry.pause;
  entry.pause = std::min(entry.pause * 2, kLongestPause);
  set_deadline(entry, std::min(entry.hello_at, entry.give_up_at));
}

void Station::fail(std::uint64_t number, std::string why, Reason reason) {
  events_.push_back({StationEvent::Kind::failed, number, {}, std::move(why), reason});
  erase(number);
}

Station::Taken Station::take_answer(const Place& from, const OpenedFrame& frame, std::uint64_t now) {
  Reader body(frame.chunks);
  const auto peers_number = body.get<std::uint64_t>();
  const auto incarnation = body.get<std::uint64_t>();
  const auto frame_size = body.get<std::uint16_t>();
  Entry* entry = find(frame.header.session);
  if (!body.good() || peers_number == 0 || entry == nullptr || entry->session != nullptr) return Taken::dropped;
  if (by_peers_number_.contains(peers_number)) return Taken::dropped;
  entry->place = from;
  entry->peers_number = peers_number;
  entry->peers_incarnation = incarnation;
  make_session(*entry, true, frame_size, now);
  events_.push_back({StationEvent::Kind::connected, entry->number, {}, {}});
  return Taken::yes;
}

Station::Taken Station::take_refusal(const OpenedFrame& frame) {
  Reader body(frame.chunks);
  const auto reason = body.get<Refusal>();
  const auto text = body.rest();
  Entry* entry = find(frame.header.session);
  if (!body.good() || entry == nullptr || entry->session != nullptr) return Taken::dropped;
  std::string why(reinterpret_cast<const char*>(text.data()), std::min(text.size(), kLongestText));
  std::replace_if(
      why.begin(), why.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  const bool no_such_name = reason == Refusal::no_such_name;
  if (no_such_name) why = "nobody there goes by the name '" + entry->name + "'";
  fail(entry->number, std::move(why), no_such_name ? Reason::not_offered : Reason::timed_out);
  return Taken::yes;
}

// Being met.

std::optional<Station::Hello> Station::read_hello(std::span<const std::byte> bytes) {
  const auto frame = open_frame(bytes);
  if (!frame || frame->header.kind != static_cast<std::uint8_t>(FrameKind::hello)) return std::nullopt;
  Reader body(frame->chunks);
  Hello hello;
  hello.number = body.get<std::uint64_t>();
  hello.incarnation = body.get<std::uint64_t>();
  hello.frame_size = body.get<std::uint16_t>();
  hello.answer_port = body.get<std::uint16_t>();
  const auto name = body.get_bytes(body.get<std::uint8_t>());
  if (!body.good() || hello.number == 0 || name.empty()) return std::nullopt;
  hello.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  return hello;
}

Station::Taken Station::take_hello(const Place& from, const Hello& hello, std::uint64_t now) {
  if (!offers(hello.name)) return Taken::for_another;
  ++counters_.hellos_received;
  if (const auto known = by_peers_number_.find(hello.number); known != by_peers_number_.end()) {
    // Said again: the answer was lost, or is on its way.
    const Entry& entry = entries_.at(known->second);
    if (entry.peers_incarnation == hello.incarnation && entry.place == from) send_answer(entry);
    return Taken::yes;
  }
  make_room_for_half_open();
  if (entries_.size() >= options_.most_sessions) {
    ++counters_.refusals_sent;
    const std::string text = "it has as many sessions as it allows (" + std::to_string(options_.most_sessions) + ")";
    post(from, FrameKind::refusal, hello.number,
         GrowingBytes().add(Refusal::too_many).add_all(std::as_bytes(std::span(text))).take());
    return Taken::yes;
  }
  const std::uint64_t number = fresh_number();
  Entry& entry = entries_[number];
  entry.number = number;
  entry.place = from;
  entry.frame_size = std::min(options_.session.frame_size, way_ ? way_(from) : SIZE_MAX);
  entry.peers_number = hello.number;
  entry.peers_incarnation = hello.incarnation;
  entry.half_open = true;
  half_open_.push_back(number);
  make_session(entry, false, hello.frame_size, now);
  send_answer(entry);
  return Taken::yes;
}

void Station::send_answer(const Entry& entry) {
  post(entry.place, FrameKind::answer, entry.peers_number,
       GrowingBytes().add(entry.number).add(incarnation_).add(static_cast<std::uint16_t>(entry.frame_size)).take());
}

void Station::make_session(Entry& entry, bool connecting, std::uint16_t peers_frame_size, std::uint64_t now) {
  SessionOptions options = options_.session;
  options.connecting = connecting;
  options.peers_number = entry.peers_number;
  options.frame_size = entry.frame_size;
  options.frame_size = std::min<std::size_t>(options.frame_size, peers_frame_size);
  by_peers_number_.emplace(entry.peers_number, entry.number);
  entry.session = std::make_unique<Session>(options, memory_, now);
  touch(entry);
}

void Station::make_room_for_half_open() {
  while (half_open_.size() >= options_.most_half_open) {
    const std::uint64_t oldest = half_open_.front();
    half_open_.pop_front();
    if (const Entry* entry = find(oldest); entry != nullptr && entry->half_open) erase(oldest);
  }
}

void Station::refuse(const Place& from, std::span<const std::byte> bytes) {
  const auto hello = read_hello(bytes);
  if (!hello) return;
  ++counters_.refusals_sent;
  post(from, FrameKind::refusal, hello->number, GrowingBytes().add(Refusal::no_such_name).take());
}

// Frames in.

Station::Taken Station::receive(const Place& from, std::span<const std::byte> bytes, std::uint64_t now, bool marked) {
  const auto any = open_frame_of_any_version(bytes);
  if (any && any->header.version != kVersion) {
    Reader body(any->chunks);
    const auto number = body.get<std::uint64_t>();
    if (any->header.kind == static_cast<std::uint8_t>(FrameKind::refusal)) return take_refusal(*any);
    if (any->header.kind != static_cast<std::uint8_t>(FrameKind::hello) || !body.good()) return Taken::dropped;
    ++counters_.refusals_sent;
    const std::string text = "it speaks version " + std::to_string(kVersion) +
                             " of the protocol, and was asked in version " + std::to_string(any->header.version);
    post(from, FrameKind::refusal, number,
         GrowingBytes().add(Refusal::other_version).add_all(std::as_bytes(std::span(text))).take());
    return Taken::yes;
  }
  const auto frame = open_frame(bytes);
  if (!frame) {
    ++counters_.dropped_garbage;
    return Taken::dropped;
  }
  switch (static_cast<FrameKind>(frame->header.kind)) {
    case FrameKind::session:
      return take_session_frame(from, *frame, now, marked);
    case FrameKind::hello: {
      const auto hello = read_hello(bytes);
      return hello ? take_hello(from, *hello, now) : Taken::dropped;
    }
    case FrameKind::answer:
      return take_answer(from, *frame, now);
    case FrameKind::refusal:
      return take_refusal(*frame);
    case FrameKind::unknown:
      return take_unknown(from, *frame);
  }
  return Taken::dropped;
}

Station::Taken Station::take_session_frame(const Place& from, const OpenedFrame& frame, std::uint64_t now,
                                           bool marked) {
  Entry* entry = find(frame.header.session);
  if (entry == nullptr || entry->session == nullptr) {
    // The answer is no longer than what it answers: nobody gains by having it sent to others.
    if (entry != nullptr || frame.header.number == 0) return Taken::dropped;
    ++counters_.unknown_sent;
    post(from, FrameKind::unknown, frame.header.session, {});
    return Taken::dropped;
  }
  if (entry->place != from) {
    ++counters_.dropped_stray;
    return Taken::dropped;
  }
  if (entry->half_open) {
    entry->half_open = false;
    std::erase(half_open_, entry->number);
    events_.push_back({StationEvent::Kind::met, entry->number, {}, {}});
  }
  entry->session->receive(frame, now, marked);
  touch(*entry);
  return Taken::yes;
}

Station::Taken Station::take_unknown(const Place& from, const OpenedFrame& frame) {
  const auto known = by_peers_number_.find(frame.header.session);
  if (known == by_peers_number_.end()) return Taken::dropped;
  Entry& entry = entries_.at(known->second);
  if (entry.place != from) return Taken::dropped;
  entry.session->peer_forgot();
  touch(entry);
  return Taken::yes;
}

// Frames out, time, events.

void Station::touch(Entry& entry) {
  if (!entry.waiting) {
    entry.waiting = true;
    used_.push_back(entry.number);
  }
  if (!entry.awake) {
    entry.awake = true;
    awake_.push_back(entry.number);
  }
}

void Station::collect(Entry& entry) {
  Event event;
  while (entry.session->take_event(event)) {
    events_.push_back({StationEvent::Kind::session, entry.number, std::move(event), {}});
  }
}

std::size_t Station::next_frame(std::span<std::byte> room, Place& to, std::uint64_t now) {
  if (!letters_.empty()) {
    const Letter letter = std::move(letters_.front());
    letters_.pop_front();
    to = letter.to;
    if (letter.bytes.size() > room.size()) return 0;
    std::copy(letter.bytes.begin(), letter.bytes.end(), room.begin());
    return letter.bytes.size();
  }
  while (!used_.empty()) {
    Entry* entry = find(used_.front());
    if (entry == nullptr || entry->session == nullptr) {
      used_.pop_front();
      continue;
    }
    to = entry->place;
    if (const std::size_t size = entry->session->next_frame(room, now); size != 0) return size;
    used_.pop_front();
    entry->waiting = false;
    if (entry->forgotten) {
      erase(entry->number);
      continue;
    }
    collect(*entry);
    set_deadline(*entry, entry->session->next_deadline());
  }
  return 0;
}

void Station::about_to_sleep() {
  for (const std::uint64_t number : awake_) {
    Entry* entry = find(number);
    if (entry == nullptr) continue;
    entry->awake = false;
    if (entry->session == nullptr) continue;
    entry->session->about_to_sleep();
    if (!entry->waiting) {
      entry->waiting = true;
      used_.push_back(number);
    }
  }
  awake_.clear();
}

void Station::tick(std::uint64_t now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Entry& entry = entries_.at(deadlines_.begin()->second);
    set_deadline(entry, UINT64_MAX);
    if (entry.session != nullptr) {
      entry.session->tick(now);
      touch(entry);  // its next deadline is set when it has sent what it has
    } else if (now >= entry.give_up_at) {
      fail(entry.number, kNobodyAnswered);
    } else {
      say_hello(entry, now);
    }
  }
}

bool Station::take_event(StationEvent& event) {
  if (events_.empty()) {
    for (const std::uint64_t number : used_) {
      Entry* entry = find(number);
      if (entry != nullptr && entry->session != nullptr && !entry->forgotten) collect(*entry);
    }
  }
  if (events_.empty()) return false;
  event = std::move(events_.front());
  events_.pop_front();
  return true;
}

void Station::set_deadline(Entry& entry, std::uint64_t deadline) {
  if (entry.deadline == deadline) return;
  if (entry.deadline != UINT64_MAX) deadlines_.erase({entry.deadline, entry.number});
  entry.deadline = deadline;
  if (deadline != UINT64_MAX) deadlines_.insert({deadline, entry.number});
}

Session* Station::use(std::uint64_t session) {
  Entry* entry = find(session);
  if (entry == nullptr || entry->session == nullptr || entry->forgotten) return nullptr;
  touch(*entry);
  return entry->session.get();
}

const Session* Station::look(std::uint64_t session) const {
  const auto found = entries_.find(session);
  return found == entries_.end() ? nullptr : found->second.session.get();
}

Place Station::place_of(std::uint64_t session) const {
  const auto found = entries_.find(session);
  return found == entries_.end() ? Place{} : found->second.place;
}

std::uint64_t Station::peers_incarnation(std::uint64_t session) const {
  const auto found = entries_.find(session);
  return found == entries_.end() ? 0 : found->second.peers_incarnation;
}

void Station::forget(std::uint64_t session) {
  Entry* entry = find(session);
  if (entry == nullptr) return;
  if (entry->session == nullptr) return erase(session);
  entry->session->finish_session();
  entry->forgotten = true;
  std::erase_if(events_, [session](const StationEvent& event) { return event.session == session; });
  touch(*entry);
}

void Station::erase(std::uint64_t number) {
  const auto found = entries_.find(number);
  set_deadline(found->second, UINT64_MAX);
  if (found->second.awake) std::erase(awake_, number);
  if (found->second.peers_number != 0) by_peers_number_.erase(found->second.peers_number);
  if (found->second.half_open) std::erase(half_open_, number);
  entries_.erase(found);
}

bool Station::quiet() const {
  return letters_.empty() && std::all_of(entries_.begin(), entries_.end(), [](const auto& entry) {
           return entry.second.session != nullptr && entry.second.session->quiet();
         });
}

}  // namespace viaduct::net
