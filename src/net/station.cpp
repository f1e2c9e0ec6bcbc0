#include "net/station.hpp"

#include <algorithm>
#include <cstring>

namespace viaduct::net {

namespace {
constexpr std::uint64_t kFirstPause = 5'000'000;  // ns between two hellos
constexpr std::uint64_t kLongestPause = 500'000'000;
constexpr std::size_t kMostLetters = 256;  // not sent yet; more are dropped, and asked for again
constexpr std::size_t kLongestText = 200;
constexpr std::uint64_t kUnproven = 1'000'000'000;  // ns that a refusal which is not proven is doubted

std::span<const std::byte> header_of(const OpenedFrame& frame) {
  return std::as_bytes(std::span(&frame.header, 1)).subspan(4, kHeaderSize - 4);
}
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

void Station::post(const Place& to, FrameKind kind, std::uint64_t session, std::vector<std::byte> body,
                   std::span<const std::byte> context) {
  if (letters_.size() >= kMostLetters) return;
  std::vector<std::byte> bytes(kHeaderSize);
  bytes.insert(bytes.end(), body.begin(), body.end());
  FrameHeader header{};
  header.kind = static_cast<std::uint8_t>(kind);
  header.session = session;
  if (options_.key != nullptr && kind != FrameKind::unknown) {
    header.flags = kSealed;
    bytes.resize(bytes.size() + sizeof(Proof));
    seal_frame(bytes, header);  // writes what is proven
    const auto proven = std::span(bytes).first(bytes.size() - sizeof(Proof)).subspan(sizeof header.checksum);
    const Proof proof = options_.key->proof(proven, context);
    std::copy(proof.begin(), proof.end(), bytes.end() - sizeof proof);
  }
  seal_frame(bytes, header);
  letters_.push_back({to, std::move(bytes)});
}

// With a key.

bool Station::is_proven(const OpenedFrame& frame, std::span<const std::byte> context) const {
  if (options_.key == nullptr || (frame.header.flags & kSealed) == 0 || frame.chunks.size() < sizeof(Proof)) {
    return false;
  }
  std::vector<std::byte> proven;
  const auto header = header_of(frame);
  proven.insert(proven.end(), header.begin(), header.end());
  proven.insert(proven.end(), frame.chunks.begin(), frame.chunks.end() - sizeof(Proof));
  return options_.key->proves(frame.chunks.last(sizeof(Proof)), proven, context);
}

Nonce Station::fresh_nonce() const {
  Nonce nonce;
  const std::uint64_t halves[2] = {random_(), random_()};
  std::memcpy(nonce.data(), halves, sizeof halves);
  return nonce;
}

std::shared_ptr<Seal> Station::seal_of(const Entry& entry, bool connecting) const {
  if (options_.key == nullptr) return nullptr;
  const Cipher cipher = Key::best_of(entry.ciphers);
  const auto of_what = GrowingBytes()
                           .add_all(entry.hello_nonce)
                           .add_all(entry.answer_nonce)
                           .add(connecting ? entry.number : entry.peers_number)
                           .add(connecting ? entry.peers_number : entry.number)
                           .add(cipher)
                           .take();
  return std::make_shared<Seal>(options_.key->session_keys(of_what), cipher, connecting);
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
  entry.hello_nonce = fresh_nonce();
  say_hello(entry, now);
  return number;
}

void Station::say_hello(Entry& entry, std::uint64_t now) {
  ++counters_->hellos_sent;
  GrowingBytes body;
  body.add(entry.number)
      .add(incarnation_)
      .add(static_cast<std::uint16_t>(entry.frame_size))
      .add(answer_port_)
      .add(static_cast<std::uint8_t>(entry.name.size()))
      .add_all(std::as_bytes(std::span(entry.name)));
  if (options_.key != nullptr) body.add(Key::ciphers()).add_all(entry.hello_nonce);
  post(entry.place, FrameKind::hello, 0, body.take());
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
  const bool sealed = (frame.header.flags & kSealed) != 0;
  const auto cipher = sealed ? body.get<std::uint8_t>() : std::uint8_t{0};
  const auto nonce = body.get_bytes(sealed ? sizeof(Nonce) : 0);
  Entry* entry = find(frame.header.session);
  if (!body.good() || peers_number == 0 || entry == nullptr || entry->session != nullptr) return Taken::dropped;
  // Its own answer, sent back to it, would make a station talk to itself.
  if (sealed != (options_.key != nullptr) ||
      (sealed &&
       (!is_proven(frame, entry->hello_nonce) || incarnation == incarnation_ || (cipher & Key::ciphers()) == 0))) {
    ++counters_->dropped_forged;
    return Taken::dropped;
  }
  if (by_peers_number_.contains(peers_number)) return Taken::dropped;
  entry->place = from;
  entry->peers_number = peers_number;
  entry->peers_incarnation = incarnation;
  entry->ciphers = cipher;
  std::copy(nonce.begin(), nonce.end(), entry->answer_nonce.begin());
  make_session(*entry, true, frame_size, now);
  events_.push_back({StationEvent::Kind::connected, entry->number, {}, {}});
  return Taken::yes;
}

Station::Taken Station::take_refusal(const OpenedFrame& frame, std::uint64_t now) {
  const bool sealed = (frame.header.flags & kSealed) != 0;
  Reader body(frame.chunks);
  const auto refusal = body.get<Refusal>();
  const auto text = body.get_bytes(body.left() - (sealed ? std::min(body.left(), sizeof(Proof)) : 0));
  Entry* entry = find(frame.header.session);
  if (!body.good() || entry == nullptr || entry->session != nullptr) return Taken::dropped;
  std::string why(reinterpret_cast<const char*>(text.data()), std::min(text.size(), kLongestText));
  std::replace_if(
      why.begin(), why.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  Reason reason = Reason::timed_out;
  switch (refusal) {
    case Refusal::other_version:
    case Refusal::too_many:
      break;
    case Refusal::no_such_name:
      why = "nobody there goes by the name '" + entry->name + "'";
      reason = Reason::not_offered;
      break;
    case Refusal::needs_key:
      why = "it talks only to those who have its key, and this side has none (VIADUCT_KEY_FILE)";
      reason = Reason::key_differs;
      break;
    case Refusal::has_no_key:
      why = "it has no key, and this side talks only to those who have its own (VIADUCT_KEY_FILE)";
      reason = Reason::key_differs;
      break;
    case Refusal::other_key:
      why = "its key is another one: VIADUCT_KEY_FILE has to name the same key on both sides";
      reason = Reason::key_differs;
      break;
  }
  // Anybody who sees the hello can refuse it. Where this is not proven to come from somebody with the key, the one who
  // is meant gets some more hellos.
  if (options_.key != nullptr && !is_proven(frame, entry->hello_nonce)) {
    if (entry->unproven_at == 0) entry->unproven_at = std::max<std::uint64_t>(now, 1);
    if (now < entry->unproven_at + kUnproven) {
      entry->unproven = std::move(why);
      entry->unproven_reason = reason;
      return Taken::yes;
    }
  }
  fail(entry->number, std::move(why), reason);
  return Taken::yes;
}

// Being met.

std::optional<Station::Hello> Station::read_hello(std::span<const std::byte> bytes) {
  const auto frame = open_frame(bytes);
  return frame ? read_hello(*frame) : std::nullopt;
}

std::optional<Station::Hello> Station::read_hello(const OpenedFrame& frame) {
  if (frame.header.kind != static_cast<std::uint8_t>(FrameKind::hello)) return std::nullopt;
  Reader body(frame.chunks);
  Hello hello;
  hello.number = body.get<std::uint64_t>();
  hello.incarnation = body.get<std::uint64_t>();
  hello.frame_size = body.get<std::uint16_t>();
  hello.answer_port = body.get<std::uint16_t>();
  const auto name = body.get_bytes(body.get<std::uint8_t>());
  hello.sealed = (frame.header.flags & kSealed) != 0;
  if (hello.sealed) {
    hello.ciphers = body.get<std::uint8_t>();
    const auto nonce = body.get_bytes(sizeof(Nonce));
    std::copy(nonce.begin(), nonce.end(), hello.nonce.begin());
  }
  if (!body.good() || hello.number == 0 || name.empty()) return std::nullopt;
  hello.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  return hello;
}

// Why it is not let in.
std::optional<Refusal> Station::fault_of(const Hello& hello, const OpenedFrame& frame) const {
  if (options_.key == nullptr) return hello.sealed ? std::optional(Refusal::has_no_key) : std::nullopt;
  if (!hello.sealed) return Refusal::needs_key;
  if (!is_proven(frame) || (hello.ciphers & Key::ciphers()) == 0) return Refusal::other_key;
  return std::nullopt;
}

Station::Taken Station::take_hello(const Place& from, const OpenedFrame& frame, std::uint64_t now) {
  const auto read = read_hello(frame);
  if (!read) return Taken::dropped;
  const Hello& hello = *read;
  if (!offers(hello.name)) return Taken::for_another;
  ++counters_->hellos_received;
  if (const auto fault = fault_of(hello, frame)) {
    post_refusal(from, hello, *fault);
    return Taken::yes;
  }
  if (hello.sealed && hello.incarnation == incarnation_) {  // its own, sent back to it
    ++counters_->dropped_forged;
    return Taken::dropped;
  }
  if (const auto known = by_peers_number_.find(hello.number); known != by_peers_number_.end()) {
    // Said again: the answer was lost, or is on its way.
    const Entry& entry = entries_.at(known->second);
    if (entry.peers_incarnation == hello.incarnation && entry.place == from) send_answer(entry);
    return Taken::yes;
  }
  make_room_for_half_open();
  if (entries_.size() >= options_.most_sessions) {
    post_refusal(from, hello, Refusal::too_many,
                 "it has as many sessions as it allows (" + std::to_string(options_.most_sessions) + ")");
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
  entry.hello_nonce = hello.nonce;
  entry.ciphers = hello.ciphers & Key::ciphers();
  entry.answer_nonce = fresh_nonce();
  half_open_.push_back(number);
  make_session(entry, false, hello.frame_size, now);
  send_answer(entry);
  return Taken::yes;
}

void Station::send_answer(const Entry& entry) {
  GrowingBytes body;
  body.add(entry.number).add(incarnation_).add(static_cast<std::uint16_t>(entry.frame_size));
  if (options_.key != nullptr) body.add(Key::best_of(entry.ciphers)).add_all(entry.answer_nonce);
  post(entry.place, FrameKind::answer, entry.peers_number, body.take(), entry.hello_nonce);
}

void Station::make_session(Entry& entry, bool connecting, std::uint16_t peers_frame_size, std::uint64_t now) {
  SessionOptions options = options_.session;
  options.connecting = connecting;
  options.peers_number = entry.peers_number;
  options.frame_size = entry.frame_size;
  options.frame_size = std::min<std::size_t>(options.frame_size, peers_frame_size);
  options.seal = seal_of(entry, connecting);
  options.counters = ledger_ == nullptr ? nullptr : ledger_->open(entry.number);
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
  if (const auto hello = read_hello(bytes)) post_refusal(from, *hello, Refusal::no_such_name);
}

void Station::post_refusal(const Place& to, const Hello& hello, Refusal reason, const std::string& text) {
  ++counters_->refusals_sent;
  post(to, FrameKind::refusal, hello.number, GrowingBytes().add(reason).add_all(std::as_bytes(std::span(text))).take(),
       hello.nonce);
}

// Frames in.

Station::Taken Station::receive(const Place& from, std::span<const std::byte> bytes, std::uint64_t now, bool marked) {
  const auto any = open_frame_of_any_version(bytes);
  if (any && any->header.version != kVersion) {
    Reader body(any->chunks);
    const auto number = body.get<std::uint64_t>();
    if (any->header.kind == static_cast<std::uint8_t>(FrameKind::refusal)) return take_refusal(*any, now);
    if (any->header.kind != static_cast<std::uint8_t>(FrameKind::hello) || !body.good()) return Taken::dropped;
    ++counters_->refusals_sent;
    const std::string text = "it speaks version " + std::to_string(kVersion) +
                             " of the protocol, and was asked in version " + std::to_string(any->header.version);
    post(from, FrameKind::refusal, number,
         GrowingBytes().add(Refusal::other_version).add_all(std::as_bytes(std::span(text))).take());
    return Taken::yes;
  }
  const auto frame = open_frame(bytes);
  if (!frame) {
    ++counters_->dropped_garbage;
    return Taken::dropped;
  }
  switch (static_cast<FrameKind>(frame->header.kind)) {
    case FrameKind::session:
      return take_session_frame(from, *frame, now, marked);
    case FrameKind::hello:
      return take_hello(from, *frame, now);
    case FrameKind::answer:
      return take_answer(from, *frame, now);
    case FrameKind::refusal:
      return take_refusal(*frame, now);
    case FrameKind::unknown:
      return take_unknown(from, *frame, now);
  }
  return Taken::dropped;
}

Station::Taken Station::take_session_frame(const Place& from, const OpenedFrame& frame, std::uint64_t now,
                                           bool marked) {
  Entry* entry = find(frame.header.session);
  if (entry == nullptr || entry->session == nullptr) {
    // The answer is no longer than what it answers: nobody gains by having it sent to others.
    if (entry != nullptr || frame.header.number == 0) return Taken::dropped;
    ++counters_->unknown_sent;
    post(from, FrameKind::unknown, frame.header.session, {});
    return Taken::dropped;
  }
  if (entry->place != from) {
    ++counters_->dropped_stray;
    return Taken::dropped;
  }
  const bool authentic = entry->session->receive(frame, now, marked);
  if (!authentic) {
    ++counters_->dropped_forged;
    return Taken::dropped;
  }
  if (entry->half_open) {
    entry->half_open = false;
    std::erase(half_open_, entry->number);
    events_.push_back({StationEvent::Kind::met, entry->number, {}, {}});
  }
  touch(*entry);
  return Taken::yes;
}

Station::Taken Station::take_unknown(const Place& from, const OpenedFrame& frame, std::uint64_t now) {
  const auto known = by_peers_number_.find(frame.header.session);
  if (known == by_peers_number_.end()) return Taken::dropped;
  Entry& entry = entries_.at(known->second);
  if (entry.place != from) return Taken::dropped;
  entry.session->peer_forgot(now);
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
      fail(entry.number, entry.unproven_at != 0 ? entry.unproven : kNobodyAnswered, entry.unproven_reason);
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
  const bool counted = found->second.session != nullptr;
  entries_.erase(found);
  if (counted && ledger_ != nullptr) ledger_->close(number);
}

bool Station::quiet() const {
  return letters_.empty() && std::all_of(entries_.begin(), entries_.end(), [](const auto& entry) {
           return entry.second.session != nullptr && entry.second.session->quiet();
         });
}

}  // namespace viaduct::net
