// What the functions of memnet.h share: finding a socket, asking the server, saying what went wrong.
#pragma once

#include <cerrno>
#include <mutex>

#include "memnet/client/client.hpp"

namespace viaduct::memnet {

inline int fail(int error) {
  errno = error;
  return -1;
}

// A call on a socket, with the client's lock held.
class SocketCall {
 public:
  explicit SocketCall(int descriptor) : client_(process_client_if_any()) {
    if (client_ == nullptr) return;
    client_->lock.lock();
    locked_ = true;
    socket_ = client_->find(descriptor);
    if (socket_ == nullptr) unlock();
  }
  ~SocketCall() { unlock(); }
  SocketCall(const SocketCall&) = delete;
  SocketCall& operator=(const SocketCall&) = delete;

  explicit operator bool() const { return socket_ != nullptr; }  // else EBADF
  Client& client() { return *client_; }
  ClientSocket& socket() { return *socket_; }
  const std::shared_ptr<ClientSocket>& shared() { return socket_; }
  bool still_open() const { return socket_->descriptor >= 0; }

  void lock() {
    if (!locked_) client_->lock.lock();
    locked_ = true;
  }
  void unlock() {
    if (locked_) client_->lock.unlock();
    locked_ = false;
  }

  // Without the lock until `ready`, which is asked with it; then with it again.
  template <class Ready>
  Client::Waited wait(Deadline deadline, Ready ready) {
    unlock();
    const Client::Waited waited = client_->wait(deadline, ready);
    lock();
    return waited;
  }

  // Asks the server and waits for its answer; errno. `words.request` is filled in.
  template <class Words>
  int ask(Ask what, Words words, std::vector<std::byte>* value = nullptr, std::span<const std::byte> more = {}) {
    ClientLine* const line = socket_->line;
    if (line == nullptr || line->over()) return ECONNRESET;
    ClientLine::Call call;
    words.request = line->begin(call);
    line->post(what, socket_->number, std::as_bytes(std::span(&words, 1)), more);
    while (wait(Deadline::never(), [&] { return call.ended; }) != Client::Waited::ready) continue;  // soon, or it dies
    if (value != nullptr) *value = std::move(call.value);
    return call.error;
  }

  Deadline receive_deadline() const { return deadline(socket_->receive_timeout_ns); }
  Deadline send_deadline() const { return deadline(socket_->send_timeout_ns); }

 private:
  static Deadline deadline(std::int64_t ns) {
    return ns < 0 ? Deadline::never() : Deadline::after_ns(Clock::steady(), static_cast<std::uint64_t>(ns));
  }

  Client* const client_;
  bool locked_ = false;
  std::shared_ptr<ClientSocket> socket_;
};

inline Deadline deadline_of(int timeout_ms) {
  if (timeout_ms < 0) return Deadline::never();
  return Deadline::after_ns(Clock::steady(), static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
}

// As accept and getsockname give addresses back.
inline int give_address(const WireAddress& from, sockaddr* to, socklen_t* length) {
  if (to == nullptr) return 0;
  if (length == nullptr) return EFAULT;
  if (static_cast<int>(*length) < 0) return EINVAL;
  if (from.sane()) std::memcpy(to, from.bytes, std::min<std::size_t>(*length, from.length));
  *length = from.length;
  return 0;
}

}  // namespace viaduct::memnet
