// A socket's life: made, bound, connected or listening, closed.
#include <algorithm>

#include "memnet/client/call.hpp"

using namespace viaduct;
using namespace viaduct::memnet;

int memnet_open(const char* server) {
  return open_process_client(server) ? 0 : -1;
}

int memnet_shut(void) {
  return shut_process_client();
}

int memnet_socket(int family, int type, int protocol) {
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (family != AF_INET && family != AF_INET6) return fail(EAFNOSUPPORT);
  if (kind != SOCK_STREAM) return fail(ESOCKTNOSUPPORT);
  Client* const client = process_client();
  if (client == nullptr) return -1;
  if (const int error = client->ensure_line(); error != 0) return fail(error);
  auto socket = std::make_shared<ClientSocket>();
  socket->family = family;
  socket->nonblocking = (type & SOCK_NONBLOCK) != 0;
  int descriptor;
  {
    const std::lock_guard held(client->lock);
    ClientLine* const line = client->line_for_new_socket();
    if (line == nullptr) return fail(ECONNREFUSED);
    (void)line->add(socket);
    descriptor = client->give_descriptor(socket);
    if (descriptor < 0) {
      line->forget(*socket);
      return fail(EMFILE);
    }
  }
  SocketCall call(descriptor);
  const int error = call.ask(Ask::make, MakeWords{0, family, SOCK_STREAM, protocol});
  if (error == 0) return descriptor;
  // The server has none with this number: it is free at once.
  if (socket->line != nullptr) socket->line->take_back(*socket);
  client->take_descriptor(*socket);
  return fail(error);
}

int memnet_bind(int descriptor, const sockaddr* address, socklen_t length) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if (address == nullptr) return fail(EFAULT);
  if (length > sizeof(WireAddress::bytes)) return fail(EINVAL);
  const int error = call.ask(Ask::bind, AddressWords{0, WireAddress::of(address, length)});
  return error == 0 ? 0 : fail(error);
}

int memnet_listen(int descriptor, int backlog) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if (const int error = call.ask(Ask::listen, ListenWords{0, backlog}); error != 0) return fail(error);
  ClientSocket& socket = call.socket();
  if (socket.listening || socket.line == nullptr) return 0;
  socket.listening = true;
  socket.accepts_granted = static_cast<std::uint32_t>(std::clamp(backlog, 1, 256));
  socket.line->post_words(Ask::may_accept, socket.number, CountWords{socket.accepts_granted});
  return 0;
}

int memnet_accept(int descriptor, sockaddr* address, socklen_t* length) {
  return memnet_accept4(descriptor, address, length, 0);
}

int memnet_accept4(int descriptor, sockaddr* address, socklen_t* length, int flags) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) return fail(EINVAL);
  ClientSocket& listener = call.socket();
  if (!listener.listening) return fail(listener.failed ? ECONNRESET : EINVAL);
  if (listener.backlog.empty()) {
    call.unlock();
    call.client().poll();
    call.lock();
  }
  while (listener.backlog.empty()) {
    if (!call.still_open()) return fail(EBADF);
    if (listener.failed) return fail(ECONNRESET);
    if (listener.nonblocking) return fail(EAGAIN);
    switch (call.wait(call.receive_deadline(),
                      [&] { return !listener.backlog.empty() || listener.failed || listener.descriptor < 0; })) {
      case Client::Waited::timeout:
        return fail(EAGAIN);
      case Client::Waited::interrupted:
        return fail(EINTR);
      case Client::Waited::ready:
        break;
    }
  }
  const ClientSocket::Arrived arrived = std::move(listener.backlog.front());
  listener.backlog.pop_front();
  Client::grant_accepts(listener, 1);
  const int made = call.client().give_descriptor(arrived.socket);
  if (made < 0) return fail(EMFILE);
  arrived.socket->nonblocking = (flags & SOCK_NONBLOCK) != 0;
  if (const int error = give_address(arrived.peer, address, length); error != 0) return fail(error);
  return made;
}

int memnet_connect(int descriptor, const sockaddr* address, socklen_t length) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if (address == nullptr) return fail(EFAULT);
  if (length > sizeof(WireAddress::bytes)) return fail(EINVAL);
  ClientSocket& socket = call.socket();
  if (socket.line == nullptr) return fail(ECONNRESET);
  if (socket.listening || socket.connected) return fail(EISCONN);
  if (socket.connecting) return fail(EALREADY);
  if (socket.error != 0) return fail(std::exchange(socket.error, 0));  // of the attempt before
  socket.connecting = true;
  socket.connect_request = socket.line->new_request();
  socket.line->post_words(Ask::connect, socket.number,
                          AddressWords{socket.connect_request, WireAddress::of(address, length)});
  const auto settled = [&] { return !socket.connecting || socket.failed || socket.descriptor < 0; };
  if (socket.nonblocking) {
    // What is wrong with the address itself the kernel says at once; so do we, after a short while.
    constexpr std::uint64_t kAnswerNs = 2'000'000;
    const bool known = call.wait(Deadline::after_ns(Clock::steady(), kAnswerNs), settled) == Client::Waited::ready;
    if (!known) return fail(EINPROGRESS);
    if (socket.failed) return fail(std::exchange(socket.error, 0));
    if (socket.error == 0 || socket.error == ECONNREFUSED || socket.error == EHOSTUNREACH) return fail(EINPROGRESS);
    return fail(std::exchange(socket.error, 0));
  }
  switch (call.wait(call.send_deadline(), settled)) {
    case Client::Waited::timeout:
      return fail(EINPROGRESS);
    case Client::Waited::interrupted:
      return fail(EINTR);
    case Client::Waited::ready:
      break;
  }
  if (socket.descriptor < 0) return fail(EBADF);
  return socket.error == 0 ? 0 : fail(std::exchange(socket.error, 0));
}

