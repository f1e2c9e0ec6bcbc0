#include "via/port/local_port.hpp"

#include "base/config.hpp"
#include "via/port/network.hpp"

namespace viaduct::via {

Status LocalPort::start(bool attach) {
  VIADUCT_TRY(registrations_, Registrations::make());
  if (attach) {
    VIADUCT_TRY(token_, copy::OwnToken::choose());
  }
  return {};
}

Result<std::shared_ptr<RemotePort>> LocalPort::remote(Fd table, pid_t pid, copy::Token token) {
  VIADUCT_TRY(const RemotePort::Identity identity, RemotePort::identity_of(table.get()));
  const std::lock_guard lock(mutex_);
  std::erase_if(remotes_, [](const auto& one) { return one.expired(); });
  for (const auto& one : remotes_)
    // Whoever shows somebody else's table is not taken for that one.
    if (auto known = one.lock(); known && known->identity() == identity && known->pid() == pid) return known;
  VIADUCT_TRY(auto made, RemotePort::make(std::move(table), pid, token));
  remotes_.push_back(made);
  return made;
}

Result<std::shared_ptr<Network>> LocalPort::network() {
  if (!Config::process().flag("VIADUCT_NETWORK"))
    return Error(EPERM, "other hosts are not reached, nor do they reach this one: VIADUCT_NETWORK is off");
  const std::lock_guard lock(network_mutex_);
  if (network_ == nullptr) {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    const std::uint64_t silence = Config::process().number("VIADUCT_NETWORK_SILENCE") * kSecond;
    auto opened = Network::open(*registrations_,
                                {.port = static_cast<std::uint16_t>(Config::process().number("VIADUCT_NETWORK_PORT")),
                                 .silence_ns = silence,
                                 .keepalive_ns = silence / 3});
    if (!opened) return opened.error().because("the network");
    network_ = std::move(*opened);
  }
  return network_;
}

void LocalPort::settle() {
  const std::lock_guard lock(network_mutex_);
  if (network_ != nullptr) network_->settle();
}

}  // namespace viaduct::via
