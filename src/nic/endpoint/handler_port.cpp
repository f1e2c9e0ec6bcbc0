#include "nic/endpoint/handler_port.hpp"

namespace viaduct::nic {

void FrameHandler::on_due(std::uint64_t, Transmitter&) {}

Result<std::unique_ptr<HandlerPort>> HandlerPort::create(FrameHandler& handler, const Clock& clock,
                                                         std::uint32_t max_frame, std::function<void()> sent) {
  constexpr std::uint32_t kFrames = 64;
  std::unique_ptr<HandlerPort> port(new HandlerPort(handler, clock));
  port->sent_ = std::move(sent);
  const EndpointGeometry geometry{.buffers = 1, .sends = kFrames, .max_frame = max_frame};
  Segment segment;
  VIADUCT_TRY(
      segment,
      Segment::create({.name = "viaduct-nic-handler", .layout = kEndpointLayout, .payload_size = geometry.bytes()}));
  port->rings_ = EndpointRings(EndpointView(segment.payload(), geometry));
  port->port_.open({.geometry = geometry, .segment = std::move(segment)});
  return port;
}

bool HandlerPort::send(std::span<const std::byte> frame) {
  if (frame.size() > max_frame()) return false;
  const Frame one{frame.data(), static_cast<std::uint32_t>(frame.size())};
  if (rings_.send({&one, 1}) == 0) return false;
  if (sent_) sent_();
  return true;
}

}  // namespace viaduct::nic