int memnet_shutdown(int descriptor, int how) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail(EINVAL);
  if (!call.socket().connected && !call.socket().connecting && !call.socket().listening) return fail(ENOTCONN);
  const int error = call.ask(Ask::shut_down, ShutdownWords{0, how});
  if (error != 0) return fail(error);
  ClientSocket& socket = call.socket();
  if (how != SHUT_RD) socket.output_over = true;
  if (socket.listening && how != SHUT_WR) socket.failed = true;
  return 0;
}

int memnet_close(int descriptor) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  ClientSocket& socket = call.socket();
  Client& client = call.client();
  client.take_descriptor(socket);
  Effects effects;
  effects.news = true;  // whoever waits on it finds it closed
  for (Job* const job : std::exchange(socket.held, {})) client.end_job(*job, -1, ECANCELED, effects);
  for (Job* const job : std::exchange(socket.accepts, {})) client.end_job(*job, -1, ECANCELED, effects);
  if (ClientLine* const line = socket.line; line != nullptr) {
    for (const auto& arrived : socket.backlog) {
      if (arrived.socket->line == nullptr) continue;
      line->post(Ask::close, arrived.socket->number);
      line->forget(*arrived.socket);
    }
    line->post(Ask::close, socket.number);
    line->forget(socket);
  }
  socket.backlog.clear();
  call.unlock();
  client.deliver(effects);
  return 0;
}

int memnet_getsockname(int descriptor, sockaddr* address, socklen_t* length) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  std::vector<std::byte> value;
  WireAddress wire;
  if (const int error = call.ask(Ask::name, NameWords{0, 0}, &value); error != 0) return fail(error);
  if (!read_words(value, wire) || !wire.sane()) return fail(EPROTO);
  if (address == nullptr) return fail(EFAULT);
  const int error = give_address(wire, address, length);
  return error == 0 ? 0 : fail(error);
}

int memnet_getpeername(int descriptor, sockaddr* address, socklen_t* length) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if (address == nullptr) return fail(EFAULT);
  std::vector<std::byte> value;
  WireAddress wire;
  if (const int error = call.ask(Ask::name, NameWords{0, 1}, &value); error != 0) return fail(error);
  if (!read_words(value, wire) || !wire.sane()) return fail(EPROTO);
  const int error = give_address(wire, address, length);
  return error == 0 ? 0 : fail(error);
}

int memnet_set_nonblocking(int descriptor, int on) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  call.socket().nonblocking = on != 0;
  return 0;
}

// ---- options

namespace {

std::int64_t timeout_of(const void* value) {
  timeval time;
  std::memcpy(&time, value, sizeof time);
  if (time.tv_sec == 0 && time.tv_usec == 0) return -1;
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_usec * 1000;
}

}  // namespace

int memnet_getsockopt(int descriptor, int level, int name, void* value, socklen_t* length) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if (length == nullptr || value == nullptr) return fail(EFAULT);
  if (static_cast<int>(*length) < 0) return fail(EINVAL);
  ClientSocket& socket = call.socket();
  const auto give = [&](int number) {
    std::memcpy(value, &number, std::min<std::size_t>(*length, sizeof number));
    *length = std::min<socklen_t>(*length, sizeof number);
    return 0;
  };
  if (level == SOL_MEMNET) return name == MEMNET_PUSH ? give(socket.push && !socket.quieting) : fail(ENOPROTOOPT);
  if (level == SOL_SOCKET && name == SO_ERROR) {
    call.unlock();
    call.client().poll();
    call.lock();
    return give(std::exchange(socket.error, 0));
  }
  std::vector<std::byte> answer;
  const OptionWords words{0, level, name, static_cast<std::uint32_t>(std::min<socklen_t>(*length, kMostOption))};
  if (const int error = call.ask(Ask::get_option, words, &answer); error != 0) return fail(error);
  std::memcpy(value, answer.data(), std::min<std::size_t>(*length, answer.size()));
  *length = std::min<socklen_t>(*length, static_cast<socklen_t>(answer.size()));
  return 0;
}

int memnet_setsockopt(int descriptor, int level, int name, const void* value, socklen_t length) {
  SocketCall call(descriptor);
  if (!call) return fail(EBADF);
  if (value == nullptr) return fail(EFAULT);
  if (length > kMostOption) return fail(EINVAL);
  ClientSocket& socket = call.socket();
  if (level == SOL_MEMNET) {
    int on = 0;
    if (name != MEMNET_PUSH) return fail(ENOPROTOOPT);
    if (length < sizeof on) return fail(EINVAL);
    std::memcpy(&on, value, sizeof on);
    if (socket.line == nullptr) return fail(ECONNRESET);
    const bool pushes = socket.push && !socket.quieting;
    if (pushes && on == 0) Client::quiet(socket);
    if (!pushes && on != 0) Client::push(socket);
    return 0;
  }
  const OptionWords words{0, level, name, length};
  const std::span bytes(static_cast<const std::byte*>(value), length);
  if (const int error = call.ask(Ask::set_option, words, nullptr, bytes); error != 0) return fail(error);
  if (level == SOL_SOCKET && name == SO_RCVTIMEO && length >= sizeof(timeval))
    socket.receive_timeout_ns = timeout_of(value);
  if (level == SOL_SOCKET && name == SO_SNDTIMEO && length >= sizeof(timeval))
    socket.send_timeout_ns = timeout_of(value);
  return 0;
}
