// A line, as the client sees it: messages to the server, numbers of sockets, and room.
#include <algorithm>

#include "base/fence.hpp"
#include "memnet/client/client.hpp"

namespace viaduct::memnet {

namespace {

std::size_t index_of(std::uint32_t number) {
  return number & ~kAcceptedBit;
}

std::uint32_t* room_word(via::Channel& channel, via::SharedEnd::Whose whose) {
  via::SharedEnd* const shared = channel.shared();
  return shared == nullptr ? nullptr : reinterpret_cast<std::uint32_t*>(shared->words(whose));
}

}  // namespace

// ---- out

void ClientLine::post(Ask ask, std::uint32_t socket, std::span<const std::byte> first,
                      std::span<const std::byte> second) {
  if (over_) return;
  const auto piece = [](std::span<const std::byte> bytes) {
    return iovec{const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  const iovec pieces[2] = {piece(first), piece(second)};
  if (outbox_.empty() &&
      channel_->try_send(std::span(pieces, second.empty() ? 1 : 2), immediate_of(ask, socket)) != via::Sent::full)
    return;
  Message message{immediate_of(ask, socket), {first.begin(), first.end()}};
  message.bytes.insert(message.bytes.end(), second.begin(), second.end());
  outbox_.push_back(std::move(message));
  want_room();
  flush();
}

bool ClientLine::try_send(Ask ask, std::uint32_t socket, std::span<const iovec> pieces) {
  if (over_) return true;
  if (!outbox_.empty()) return false;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (channel_->try_send(pieces, immediate_of(ask, socket)) != via::Sent::full) return true;
    if (attempt == 0) want_room();
  }
  return false;
}

bool ClientLine::has_room() {
  if (over_) return true;
  if (!outbox_.empty()) return false;
  if (channel_->credits(channel_->largest_fragment()) > 0) return true;
  want_room();
  return channel_->credits(channel_->largest_fragment()) > 0;
}

void ClientLine::flush() {
  while (!over_ && !outbox_.empty()) {
    const Message& message = outbox_.front();
    const iovec piece{const_cast<std::byte*>(message.bytes.data()), message.bytes.size()};
    if (channel_->try_send({&piece, 1}, message.immediate) == via::Sent::full) return;
    outbox_.pop_front();
  }
}

// The word, then the look for room that follows.
void ClientLine::want_room() {
  if (std::uint32_t* const word = room_word(*channel_, via::SharedEnd::Whose::ours))
    std::atomic_ref(*word).store(1, std::memory_order_seq_cst);
}

void ClientLine::tell_room() {
  std::uint32_t* const word = room_word(*channel_, via::SharedEnd::Whose::theirs);
  if (word == nullptr) return;
  fence::full();  // room was made, then the word is read: pairs with who writes it and then looks for room
  if (std::atomic_ref(*word).load(std::memory_order_relaxed) == 0) return;
  std::atomic_ref(*word).store(0, std::memory_order_relaxed);
  // Where this does not fit the server has something to serve, and looks for room when it has done so.
  (void)channel_->try_send({}, immediate_of(Ask::room, 0));
}

// ---- numbers

std::uint32_t ClientLine::add(std::shared_ptr<ClientSocket> socket) {
  std::uint32_t number;
  if (free_.empty()) {
    number = static_cast<std::uint32_t>(own_.size());
    own_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  socket->line = this;
  socket->number = number;
  own_[number] = std::move(socket);
  ++sockets_;
  return number;
}

void ClientLine::forget(ClientSocket& socket) {
  auto& table = (socket.number & kAcceptedBit) != 0 ? accepted_ : own_;
  const std::size_t index = index_of(socket.number);
  socket.line = nullptr;
  if (index >= table.size() || table[index].get() != &socket) return;
  table[index].reset();
  --sockets_;
}

void ClientLine::take_back(ClientSocket& socket) {
  const std::uint32_t number = socket.number;
  forget(socket);
  free_.push_back(number);
}

std::shared_ptr<ClientSocket> ClientLine::find(std::uint32_t number) const {
  const auto& table = (number & kAcceptedBit) != 0 ? accepted_ : own_;
  const std::size_t index = index_of(number);
  return index < table.size() ? table[index] : nullptr;
}

// ---- in

void ClientLine::receive(Effects& effects) {
  via::Fragment fragment;
  while (!over_) {
    switch (channel_->peek(fragment)) {
      case via::Got::fragment:
        handle(fragment.immediate, fragment.bytes, effects);
        channel_->consume();
        continue;
      case via::Got::end:
        return died(effects);
      case via::Got::nothing:
        break;
    }
    tell_room();
    if (!outbox_.empty()) flush();
    if (far_) effects.news = true;  // perhaps there is room
    return;
  }
}

void ClientLine::handle(std::uint32_t immediate, std::span<const std::byte> bytes, Effects& effects) {
  const auto what = static_cast<Tell>(kind_of(immediate));
  const std::uint32_t number = socket_of(immediate);
  switch (what) {
    case Tell::done:
      for (DoneWords words; read_words(bytes, words); bytes = bytes.subspan(sizeof words))
        if (Job* const job = client_.jobs().find(words.job); job != nullptr && job->state == Job::State::pending)
          client_.part_ended(*job, words.result, effects);
      return;
    case Tell::reply: {
      ReplyWords words;
      if (read_words(bytes, words)) replied(words, bytes.subspan(sizeof words), effects);
      return;
    }
    case Tell::room:
      flush();
      effects.news = true;
      return;
    case Tell::closed:
      if (number < own_.size() && own_[number] == nullptr) free_.push_back(number);
      return;
    default:
      break;
  }
  const std::shared_ptr<ClientSocket> socket = find(number);
  if (socket == nullptr) return;  // closed meanwhile
  switch (what) {
    case Tell::data:
      socket->stash.insert(socket->stash.end(), bytes.begin(), bytes.end());
      client_.press_receives(*socket, effects);
      return client_.changed(*socket, effects);
    case Tell::end:
      socket->input_over = true;
      client_.press_receives(*socket, effects);
      return client_.changed(*socket, effects);
    case Tell::failed: {
      FailedWords words;
      if (read_words(bytes, words)) client_.told_failed(*socket, words.error, effects);
      return;
    }
    case Tell::credit: {
      CountWords words;
      if (!read_words(bytes, words)) return;
      socket->outstanding -= std::min(words.count, socket->outstanding);
      return client_.changed(*socket, effects);
    }
    case Tell::accepted: {
      AcceptedWords words;
      if (read_words(bytes, words)) accepted(*socket, words, effects);
      return;
    }
    case Tell::readable:
      socket->readable_hint = true;
      return client_.changed(*socket, effects);
    case Tell::quiet:
      if (socket->quiets > 0) --socket->quiets;
      if (!socket->quieting || socket->quiets > 0) return;  // asked to push again meanwhile
      socket->push = socket->quieting = false;
      client_.press_receives(*socket, effects);
      return client_.changed(*socket, effects);
    default:
      return;
  }
}

void ClientLine::replied(const ReplyWords& words, std::span<const std::byte> value, Effects& effects) {
  const auto found = calls_.find(words.request);
  if (found != calls_.end()) {
    Call& call = *found->second;
    call.error = words.error;
    call.value.assign(value.begin(), value.end());
    call.ended = true;
    calls_.erase(found);
    effects.news = true;
    return;
  }
  // Of a connection that is being made.
  for (const auto& socket : own_) {
    if (socket == nullptr || !socket->connecting || socket->connect_request != words.request) continue;
    socket->connecting = false;
    socket->connected = words.error == 0;
    socket->error = words.error;
    return client_.changed(*socket, effects);
  }
}

void ClientLine::accepted(ClientSocket& listener, const AcceptedWords& words, Effects& effects) {
  const std::size_t index = index_of(words.socket);
  if ((words.socket & kAcceptedBit) == 0 || index > accepted_.size()) return;
  if (index == accepted_.size()) accepted_.emplace_back();
  auto socket = std::make_shared<ClientSocket>();
  socket->line = this;
  socket->number = words.socket;
  socket->family = listener.family;
  socket->connected = true;
  socket->push = listener.push;
  socket->peer = words.peer;
  if (!words.peer.sane()) socket->peer = {};
  accepted_[index] = socket;
  ++sockets_;
  listener.backlog.push_back({std::move(socket), words.peer});
  client_.press_accepts(listener, effects);
  client_.changed(listener, effects);
}

// The server has gone, or has let us go: every socket is reset, every job and call has an end.
void ClientLine::died(Effects& effects) {
  over_ = true;
  for (auto& [request, call] : calls_) {
    call->error = ECONNRESET;
    call->ended = true;
  }
  calls_.clear();
  outbox_.clear();
  std::vector<Job*> lost;
  client_.jobs().for_each_pending([&](Job& job) {
    if (job.line == this) lost.push_back(&job);
  });
  for (auto* const table : {&own_, &accepted_}) {
    for (auto& socket : *table) {
      if (socket == nullptr) continue;
      socket->held.clear();
      socket->accepts.clear();
      client_.told_failed(*socket, ECONNRESET, effects);
      socket->connecting = false;
      socket->line = nullptr;
    }
    table->clear();
  }
  for (Job* const job : lost) client_.end_job(*job, -1, ECONNRESET, effects);
  sockets_ = 0;
  effects.news = true;
  client_.ready_->remove(*channel_);
  reach_.reset();
  channel_.reset();
}

}  // namespace viaduct::memnet
