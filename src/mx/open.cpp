// Opening and closing an endpoint.
#include <fmt/format.h>
#include <sys/random.h>

#include "base/config.hpp"
#include "base/log.hpp"
#include "mx/boards.hpp"
#include "mx/core.hpp"
#include "mx/doorkeeper.hpp"
#include "mx/places.hpp"

namespace viaduct::mx {

namespace {

constexpr std::uint32_t kMostLinks = 8192;

bool failed(Failure& why, const Error& error) {
  why.code = std::error_code(error.code(), std::generic_category());
  why.message = error.message();
  return false;
}

}  // namespace

Core::Core() = default;

std::unique_ptr<Endpoint> Endpoint::open(const Options& options, Failure& why) {
  auto core = std::make_unique<Core>();
  if (!core->start(options, why)) return nullptr;
  return core;
}

bool Core::start(const Options& options, Failure& why) {
  const auto own = boards();
  name_.nic = options.nic == 0 ? own.front().nic : options.nic;
  if (!is_nic(name_.nic)) return failed(why, Error(ENODEV, "open an endpoint: no such interface"));
  if (options.number != kAnyEndpoint && options.number >= kMostEndpoints)
    return failed(why, Error(EINVAL, "open an endpoint: there are numbers 0 to 65535"));
  family_ = options.family;
  key_ = options.key;
  most_unexpected_ = options.most_unexpected;
  events_ = options.events;
  while (session_ == 0)
    if (::getrandom(&session_, sizeof session_, 0) != sizeof session_)
      return failed(why, Error::from_errno("open an endpoint: a session's number"));
  make_room_for_descriptors(population() + 1);
  auto port = via::Port::open(meeting::Peers::by_setting, Config::process().flag("VIADUCT_COPY_CMA"));
  if (!port) return failed(why, port.error().because("open an endpoint"));
  port_ = std::move(*port);

  asymmetric_ = fence::asymmetric();
  std::error_code fault = leadership_.start();
  if (!fault) ready_ = via::ReadyQueue::make(kMostLinks, fault);
  if (!fault) fault = ready_->add(leadership_.alarm(), kAlarmTag);
  if (fault) return failed(why, Error(fault.value(), "open an endpoint: ready queue: " + fault.message()));

  std::uint32_t number = options.number == kAnyEndpoint ? 0 : options.number;
  for (;; ++number) {
    name_.endpoint = number;
    auto listener = port_->listener(place_of(family_, name_));
    if (listener) {
      listener_ = std::move(*listener);
      break;
    }
    const bool go_on = options.number == kAnyEndpoint && listener.error().code() == EADDRINUSE;
    if (!go_on || number + 1 == kMostEndpoints)
      return failed(why, listener.error().because(fmt::format("open endpoint {}", number)));
  }
  for (const int descriptor : listener_->descriptors())
    if (!fault) fault = ready_->watch(descriptor, kDoorTag);
  if (!is_loopback(name_.nic) && Config::process().flag("VIADUCT_NETWORK")) {
    if (auto network = port_->network(); network) {
      network_ = std::move(*network);
      doorkeeper_ = std::make_unique<Doorkeeper>(network_);
      if (!doorkeeper_->is_good()) return failed(why, Error::from_errno("open an endpoint: the network"));
      fault = ready_->add(*doorkeeper_);
    }
  }
  if (fault) return failed(why, Error(fault.value(), "open an endpoint: " + fault.message()));

  statistics_ = Statistics::make(name_.nic, name_.endpoint);
  self_ = add_partner(name_);
  if (self_ == nullptr) return failed(why, Error(ENOMEM, "open an endpoint: too many partners"));
  self_->is_self = true;
  if (self_->shown != nullptr) Statistics::show(*self_->shown, Statistics::Way::itself);
  self_->session = session_;
  enter_population(*this);
  return true;
}

Core::~Core() {
  if (listener_ != nullptr) leave_population(*this);
  if (is_abandoned()) {  // the connections are the parent's
    for (const auto& partner : partners_) unregister_partner(partner->handle);
    return;
  }
  if (ready_ != nullptr) leadership_.lead();
  {
    const Guard guard(*this);
    events_ = nullptr;  // nobody is told any more
    for (const auto& partner : partners_) {
      if (partner->handshake != nullptr) partner->handshake.reset();
      // What they lend may be in use by a copy; what is queued has not gone.
      for (Request* one = partner->requests.first(); one != nullptr; one = decltype(partner->requests)::next(*one))
        if (!one->keys.empty()) take_back(*one, true);
      partner_gone(*partner, Status::endpoint_closed);
      unregister_partner(partner->handle);
    }
    answered_.clear();
    if (doorkeeper_ != nullptr) ready_->remove(*doorkeeper_);
    ready_.reset();
  }
}

Endpoint::View Core::view() const {
  const Guard guard(*this);
  View view;
  for (const auto& partner : partners_) {
    if (partner->is_self) continue;
    ++view.partners;
    if (partner->out != nullptr && !partner->out->over) ++view.connected;
    view.sending += partner->line.size();
  }
  view.posted = matcher_.posted().size();
  view.unexpected = matcher_.arrived().size();
  view.unexpected_bytes = unexpected_bytes_;
  return view;
}

}  // namespace viaduct::mx
