// Endpoints of a live adapter.
#include <algorithm>

#include "nic/live_adapter.hpp"

namespace viaduct::nic {

namespace {

// The queue that the options name; nothing: none, the table stays as it is.
Result<std::optional<unsigned>> queue_of(const EndpointOptions& options, const Config& config) {
  if (options.queue >= 0) {
    if (static_cast<unsigned>(options.queue) < config.queues)
      return std::optional(static_cast<unsigned>(options.queue));
    return Error(EINVAL, "there is no queue " + std::to_string(options.queue));
  }
  if (options.core < 0) return std::optional<unsigned>();
  const auto at = std::ranges::find(config.queue_core, options.core);
  if (at == config.queue_core.end())
    return Error(EINVAL, "no queue belongs to processor " + std::to_string(options.core));
  return std::optional(static_cast<unsigned>(at - config.queue_core.begin()));
}

}  // namespace

Result<Port*> LiveAdapter::open_port(const EndpointOptions& options, Port::Opening& opening, int* memory) {
  if (endpoints_ == nullptr)
    return Error(EOPNOTSUPP, "the adapter was not told where frames name their endpoint (Config::endpoint_at)");
  opening.id = options.id;
  opening.listens = options.listens;
  opening.message_end = options.message_end;
  opening.geometry = {.buffers = options.hold_limit, .sends = options.send_ring, .max_frame = mac_->max_frame()};
  if (!opening.geometry.is_possible())
    return Error(EINVAL,
                 "an endpoint has 1 to 4096 receive buffers, and room for a power of two of frames to send, up to "
                 "1024");
  std::optional<unsigned> queue;
  VIADUCT_TRY(queue, queue_of(options, config_));
  VIADUCT_TRY(opening.segment, Segment::create({.name = "viaduct-nic-endpoint",
                                                .layout = kEndpointLayout,
                                                .payload_size = opening.geometry.bytes()}));
  if (memory != nullptr) *memory = opening.segment.fd();
  Port* port = nullptr;
  VIADUCT_TRY(port, endpoints_->open(opening));
  if (queue) firmware_->steering.set(opening.id, *queue);
  endpoints_->publish(*mac_);
  return port;
}

int LiveAdapter::core_of(std::uint16_t id) const {
  return core_of_queue(firmware_->steering.queue_of(id));
}

std::unique_ptr<Endpoint> LiveAdapter::open_endpoint(const EndpointOptions& options, Failure& why) {
  const auto open = [&]() -> Result<std::unique_ptr<Endpoint>> {
    WakeDescriptor wake;
    VIADUCT_TRY(wake, WakeDescriptor::create());
    Port::Opening opening{.bell = wake.bell()};
    Port* port = nullptr;
    VIADUCT_TRY(port, open_port(options, opening));
    return std::unique_ptr<Endpoint>(std::make_unique<AdapterEndpoint>(static_cast<AdapterTurns&>(*this), *endpoints_,
                                                                       *port, opening.id, *mac_,
                                                                       EndpointRings(port->view()), std::move(wake)));
  };
  auto endpoint = open();
  if (endpoint) return std::move(*endpoint);
  const Error error = std::move(endpoint.error()).because("open an endpoint of the adapter " + config_.name);
  why = {std::error_code(error.code(), std::generic_category()), error.message()};
  return nullptr;
}

}  // namespace viaduct::nic
