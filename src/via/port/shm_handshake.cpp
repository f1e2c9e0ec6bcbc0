#include "via/port/shm_handshake.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "via/port/children.hpp"
#include "via/port/shm_reach.hpp"

namespace viaduct::via {

namespace {

constexpr std::uint64_t kFirstNapNs = 100'000;
constexpr std::uint64_t kLastNapNs = 2'000'000;

bool send_all(int socket, std::span<const std::byte> bytes, int fd = -1) {
  const std::span<const int> fds(&fd, fd < 0 ? 0 : 1);
  return send_with_fds(socket, bytes, fds).ok();
}

template <class Message>
bool send_message(int socket, const Message& message, int fd = -1) {
  return send_all(socket, std::as_bytes(std::span(&message, 1)), fd);
}

bool send_greeting(int socket, const LocalPort& port, const Terms& mine, std::span<const std::byte> words) {
  const copy::Token token = port.token();
  const Greeting greeting{kGreetingMagic, kGreetingVersion, static_cast<std::uint32_t>(words.size()),
                          mine.slot,      mine.number,      mine.tag,
                          token.value,    token.address};
  return send_message(socket, greeting, port.registrations().segment().fd()) &&
         (words.empty() || send_all(socket, words));
}

bool send_answer(int socket, bool yes, std::span<const std::byte> words = {}) {
  const Answer answer{kGreetingMagic, yes ? 1u : 0u, static_cast<std::uint32_t>(words.size())};
  return send_message(socket, answer) && (words.empty() || send_all(socket, words));
}

template <class Message>
std::span<std::byte> writable_bytes(Message& message) {
  return std::as_writable_bytes(std::span(&message, 1));
}

}  // namespace

ShmHandshake::ShmHandshake(std::shared_ptr<LocalPort> port, bool opener)
    : port_(std::move(port)),
      opener_(opener),
      began_ns_(Clock::steady().now_ns()),
      expecting_(opener ? Expecting::greeting : Expecting::server) {}

Result<std::unique_ptr<ShmHandshake>> ShmHandshake::open(std::shared_ptr<LocalPort> port, Fd socket) {
  VIADUCT_TRY(const pid_t peer, meeting::check_peer(socket.get(), port->peers()));
  std::unique_ptr<ShmHandshake> made(new ShmHandshake(std::move(port), true));
  made->meet_on(std::move(socket), peer);
  return made;
}

std::unique_ptr<ShmHandshake> ShmHandshake::join(std::shared_ptr<LocalPort> port, std::string name, const Terms& mine,
                                                 std::span<const std::byte> words, Deadline deadline) {
  std::unique_ptr<ShmHandshake> made(new ShmHandshake(std::move(port), false));
  made->name_ = std::move(name);
  made->mine_ = mine;
  made->request_.assign(words.begin(),
                        words.begin() + static_cast<std::ptrdiff_t>(std::min(words.size(), kLongestWords)));
  made->deadline_ = deadline;
  return made;
}

ShmHandshake::~ShmHandshake() {
  part();
}

void ShmHandshake::meet_on(Fd socket, pid_t peer) {
  socket_ = std::move(socket);
  peer_ = peer;
  close_in_children(socket_.get());
}

void ShmHandshake::part() {
  if (descriptor() >= 0) keep_in_children(descriptor());
  socket_.reset();
  channel_.reset();
  reader_ = {};
}

int ShmHandshake::descriptor() const {
  return channel_ ? channel_->shared()->descriptor() : socket_.get();
}

bool ShmHandshake::other_has_left() const {
  pollfd entry{descriptor(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

std::string ShmHandshake::peer() const {
  return fmt::format("process {}", peer_);
}

ShmHandshake::Step ShmHandshake::fail(Error why) {
  fault_ = std::move(why);
  expecting_ = Expecting::nothing;
  part();
  return Step::failed;
}

// The socket becomes the channel's, or is closed.
template <class Make>
bool ShmHandshake::make_channel(Make make) {
  keep_in_children(socket_.get());
  channel_ = make(socket_.release());
  if (channel_) close_in_children(channel_->shared()->descriptor());
  return channel_ != nullptr;
}

void ShmHandshake::wait(std::uint64_t most_ns) {
  if (descriptor() >= 0) {
    const std::uint64_t end = Clock::steady().now_ns() + most_ns;
    return (void)meeting::wait_for(descriptor(), POLLIN, Deadline::at_ns(end));
  }
  const timespec nap = to_timespec(std::min(most_ns, nap_ns_));
  (void)::nanosleep(&nap, nullptr);
}

ShmHandshake::Step ShmHandshake::advance() {
  for (;;) {
    const Expecting before = expecting_;
    const Step step = go_on();
    if (step != Step::pending) return step;
    if (expecting_ == before || std::exchange(looking_again_, false)) break;
  }
  if (!deadline_.expired(Clock::steady().now_ns())) return Step::pending;
  expecting_ = Expecting::nothing;
  return found_ ? Step::timed_out : Step::nobody;
}

ShmHandshake::Step ShmHandshake::go_on() {
  switch (expecting_) {
    case Expecting::server:
      return find_server();
    case Expecting::greeting:
    case Expecting::their_greeting:
      return take_greeting();
    case Expecting::words:
      return take_words();
    case Expecting::decision:
      return Step::heard;
    case Expecting::answer:
      return take_answer();
    case Expecting::answer_words:
      return take_answer_words();
    case Expecting::channel:
      return take_channel_segment();
    case Expecting::confirmation:
      return take_confirmation();
    case Expecting::taking:
      return Step::done;
    case Expecting::nothing:
      break;
  }
  return Step::failed;
}

// ---- the joiner's search

ShmHandshake::Step ShmHandshake::find_server() {
  auto socket = meeting::connect_at(name_);
  if (!socket) {
    const int code = socket.error().code();
    if (code == EMFILE || code == ENFILE) return fail(socket.error().because("connect"));
    return look_again();
  }
  const auto peer = meeting::check_peer(socket->get(), port_->peers());
  if (!peer) return fail(peer.error().because("connect"));
  meet_on(std::move(*socket), *peer);
  if (!send_greeting(socket_.get(), *port_, mine_, request_)) return look_again();
  found_ = true;
  expecting_ = Expecting::answer;
  return Step::pending;
}

// It closed without a word, or was not there: perhaps another waits there soon.
ShmHandshake::Step ShmHandshake::look_again() {
  part();
  expecting_ = Expecting::server;
  looking_again_ = true;
  nap_ns_ = nap_ns_ == 0 ? kFirstNapNs : std::min(nap_ns_ * 2, kLastNapNs);
  return Step::pending;
}

// ---- messages

ShmHandshake::Step ShmHandshake::read(std::span<std::byte> message) {
  switch (reader_.read(descriptor(), message)) {
    case MessageReader::Step::whole:
      return Step::done;
    case MessageReader::Step::pending:
      return Step::pending;
    case MessageReader::Step::closed:
    case MessageReader::Step::failed:
      break;
  }
  return opener_ ? fail(Error(ECONNRESET, "the peer has gone")) : look_again();
}

ShmHandshake::Step ShmHandshake::take_greeting() {
  if (const Step step = read(writable_bytes(greeting_)); step != Step::done) return step;
  table_ = reader_.take_fd();
  const bool fits = greeting_.magic == kGreetingMagic && greeting_.version == kGreetingVersion &&
                    greeting_.slot < kMostConnections && table_ && greeting_.length <= (opener_ ? kLongestWords : 0);
  if (!fits) {
    const char* const why = "the peer does not speak this protocol, or another version of it; update the older side";
    log::fault(fmt::format("connect: {}", why));
    return fail(Error(EPROTO, why));
  }
  theirs_ = {greeting_.slot, greeting_.connection, greeting_.tag, {greeting_.token, greeting_.token_address}};
  if (!opener_) {
    expecting_ = Expecting::channel;
  } else {
    words_.resize(greeting_.length);
    expecting_ = words_.empty() ? Expecting::decision : Expecting::words;
  }
  return Step::pending;
}

ShmHandshake::Step ShmHandshake::take_words() {
  if (const Step step = read(words_); step != Step::done) return step;
  expecting_ = Expecting::decision;
  return Step::pending;
}

ShmHandshake::Step ShmHandshake::take_answer() {
  if (const Step step = read(writable_bytes(answer_)); step != Step::done) return step;
  if (answer_.magic != kGreetingMagic || answer_.yes > 1 || answer_.length > kLongestWords)
    return fail(Error(EPROTO, "the peer answers garbage"));
  words_.resize(answer_.length);
  expecting_ = Expecting::answer_words;
  return Step::pending;
}

ShmHandshake::Step ShmHandshake::take_answer_words() {
  if (!words_.empty())
    if (const Step step = read(words_); step != Step::done) return step;
  if (answer_.yes == 0) {
    expecting_ = Expecting::nothing;
    part();
    return Step::refused;
  }
  expecting_ = Expecting::their_greeting;
  return Step::pending;
}

ShmHandshake::Step ShmHandshake::take_channel_segment() {
  if (!meeting::wait_for(socket_.get(), POLLIN, Deadline::at_ns(0))) return Step::pending;
  std::error_code fault;
  if (!make_channel([&](int socket) { return join_channel(socket, 0, fault); }))
    return fail(Error(fault.value(), "the channel: " + fault.message()));
  if (!send_answer(channel_->shared()->descriptor(), true)) return fail(Error(ECONNRESET, "the peer has gone"));
  expecting_ = Expecting::taking;
  return Step::done;
}

ShmHandshake::Step ShmHandshake::take_confirmation() {
  if (const Step step = read(writable_bytes(answer_)); step != Step::done) return step;
  if (answer_.magic != kGreetingMagic || answer_.yes != 1 || answer_.length != 0)
    return fail(Error(EPROTO, "the peer answers garbage"));
  expecting_ = Expecting::taking;
  return Step::done;
}

bool ShmHandshake::accept(const Terms& mine, std::span<const std::byte> words) {
  mine_ = mine;
  if (words.size() > kLongestWords || !send_answer(socket_.get(), true, words) ||
      !send_greeting(socket_.get(), *port_, mine_, {}))
    return false;
  std::error_code fault;
  expecting_ = Expecting::confirmation;
  return make_channel([&](int socket) { return open_channel(socket, mine_.options, fault); });
}

void ShmHandshake::refuse(std::span<const std::byte> words) {
  (void)send_answer(socket_.get(), false, words.first(std::min(words.size(), kLongestWords)));
  expecting_ = Expecting::nothing;
  part();
}

Connection ShmHandshake::take() {
  auto remote = port_->remote(std::move(table_), peer_, theirs_.token);
  if (!remote) {
    fault_ = remote.error().because("connect");
    log::fault(fault_.message());
    return {};
  }
  const int socket = channel_->shared()->descriptor();
  keep_in_children(socket);
  auto reach =
      std::make_unique<ShmReach>(port_->registrations().view(), mine_.slot, std::move(*remote), theirs_, socket);
  ShmReach* const shared = reach.get();
  expecting_ = Expecting::nothing;
  return {std::move(channel_), std::move(reach), shared, nullptr};
}

}  // namespace viaduct::via
