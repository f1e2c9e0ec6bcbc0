#include "via/port/network.hpp"

#include <algorithm>

namespace viaduct::via {

namespace {

constexpr std::size_t kUsersAtOnce = 32;

Error error_of(const net::Failure& why) {
  return Error(why.code.value(), why.message);
}

}  // namespace

Result<std::shared_ptr<Network>> Network::open(Registrations& registrations, const net::EngineOptions& options) {
  std::shared_ptr<Network> network(new Network(registrations));
  net::Failure why;
  network->engine_ = net::Engine::open(options, *network, why);
  if (network->engine_ == nullptr) return error_of(why);
  return network;
}

Result<std::shared_ptr<Network>> Network::over(std::unique_ptr<nic::Mac> mac, Registrations& registrations,
                                               const net::EngineOptions& options) {
  std::shared_ptr<Network> network(new Network(registrations));
  net::Failure why;
  network->engine_ = net::Engine::over(std::move(mac), options, *network, why);
  if (network->engine_ == nullptr) return error_of(why);
  return network;
}

// ---- memory

std::uint64_t Network::new_user() {
  return last_user_.fetch_add(1, std::memory_order_relaxed) + 1;
}

void Network::admit(std::uint64_t user, const Reachable& reachable) {
  const std::lock_guard lock(mutex_);
  admitted_[user] = reachable;
}

void Network::dismiss(std::uint64_t user) {
  const std::lock_guard lock(mutex_);
  admitted_.erase(user);
}

MemoryKey Network::lend(std::uint64_t user, const void* address, std::size_t length) {
  return registrations_.add(address, length, kLent | user, kRdmaRead);
}

void Network::take_back(MemoryKey key, const void* address) {
  if (registrations_.remove(key, address)) settle();
}

// Under the engine's lock.
net::RegisteredMemory::Reached Network::reach(std::uint64_t user, std::uint64_t tag, std::uint64_t address,
                                              std::uint64_t length, Access access) {
  using net::TransferStatus;
  Reachable reachable;
  {
    const std::lock_guard lock(mutex_);
    const auto found = admitted_.find(user);
    if (found == admitted_.end()) return {TransferStatus::no_such_tag};
    reachable = found->second;
  }
  Registration registration;
  if (tag > UINT32_MAX || !registrations_.view().find(static_cast<MemoryKey>(tag), registration))
    return {TransferStatus::no_such_tag};
  std::uint64_t rights = registration.enables;
  if (registration.tag != (kLent | user)) {
    if (registration.tag >= kLent || !tags_agree(reachable.tag, registration.tag)) return {TransferStatus::no_such_tag};
    rights &= reachable.rights;
  }
  if (!registration.covers(address, length)) return {TransferStatus::out_of_bounds};
  const std::uint64_t needed = access == Access::write ? kRdmaWrite : kRdmaRead;
  if ((rights & needed) == 0) return {TransferStatus::not_allowed};
  return {TransferStatus::done, reinterpret_cast<std::byte*>(address)};
}

// ---- names

bool Network::offer(const std::string& name, net::Failure& why) {
  if (!engine_->offer(name, why)) return false;
  const std::lock_guard lock(incoming_mutex_);
  incoming_[name];
  return true;
}

void Network::withdraw(const std::string& name) {
  engine_->withdraw(name);
  std::deque<net::Incoming> left;
  {
    const std::lock_guard lock(incoming_mutex_);
    const auto found = incoming_.find(name);
    if (found == incoming_.end()) return;
    left = std::move(found->second);
    incoming_.erase(found);
  }
  for (const net::Incoming& one : left) engine_->refuse(one.flow, net::Reason::not_offered, {});
}

// Whoever asks takes what has come for others along.
bool Network::take_incoming(const std::string& name, net::Incoming& incoming) {
  const std::lock_guard lock(incoming_mutex_);
  net::Incoming one;
  while (engine_->take_incoming(one)) {
    const auto found = incoming_.find(one.name);
    if (found == incoming_.end())
      engine_->refuse(one.flow, net::Reason::not_offered, {});
    else
      found->second.push_back(std::move(one));
  }
  const auto mine = incoming_.find(name);
  if (mine == incoming_.end() || mine->second.empty()) return false;
  incoming = std::move(mine->second.front());
  mine->second.pop_front();
  return true;
}

void Network::wait(std::uint64_t most_ns) {
  const std::uint64_t seen = engine_->news();
  if (!engine_->progress()) engine_->sleep(seen, most_ns);
}

// ---- the ready source

void Network::report(std::uint64_t user, std::uint64_t tag) {
  tags_[user] = tag;
  fresh_.push_back(tag);
}

void Network::stop_reporting(std::uint64_t user) {
  const auto found = tags_.find(user);
  if (found == tags_.end()) return;
  std::erase(fresh_, found->second);
  tags_.erase(found);
}

std::size_t Network::take(std::span<std::uint64_t> tags) {
  std::size_t taken = 0;
  for (; taken < tags.size() && !fresh_.empty(); fresh_.pop_back()) tags[taken++] = fresh_.back();
  seen_ = engine_->news();
  engine_->progress();
  std::uint64_t users[kUsersAtOnce];
  while (taken < tags.size()) {
    const std::size_t most = std::min(kUsersAtOnce, tags.size() - taken);
    const std::size_t count = engine_->take_ready(std::span(users).first(most));
    for (std::size_t i = 0; i < count; ++i)
      if (const auto found = tags_.find(users[i]); found != tags_.end()) tags[taken++] = found->second;
    if (count < most) break;
  }
  return taken;
}

bool Network::prepare_to_sleep() {
  return fresh_.empty() && engine_->prepare_to_sleep(seen_);
}

}  // namespace viaduct::via
