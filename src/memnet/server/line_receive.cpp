// From the network to the client. What comes is pushed within the socket's window, or goes straight into memory that
// was posted for it; what neither has room for stays with the kernel, which holds the sender back.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "memnet/server/line.hpp"
#include "memnet/server/worker.hpp"

namespace viaduct::memnet {

namespace {

constexpr std::uint32_t kStreamEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr std::size_t kMostInOneGo = 1 << 20;  // of one socket, before others have their turn

}  // namespace

// ---- connections that come

void Line::accept_more(ServedSocket& listener) {
  while (listener.readable && listener.may_accept > 0 && !worker_->stopping()) {
    if (!worker_->has_room_for_socket()) return worker_->wait_for_descriptors(listener);
    if (channel_->credits(sizeof(AcceptedWords)) < 2 || !outbox_.empty()) return wait_for_room(&listener);
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const from = reinterpret_cast<sockaddr*>(&address);
    Fd fd(::accept4(listener.fd.get(), from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EAGAIN) return void(listener.readable = false);
      // The table is full, of this process or of the machine: tried again when a socket has gone.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        return worker_->wait_for_descriptors(listener);
      continue;  // it came and has gone
    }
    std::uint32_t number;
    if (!free_accepted_.empty()) {
      number = free_accepted_.back();
      free_accepted_.pop_back();
    } else if (accepted_.size() < kMostSockets) {
      number = kAcceptedBit | static_cast<std::uint32_t>(accepted_.size());
      accepted_.emplace_back();
    } else {
      return;
    }
    auto& socket = accepted_[number & ~kAcceptedBit];
    socket = std::make_unique<ServedSocket>(*this, number, std::move(fd));
    socket->family = listener.family;
    socket->push = listener.push;
    socket->readable = socket->writable = true;
    ++count_;
    worker_->count_socket(1);
    worker_->counts().accepted.add();
    --listener.may_accept;
    tell_words(Tell::accepted, listener.number, AcceptedWords{number, WireAddress::of(from, length)});
    (void)add_to_epoll(*socket, kStreamEvents);
    pump_receives(*socket);
  }
}

// ---- pushing

Line::Received Line::push_data(ServedSocket& socket) {
  const std::size_t most =
      std::min({std::size_t{socket.window}, channel_->largest_fragment(), worker_->buffer().size()});
  if (!outbox_.empty() || channel_->credits(most) == 0) {
    wait_for_room(&socket);
    return Received::over;
  }
  const ssize_t got = ::recv(socket.fd.get(), worker_->buffer().data(), most, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return Received::nothing;
  if (got < 0 && errno == ENOTCONN) return Received::nothing;
  if (got < 0) {
    socket.input_over = true;
    fail(socket, errno);
    return Received::over;
  }
  if (got == 0) {
    socket.input_over = true;
    tell(Tell::end, socket.number);
    return Received::over;
  }
  socket.window -= static_cast<std::uint32_t>(got);
  worker_->counts().bytes_in.add(static_cast<std::size_t>(got));
  tell(Tell::data, socket.number, worker_->buffer().first(static_cast<std::size_t>(got)));
  // Less than asked for: that was all, and what comes now is told by the kernel. But not an end that it has told.
  return static_cast<std::size_t>(got) < most && !socket.hung_up ? Received::nothing : Received::some;
}

void Line::set_mode(ServedSocket& socket, bool push) {
  socket.push = push;
  socket.told_readable = false;
  if (!push) tell(Tell::quiet, socket.number);
  if (!socket.listening) pump_receives(socket);
}

// ---- into memory that was posted

void Line::receive_memory(ServedSocket& socket, const JobWords& words) {
  if (words.length > kMostTransfer || socket.receives.size() >= kMostJobs)
    return break_off("receive: too much under way");
  ReceiveOperation made;
  made.job = words.job;
  made.flags = words.flags & MSG_WAITALL;
  made.key = words.key;
  made.address = words.address;
  made.length = words.length;
  const via::RemoteBytes there{words.key, words.address, words.length};
  if (shared_ != nullptr && words.length > 0) made.mapped = shared_->map(there, via::kRdmaWrite, made.held);
  socket.receives.push_back(std::move(made));
  socket.told_readable = false;
  if (socket.receives.size() == 1) pump_receives(socket);
}

bool Line::put(ReceiveOperation& operation, std::vector<std::byte> bytes) {
  const iovec from{bytes.data(), bytes.size()};
  const std::uint64_t cookie = next_cookie_++;
  const auto began = reach_->put({&from, 1}, {operation.key, operation.address, bytes.size()}, cookie);
  if (began == via::Reach::Began::under_way) putting_[cookie] = std::move(bytes);
  if (began != via::Reach::Began::done && began != via::Reach::Began::under_way) return false;
  operation.address += from.iov_len;
  return true;
}

Line::Received Line::receive_into(ServedSocket& socket, ReceiveOperation& operation) {
  const std::size_t left = operation.length - operation.received;
  std::vector<std::byte> bounce;
  std::byte* into = operation.mapped;
  std::size_t most = left;
  if (into == nullptr && left > 0) {
    if (putting_.size() >= 1024) {  // as many as may be under way; again when some have ended
      wait_for_room(&socket);
      return Received::over;
    }
    most = std::min(left, worker_->buffer().size());
    into = worker_->buffer().data();
  }
  ssize_t got = 0;
  if (left > 0 && !socket.input_over) {
    got = ::recv(socket.fd.get(), into, most, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return Received::nothing;
    if (got < 0) {
      const int error = errno;
      const std::uint32_t job = operation.job;
      const std::uint32_t received = operation.received;
      socket.receives.pop_front();
      done(job, received > 0 ? static_cast<std::int64_t>(received) : -error);
      return Received::some;
    }
  }
  const auto bytes = static_cast<std::size_t>(got);
  if (bytes > 0 && operation.mapped == nullptr) {
    bounce.assign(into, into + bytes);
    if (!put(operation, std::move(bounce))) {
      const std::uint32_t job = operation.job;
      socket.receives.pop_front();
      done(job, -EFAULT);
      fail(socket, EFAULT);  // what was taken from the stream is lost
      return Received::some;
    }
  }
  worker_->counts().bytes_in.add(bytes);
  if (operation.mapped != nullptr) operation.mapped += bytes;
  operation.received += static_cast<std::uint32_t>(bytes);
  const bool whole = operation.received == operation.length;
  if ((operation.flags & MSG_WAITALL) != 0 && !whole && bytes > 0) return Received::some;
  const std::uint32_t job = operation.job;
  const std::uint32_t received = operation.received;
  socket.receives.pop_front();
  done(job, received);
  return bytes > 0 && bytes < most && !socket.hung_up ? Received::nothing : Received::some;
}

void Line::pump_receives(ServedSocket& socket) {
  std::size_t in_one_go = 0;
  while (socket.readable && !socket.connecting && !socket.listening) {
    if (!socket.receives.empty()) {
      const std::size_t length = socket.receives.front().length;
      const Received received = receive_into(socket, socket.receives.front());
      if (received == Received::nothing) socket.readable = false;
      if (received == Received::over) return;
      in_one_go += length;
    } else if (socket.input_over) {
      return;
    } else if (socket.push && socket.window > 0) {
      const Received received = push_data(socket);
      if (received == Received::nothing) socket.readable = false;
      if (received == Received::over) return;
    } else {
      if (!socket.push && !std::exchange(socket.told_readable, true)) tell(Tell::readable, socket.number);
      return;
    }
    if (in_one_go >= kMostInOneGo) return worker_->look_again(socket);
  }
}

}  // namespace viaduct::memnet
