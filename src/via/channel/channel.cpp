// Making channels: in one process, and over a UNIX socket that two processes hold.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "via/channel/ready_queue.hpp"
#include "via/channel/shm_channel.hpp"

namespace viaduct::via {

namespace {

std::error_code code(const Error& error) {
  return {error.code(), std::generic_category()};
}

Result<Segment> make_segment(const ChannelGeometry& geometry) {
  VIADUCT_CHECK(geometry.check());
  VIADUCT_TRY(Segment segment,
              Segment::create({"viaduct-channel", kChannelLayout, geometry.bytes(), HugePages::prefer}));
  auto* const control = segment.as<ChannelControl>();
  control->slots = geometry.slots;
  control->bulk_bytes = geometry.bulk_bytes;
  return segment;
}

// The numbers are the peer's: copied once, then checked.
Result<ChannelGeometry> read_geometry(const Segment& segment) {
  if (segment.payload().size() < sizeof(ChannelControl)) return Error(EPROTO, "channel: the segment is too small");
  const auto* const control = segment.as<ChannelControl>();
  const ChannelGeometry geometry{control->slots, control->bulk_bytes};
  VIADUCT_CHECK(geometry.check());
  return geometry;
}

Result<ChannelPair> make_pair(const ChannelOptions& options) {
  const ChannelGeometry geometry{options.slots, options.bulk_bytes};
  VIADUCT_TRY(Segment first, make_segment(geometry));
  VIADUCT_TRY(FdPair sockets, make_socket_pair(SOCK_STREAM));
  Fd copy(::dup(first.fd()));
  if (!copy) return Error::from_errno("channel");
  VIADUCT_TRY(Segment second, Segment::adopt(std::move(copy), kChannelLayout));
  VIADUCT_TRY(auto opener, ShmChannel::attach(std::move(first), geometry, 0, std::move(sockets.first)));
  VIADUCT_TRY(auto joiner, ShmChannel::attach(std::move(second), geometry, 1, std::move(sockets.second)));
  return ChannelPair{std::move(opener), std::move(joiner)};
}

Result<std::unique_ptr<ShmChannel>> open(Fd socket, const ChannelOptions& options) {
  const ChannelGeometry geometry{options.slots, options.bulk_bytes};
  VIADUCT_TRY(Segment segment, make_segment(geometry));
  VIADUCT_CHECK(send_segment(socket.get(), segment));
  return ShmChannel::attach(std::move(segment), geometry, 0, std::move(socket));
}

Result<std::unique_ptr<ShmChannel>> join(Fd socket, int timeout_ms) {
  const Clock& clock = Clock::steady();
  const Deadline deadline = timeout_ms < 0
                                ? Deadline::never()
                                : Deadline::after_ns(clock, static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
  pollfd entry{socket.get(), POLLIN, 0};
  int ready;
  do {
    const timespec left = to_timespec(deadline.left_ns(clock.now_ns()));
    ready = ::ppoll(&entry, 1, deadline.is_never() ? nullptr : &left, nullptr);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return Error(ETIMEDOUT, "join channel: the opener sent nothing in time");
  VIADUCT_TRY(Segment segment, receive_segment(socket.get(), kChannelLayout));
  VIADUCT_TRY(const ChannelGeometry geometry, read_geometry(segment));
  return ShmChannel::attach(std::move(segment), geometry, 1, std::move(socket));
}

}  // namespace

ChannelPair make_channel_pair(const ChannelOptions& options, std::error_code& fault) {
  auto pair = make_pair(options);
  fault = pair ? std::error_code() : code(pair.error());
  if (!pair) log::detail(pair.error().message());
  return pair ? std::move(*pair) : ChannelPair{};
}

std::unique_ptr<Channel> open_channel(int socket, const ChannelOptions& options, std::error_code& fault) {
  auto channel = open(Fd(socket), options);
  fault = channel ? std::error_code() : code(channel.error());
  if (!channel) log::fault(channel.error().message());
  return channel ? std::move(*channel) : nullptr;
}

std::unique_ptr<Channel> join_channel(int socket, int timeout_ms, std::error_code& fault) {
  auto channel = join(Fd(socket), timeout_ms);
  fault = channel ? std::error_code() : code(channel.error());
  if (!channel) log::fault(channel.error().message());
  return channel ? std::move(*channel) : nullptr;
}

std::unique_ptr<ReadyQueue> ReadyQueue::make(std::uint32_t most_channels, std::error_code& fault) {
  auto queue = ReadyQueueOfSources::make(most_channels);
  fault = queue ? std::error_code() : code(queue.error());
  return queue ? std::move(*queue) : nullptr;
}

}  // namespace viaduct::via
