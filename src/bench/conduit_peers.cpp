// Conduits made of what is there already: the pipes of the ring benchmark, kernel sockets, and a bare channel.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <viaduct/via.hpp>

#include "base/copy_loop.hpp"
#include "base/segment.hpp"
#include "bench/conduit.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/message_pipe.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint64_t kLayout = layout_hash("bench conduit");

class PipeConduit final : public Conduit {
 public:
  PipeConduit(std::unique_ptr<Pipe> there, std::unique_ptr<Pipe> back, Memory buffer)
      : out_(std::move(there)), in_(std::move(back)), buffer_(std::move(buffer)) {}

  void open(Side side) override {
    if (side == Side::there) std::swap(out_, in_);
  }
  void send(std::size_t size) override { out_->send({buffer_.data(), size}); }
  void receive(std::size_t size) override { in_->receive({buffer_.data(), size}); }

 private:
  std::unique_ptr<Pipe> out_;
  std::unique_ptr<Pipe> in_;
  Memory buffer_;
};

class CacheLineConduit final : public Conduit {
 public:
  explicit CacheLineConduit(Segment segment) : segment_(std::move(segment)) {}
  void open(Side side) override {
    std::byte* const lines = segment_.payload().data();
    out_ = std::make_unique<CacheLine>(lines + (side == Side::here ? 0 : 256));
    in_ = std::make_unique<CacheLine>(lines + (side == Side::here ? 256 : 0));
  }
  void send(std::size_t) override { out_->send({}); }
  void receive(std::size_t) override { in_->receive({}); }

 private:
  Segment segment_;
  std::unique_ptr<CacheLine> out_;
  std::unique_ptr<CacheLine> in_;
};

// A channel by itself, polled. Messages are copied out, as a program that keeps them would.
class ChannelConduit final : public Conduit {
 public:
  ChannelConduit(via::ChannelPair ends, Memory buffer) : ends_(std::move(ends)), buffer_(std::move(buffer)) {}

  void open(Side side) override { end_ = side == Side::here ? ends_.first.get() : ends_.second.get(); }
  void send(std::size_t size) override {
    const std::size_t most = end_->largest_fragment();
    for (std::size_t sent = 0; sent < size;) {
      const std::size_t part = std::min(most, size - sent);
      const iovec piece{buffer_.data() + sent, part};
      const via::Sent answer = end_->try_send({&piece, 1}, 0, sent + part < size);
      if (answer == via::Sent::closed) give_up("a channel closed");
      if (answer == via::Sent::taken) sent += part;
    }
  }
  void receive(std::size_t size) override {
    for (std::size_t have = 0; have < size;) {
      via::Fragment fragment;
      const via::Got got = end_->peek(fragment);
      if (got == via::Got::end) give_up("a channel closed");
      if (got == via::Got::nothing) continue;
      copy_through_ring(buffer_.data() + have, fragment.bytes.data(), fragment.bytes.size());
      have += fragment.bytes.size();
      end_->consume();
    }
  }

 private:
  via::ChannelPair ends_;
  via::Channel* end_ = nullptr;
  Memory buffer_;
};

Result<FdPair> make_tcp_connection() {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (!listener || ::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), any, &length) != 0)
    return Error::from_errno("listen on the loopback");
  Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!client || ::connect(client.get(), any, length) != 0) return Error::from_errno("connect over the loopback");
  Fd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!server) return Error::from_errno("accept from the loopback");
  const int on = 1;
  for (const int fd : {client.get(), server.get()}) (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return FdPair{std::move(client), std::move(server)};
}

// One connection for both directions, so that acknowledgements travel with answers.
Result<std::unique_ptr<Conduit>> over_connection(FdPair ends, Waits waits) {
  if (waits == Waits::spinning) ends = FdPipe::spinning(std::move(ends));
  Fd first(::dup(ends.first.get())), second(::dup(ends.second.get()));
  if (!first || !second) return Error::from_errno("dup");
  VIADUCT_TRY(Memory buffer, Memory::make(Conduit::kMostBytes));
  return std::unique_ptr<Conduit>(std::make_unique<PipeConduit>(
      std::make_unique<FdPipe>(FdPair{std::move(ends.second), std::move(ends.first)}),
      std::make_unique<FdPipe>(FdPair{std::move(first), std::move(second)}), std::move(buffer)));
}

}  // namespace

Result<std::unique_ptr<Conduit>> make_cache_line() {
  VIADUCT_TRY(Segment segment, Segment::create({"viaduct-bench", kLayout, 4096}));
  return std::unique_ptr<Conduit>(std::make_unique<CacheLineConduit>(std::move(segment)));
}

Result<std::unique_ptr<Conduit>> make_raw_channel() {
  std::error_code fault;
  via::ChannelPair ends = via::make_channel_pair({}, fault);
  if (fault) return Error(fault.value(), "make a channel");
  VIADUCT_TRY(Memory buffer, Memory::make(Conduit::kMostBytes));
  return std::unique_ptr<Conduit>(std::make_unique<ChannelConduit>(std::move(ends), std::move(buffer)));
}

Result<std::unique_ptr<Conduit>> make_unix(Waits waits) {
  VIADUCT_TRY(FdPair ends, make_socket_pair(SOCK_STREAM));
  return over_connection(std::move(ends), waits);
}

Result<std::unique_ptr<Conduit>> make_tcp(Waits waits) {
  VIADUCT_TRY(FdPair ends, make_tcp_connection());
  return over_connection(std::move(ends), waits);
}

}  // namespace viaduct::bench
