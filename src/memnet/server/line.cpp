// Messages of a line, in and out, and its end.
#include "memnet/server/line.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>

#include "base/fence.hpp"
#include "base/log.hpp"
#include "memnet/server/worker.hpp"

namespace viaduct::memnet {

namespace {

constexpr int kMessagesAtOnce = 256;
constexpr std::size_t kMostUntold = 65536;  // of a client that asks and does not take the answers

std::size_t index_of(std::uint32_t number) {
  return number & ~kAcceptedBit;
}

}  // namespace

Line::Line(via::Connection connection, std::uint32_t slot, const Hello& hello, std::string peer)
    : slot_(slot),
      peer_(std::move(peer) + ' ' + std::string(hello.program, ::strnlen(hello.program, sizeof hello.program))),
      channel_(std::move(connection.channel)),
      reach_(std::move(connection.reach)),
      shared_(connection.shared) {}

Line::~Line() {
  if (reach_ != nullptr) reach_->give_up();
}

ServedSocket* Line::find(std::uint32_t number) const {
  const auto& table = (number & kAcceptedBit) != 0 ? accepted_ : own_;
  const std::size_t index = index_of(number);
  return index < table.size() ? table[index].get() : nullptr;
}

void Line::break_off(const char* why) {
  if (over_) return;
  worker_->counts().broken.add();
  log::fault(fmt::format("tcp-server: {} breaks the rules and loses its sockets: {}", peer_, why));
  over_ = true;
}

// ---- in

bool Line::serve() {
  via::Fragment fragment;
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    switch (channel_->peek(fragment)) {
      case via::Got::fragment:
        if (!fragment.last) break_off("a message of several fragments");
        if (!over_) handle(fragment.immediate, fragment.bytes);
        channel_->consume();
        if (over_) return false;
        continue;
      case via::Got::end:
        over_ = true;
        return false;
      case via::Got::nothing:
        break;
    }
    take_transfers();
    tell_room();
    flush();
    return false;
  }
  flush();
  return true;
}

void Line::handle(std::uint32_t immediate, std::span<const std::byte> bytes) {
  const auto ask = static_cast<Ask>(kind_of(immediate));
  const std::uint32_t number = socket_of(immediate);
  if (ask == Ask::send || ask == Ask::send_more) [[likely]] {
    if (ServedSocket* const socket = find(number)) return send(*socket, bytes, ask == Ask::send_more);
    return break_off("no such socket");
  }
  worker_->counts().requests.add();
  if (ask == Ask::room) return;  // whatever waits is looked at after this round
  if (ask == Ask::make) {
    MakeWords words;
    return read_words(bytes, words) ? make(number, words) : break_off("make: too short");
  }
  if (ServedSocket* const socket = find(number)) return handle_of_socket(ask, *socket, bytes);
  break_off("no such socket");
}

void Line::handle_of_socket(Ask ask, ServedSocket& socket, std::span<const std::byte> bytes) {
  const auto with = [&](auto words, auto go) { read_words(bytes, words) ? go(words) : break_off("too short"); };
  switch (ask) {
    case Ask::send_memory:
      return with(JobWords{}, [&](auto& words) { send_memory(socket, words); });
    case Ask::receive_memory:
      return with(JobWords{}, [&](auto& words) { receive_memory(socket, words); });
    case Ask::window:
      return with(CountWords{}, [&](auto& words) {
        if (words.count > kReceiveWindow - socket.window) return break_off("more window than was used");
        socket.window += words.count;
        pump_receives(socket);
      });
    case Ask::close:
      return close(socket);
    case Ask::may_accept:
      return with(CountWords{}, [&](auto& words) {
        if (words.count > 65536 - socket.may_accept) return break_off("too many accepts");
        socket.may_accept += words.count;
        if (socket.listening) accept_more(socket);
      });
    case Ask::send_file:
      return with(FileWords{}, [&](auto& words) { send_file(socket, words); });
    case Ask::mode:
      return with(ModeWords{}, [&](auto& words) { set_mode(socket, words.push != 0); });
    case Ask::bind:
      return with(AddressWords{}, [&](auto& words) { bind(socket, words); });
    case Ask::listen:
      return with(ListenWords{}, [&](auto& words) { listen(socket, words); });
    case Ask::connect:
      return with(AddressWords{}, [&](auto& words) { connect(socket, words); });
    case Ask::shut_down:
      return with(ShutdownWords{}, [&](auto& words) { shut_down(socket, words); });
    case Ask::get_option:
      return with(OptionWords{}, [&](auto& words) { get_option(socket, words); });
    case Ask::set_option:
      return with(OptionWords{}, [&](auto& words) { set_option(socket, words, bytes.subspan(sizeof words)); });
    case Ask::name:
      return with(NameWords{}, [&](auto& words) { name(socket, words); });
    case Ask::cancel:
      return with(CountWords{}, [&](auto& words) { cancel(socket, words.count); });
    default:
      return break_off("nothing that is known");
  }
}

