// What the server's words mean for sockets and jobs.
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "memnet/client/client.hpp"

namespace viaduct::memnet {

void Client::changed(ClientSocket& socket, Effects& effects) {
  effects.news = true;
  if (!socket.watched || socket.in_events || socket.descriptor < 0) return;
  socket.in_events = true;
  events_.push_back(sockets_[static_cast<std::size_t>(socket.descriptor)]);
}

// As poll() tells of a kernel's TCP socket.
short Client::ready_events(ClientSocket& socket) const {
  int events = 0;
  if (socket.listening) return socket.backlog.empty() ? 0 : POLLIN | POLLRDNORM;
  const bool unconnected = !socket.connected && !socket.connecting && !socket.failed;
  if (unconnected)
    return POLLOUT | POLLWRNORM | POLLHUP | (socket.error != 0 ? POLLERR | POLLIN | POLLRDNORM | POLLRDHUP : 0);
  if (socket.connecting) return 0;
  if (socket.stashed() > 0 || socket.input_over || socket.failed || socket.readable_hint) events |= POLLIN | POLLRDNORM;
  if (socket.input_over || socket.failed) events |= POLLRDHUP;
  const bool room =
      socket.outstanding <= kSendWindow - kCreditStep && (socket.line == nullptr || socket.line->has_room());
  if (socket.output_over || socket.failed || room) events |= POLLOUT | POLLWRNORM;
  if (socket.failed || (socket.input_over && socket.output_over)) events |= POLLHUP;
  if (socket.error != 0) events |= POLLERR;
  return static_cast<short>(events);
}

void Client::told_failed(ClientSocket& socket, int error, Effects& effects) {
  if (!socket.failed) socket.error = error;
  socket.failed = true;
  socket.output_over = true;
  press_receives(socket, effects);
  press_accepts(socket, effects);
  changed(socket, effects);
}

// ---- jobs

void Client::end_job(Job& job, std::int64_t bytes, int error, Effects& effects) {
  job.bytes = bytes;
  job.error = error;
  for (const std::uint32_t place : job.memories) --memory_at(place).users;
  job.memories.clear();
  if (job.memory != 0) --memory_at(job.memory).users;
  job.memory = 0;
  effects.news = true;
  jobs_.ended(job);
  if (job.notify != nullptr) effects.notify.emplace_back(job.notify, job.notify_argument);
}

void Client::part_ended(Job& job, std::int32_t result, Effects& effects) {
  if (job.parts == 0) return;  // the server says so, and is not believed
  ClientSocket& socket = *job.socket;
  if (job.kind == Job::Kind::receive) {
    if (socket.posted > 0) --socket.posted;
    if (result == 0 && job.length > 0) socket.input_over = true;
    changed(socket, effects);
  }
  if (result < 0 && job.error == 0) job.error = -result;
  if (result > 0) job.bytes += result;
  if (--job.parts > 0) return;
  if (job.kind == Job::Kind::send && socket.send_jobs > 0) {
    --socket.send_jobs;
    changed(socket, effects);
  }
  const bool nothing = job.error != 0 && job.bytes == 0;
  end_job(job, nothing ? -1 : job.bytes, nothing ? job.error : 0, effects);
}

// ---- bytes that were pushed

std::size_t Client::take_from_stash(ClientSocket& socket, std::span<const iovec> pieces, bool peek) {
  std::size_t at = socket.stash_at;
  for (const iovec& piece : pieces) {
    const std::size_t part = std::min(piece.iov_len, socket.stash.size() - at);
    if (part > 0) std::memcpy(piece.iov_base, socket.stash.data() + at, part);
    at += part;
  }
  const std::size_t taken = at - socket.stash_at;
  if (peek || taken == 0) return taken;
  socket.stash_at = at;
  if (at == socket.stash.size()) {
    socket.stash_at = 0;
    if (socket.stash.capacity() > 8192)
      std::vector<std::byte>().swap(socket.stash);  // an idle socket holds little
    else
      socket.stash.clear();
  } else if (at > kReceiveWindow) {
    socket.stash.erase(socket.stash.begin(), socket.stash.begin() + static_cast<std::ptrdiff_t>(at));
    socket.stash_at = 0;
  }
  socket.untold += static_cast<std::uint32_t>(taken);
  if (socket.untold >= kWindowStep && socket.line != nullptr && !socket.input_over)
    socket.line->post_words(Ask::window, socket.number, CountWords{std::exchange(socket.untold, 0)});
  return taken;
}

void Client::quiet(ClientSocket& socket) {
  socket.quieting = true;
  ++socket.quiets;
  socket.line->post_words(Ask::mode, socket.number, ModeWords{0});
}

void Client::push(ClientSocket& socket) {
  socket.push = true;
  socket.quieting = false;
  socket.line->post_words(Ask::mode, socket.number, ModeWords{1});
}

// Receives that are held here: bytes that were pushed come first, then the server is asked, once it pushes no more.
void Client::press_receives(ClientSocket& socket, Effects& effects) {
  while (!socket.held.empty()) {
    Job& job = *socket.held.front();
    Memory& memory = memory_at(job.memory);
    if (socket.posted == 0 && socket.stashed() > 0) {
      const iovec piece{memory.address + job.offset, job.length};
      const std::size_t taken = take_from_stash(socket, {&piece, 1}, false);
      job.bytes += static_cast<std::int64_t>(taken);
      job.offset += taken;
      job.length -= taken;
      if ((job.flags & MSG_WAITALL) != 0 && job.length > 0) continue;
      socket.held.pop_front();
      end_job(job, job.bytes, 0, effects);
      continue;
    }
    if (socket.failed || socket.line == nullptr || (socket.input_over && socket.push)) {
      socket.held.pop_front();
      const int error = job.bytes > 0 || socket.error == 0 ? 0 : std::exchange(socket.error, 0);
      end_job(job, error != 0 ? -1 : job.bytes, error, effects);
      continue;
    }
    if (socket.push) {
      if (!socket.quieting) quiet(socket);
      return;
    }
    socket.held.pop_front();
    ++socket.posted;
    job.parts = 1;
    socket.readable_hint = false;
    const JobWords words{job.number, memory.key, reinterpret_cast<std::uint64_t>(memory.address) + job.offset,
                         static_cast<std::uint32_t>(job.length), job.flags};
    socket.line->post_words(Ask::receive_memory, socket.number, words);
  }
}

void Client::press_accepts(ClientSocket& socket, Effects& effects) {
  while (!socket.accepts.empty() && (!socket.backlog.empty() || socket.failed)) {
    Job& job = *socket.accepts.front();
    socket.accepts.pop_front();
    if (socket.backlog.empty()) {
      end_job(job, -1, ECONNRESET, effects);
      continue;
    }
    const std::shared_ptr<ClientSocket> made = socket.backlog.front().socket;
    socket.backlog.pop_front();
    end_job(job, give_descriptor(made), 0, effects);
    grant_accepts(socket, 1);
  }
}

// In steps, so that a busy listener tells seldom.
void Client::grant_accepts(ClientSocket& listener, std::uint32_t more) {
  listener.accepts_untold += more;
  if (listener.line == nullptr || listener.accepts_untold < std::max(1u, listener.accepts_granted / 4)) return;
  listener.line->post_words(Ask::may_accept, listener.number, CountWords{std::exchange(listener.accepts_untold, 0)});
}

}  // namespace viaduct::memnet