void Line::happened(ServedSocket& socket, std::uint32_t events) {
  if (socket.listening) {
    socket.readable = true;
    return accept_more(socket);
  }
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) socket.hung_up = true;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) socket.readable = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) socket.writable = true;
  if (socket.connecting) {
    if (socket.writable) connected(socket);
    return;
  }
  if (!socket.sends.empty() && socket.writable) pump_sends(*worker_, socket);
  if (socket.readable) pump_receives(socket);
}

// ---- out

bool Line::try_tell(Tell what, std::uint32_t socket, std::span<const std::byte> first,
                    std::span<const std::byte> second) {
  const auto piece = [](std::span<const std::byte> bytes) {
    return iovec{const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  const iovec pieces[2] = {piece(first), piece(second)};
  switch (channel_->try_send(std::span(pieces, second.empty() ? 1 : 2), immediate_of(what, socket))) {
    case via::Sent::taken:
      return true;
    case via::Sent::closed:
      return true;  // nobody will ask; the end is noticed by whoever receives
    case via::Sent::full:
      break;
  }
  return false;
}

void Line::tell(Tell what, std::uint32_t socket, std::span<const std::byte> first, std::span<const std::byte> second) {
  if (outbox_.empty() && try_tell(what, socket, first, second)) return;
  if (outbox_.size() >= kMostUntold) return break_off("it asks and does not take the answers");
  Message message{immediate_of(what, socket), {first.begin(), first.end()}};
  message.bytes.insert(message.bytes.end(), second.begin(), second.end());
  outbox_.push_back(std::move(message));
  wait_for_room(nullptr);
}

void Line::reply(std::uint32_t request, int error, std::span<const std::byte> value) {
  const ReplyWords words{request, error};
  tell(Tell::reply, 0, std::as_bytes(std::span(&words, 1)), value);
}

void Line::done(std::uint32_t job, std::int64_t result) {
  worker_->counts().jobs.add();
  dones_.push_back({job, static_cast<std::int32_t>(result)});
  if (dones_.size() % kDonesAtOnce == 0) (void)flush_dones();
  if (dones_.size() > kMostUntold) break_off("it does not take the ends of its jobs");
}

bool Line::flush_dones() {
  std::size_t told = 0;
  while (told < dones_.size()) {
    const std::size_t count = std::min(kDonesAtOnce, dones_.size() - told);
    if (!try_tell(Tell::done, 0, std::as_bytes(std::span(dones_).subspan(told, count)))) break;
    told += count;
  }
  dones_.erase(dones_.begin(), dones_.begin() + static_cast<std::ptrdiff_t>(told));
  if (dones_.empty()) return true;
  wait_for_room(nullptr);
  return false;
}

void Line::flush() {
  while (!outbox_.empty()) {
    const Message& message = outbox_.front();
    if (!try_tell(static_cast<Tell>(kind_of(message.immediate)), socket_of(message.immediate), message.bytes))
      return wait_for_room(nullptr);
    outbox_.pop_front();
  }
  if (!dones_.empty() && !flush_dones()) return;
  if (room_waiters_.empty()) return;
  for (ServedSocket* const socket : std::exchange(room_waiters_, {})) {
    socket->waits_for_room = false;
    socket->listening ? accept_more(*socket) : pump_receives(*socket);
    if (!socket->sends.empty()) pump_sends(*worker_, *socket);
  }
}

// ---- room: who has something that does not fit says so in its words, and whoever makes room answers

std::uint32_t* Line::room_word(via::SharedEnd::Whose whose) const {
  via::SharedEnd* const shared = channel_->shared();
  return shared == nullptr ? nullptr : reinterpret_cast<std::uint32_t*>(shared->words(whose));
}

void Line::wait_for_room(ServedSocket* socket) {
  if (socket != nullptr && !std::exchange(socket->waits_for_room, true)) room_waiters_.push_back(socket);
  std::uint32_t* const word = room_word(via::SharedEnd::Whose::ours);
  if (word == nullptr || wants_room_) return;
  wants_room_ = true;  // the worker looks again before it sleeps: there may be room since
  std::atomic_ref(*word).store(1, std::memory_order_seq_cst);
}

void Line::tell_room() {
  wants_room_ = false;
  std::uint32_t* const word = room_word(via::SharedEnd::Whose::theirs);
  if (word == nullptr) return;
  fence::full();  // room was made, then the word is read: pairs with who writes it and then looks for room
  if (std::atomic_ref(*word).load(std::memory_order_relaxed) == 0) return;
  std::atomic_ref(*word).store(0, std::memory_order_relaxed);
  tell(Tell::room, 0);
}

// ---- the end

void Line::let_sockets_go() {
  reach_->give_up();
  fetches_.clear();
  for (auto* const table : {&own_, &accepted_})
    for (auto& socket : *table) {
      if (socket == nullptr) continue;
      worker_->count_socket(-1);
      abandon(*socket);
      if (socket->sends.empty() || socket->connecting)
        worker_->bury(std::move(socket));
      else
        worker_->linger(std::move(socket));
    }
  room_waiters_.clear();
  count_ = 0;
}

// What the kernel would still send goes on; memory of a program that has gone is not looked for.
void Line::abandon(ServedSocket& socket) {
  socket.line = nullptr;
  socket.closing = true;
  socket.receives.clear();
  for (auto one = socket.sends.begin(); one != socket.sends.end(); ++one) {
    if (one->kind != SendOperation::Kind::memory || one->mapped != nullptr || one->left == 0) continue;
    socket.sends.erase(one, socket.sends.end());  // and nothing may be sent with a hole in it
    break;
  }
}

void Line::close(ServedSocket& socket) {
  const std::uint32_t number = socket.number;
  const bool accepted = (number & kAcceptedBit) != 0;
  for (const ReceiveOperation& one : socket.receives) done(one.job, -ECANCELED);
  socket.receives.clear();
  if (socket.connecting) reply(socket.connect_request, ECANCELED);
  std::erase(room_waiters_, &socket);
  socket.waits_for_room = false;
  auto& owner = (accepted ? accepted_ : own_)[index_of(number)];
  std::unique_ptr<ServedSocket> gone = std::move(owner);
  --count_;
  worker_->count_socket(-1);
  if (accepted)
    free_accepted_.push_back(number);
  else
    tell(Tell::closed, number);
  linger option{};
  socklen_t size = sizeof option;
  const bool abort = ::getsockopt(gone->fd.get(), SOL_SOCKET, SO_LINGER, &option, &size) == 0 && option.l_onoff != 0 &&
                     option.l_linger == 0;
  gone->closing = true;
  if (!gone->sends.empty() && !abort && !gone->connecting) return worker_->linger(std::move(gone));
  drop_sends(*gone, ECANCELED);
  worker_->bury(std::move(gone));
}

}  // namespace viaduct::memnet
