#include "net/live_engine.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>

#include "base/clock.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint64_t kTail = 1'000'000'000;  // ns that an engine's end waits for what is not delivered

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

NodeOptions node_options(const EngineOptions& options) {
  NodeOptions result;
  result.well_known_port = options.port;
  result.largest_frame = options.largest_frame;
  result.key_file = options.key_file;
  result.station.session.silence_ns = options.silence_ns;
  result.station.session.keepalive_ns = options.keepalive_ns;
  return result;
}

Failure failure_of(const Error& error) {
  return {std::error_code(error.code(), std::generic_category()), error.message()};
}

std::shared_ptr<Engine> made(const EngineOptions& options, Result<std::unique_ptr<Node>> node, Failure& why) {
  if (node) return std::make_shared<LiveEngine>(options, std::move(*node));
  why = failure_of(node.error());
  return nullptr;
}

}  // namespace

std::shared_ptr<Engine> Engine::open(const EngineOptions& options, RegisteredMemory& memory, Failure& why) {
  return made(options, Node::open(node_options(options), memory), why);
}

std::shared_ptr<Engine> Engine::over(std::unique_ptr<nic::Mac> mac, const EngineOptions& options,
                                     RegisteredMemory& memory, Failure& why) {
  return made(options, Node::over(std::move(mac), node_options(options), memory), why);
}

bool Engine::is_this_host(const std::string& host) {
  return is_own_address(host);
}

LiveEngine::LiveEngine(const EngineOptions& options, std::unique_ptr<Node> node)
    : options_(options),
      node_(std::move(node)),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      bed_(::epoll_create1(EPOLL_CLOEXEC)) {
  node_->watch(timer_.get());
  for (const int fd : {node_->descriptor(), bell_.get()}) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    (void)::epoll_ctl(bed_.get(), EPOLL_CTL_ADD, fd, &wanted);
  }
  Keeper::process().add(*this);
}

LiveEngine::~LiveEngine() {
  Keeper::process().forget(*this);
  if (node_ == nullptr) return;
  (void)drain(kTail);
  const std::lock_guard lock(mutex_);
  for (const auto& [number, session] : sessions_) node_->forget(number);
}

// Names and records.

bool LiveEngine::offer(const std::string& name, Failure& why) {
  Keeper::process().start();
  const std::lock_guard lock(mutex_);
  if (node_ == nullptr) {
    why = failure_of(Error(ECHILD, "a forked child has no engines: it opens one of its own"));
    return false;
  }
  const Status offered = node_->offer(name);
  if (!offered) why = failure_of(offered.error());
  mind_keeper();
  return offered.ok();
}

void LiveEngine::withdraw(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (node_ != nullptr) node_->withdraw(name);
}

FlowId LiveEngine::make_flow() {
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::uint32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::uint32_t index = unused_.back();
  unused_.pop_back();
  FlowRecord& record = flows_[index];
  record.deadline = UINT64_MAX;
  return std::uint64_t{++record.generation} << 32 | (index + 1);
}

LiveEngine::FlowRecord* LiveEngine::find(FlowId flow) const {
  const std::uint32_t index = index_of(flow);
  if (index >= flows_.size()) return nullptr;
  FlowRecord& record = flows_[index];
  return record.generation == flow >> 32 && record.state != FlowRecord::State::unused ? &record : nullptr;
}

void LiveEngine::free_flow(FlowId flow) {
  FlowRecord& record = *find(flow);
  const std::uint32_t generation = record.generation;
  if (record.listed) std::erase(ready_, flow);
  record = FlowRecord{};
  record.generation = generation;
  unused_.push_back(index_of(flow));
}

Session* LiveEngine::session_of(const FlowRecord& record) const {
  return node_ != nullptr && record.session != 0 ? node_->use(record.session) : nullptr;
}

Session* LiveEngine::session_with_flow(FlowId flow, std::uint32_t& number) const {
  const FlowRecord* record = find(flow);
  if (record == nullptr || record->state != FlowRecord::State::open) return nullptr;
  number = record->number;
  return session_of(*record);
}

// Messages and memory.

Sent LiveEngine::try_send(FlowId flow, std::span<const iovec> pieces) {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  Session* const session = session_with_flow(flow, number);
  return session == nullptr ? Sent::closed : session->try_send(number, pieces);
}

std::size_t LiveEngine::largest_item(FlowId flow) const {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  const Session* const session = session_with_flow(flow, number);
  return session == nullptr ? 0 : session->largest_item(number);
}

std::uint32_t LiveEngine::credit(FlowId flow) const {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  Session* const session = session_with_flow(flow, number);
  return session == nullptr ? 0 : session->credit(number);
}

std::uint64_t LiveEngine::delivered(FlowId flow) const {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  const Session* const session = session_with_flow(flow, number);
  return session == nullptr ? 0 : session->delivered(number);
}

void LiveEngine::tell_when_delivered(FlowId flow, std::uint64_t items) {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  Session* const session = session_with_flow(flow, number);
  if (session != nullptr) session->tell_when_delivered(number, items);
}

bool LiveEngine::peek(FlowId flow, std::span<const std::byte>& message) {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  Session* const session = session_with_flow(flow, number);
  return session != nullptr && session->peek(number, message);
}

void LiveEngine::consume(FlowId flow) {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  Session* const session = session_with_flow(flow, number);
  if (session == nullptr) return;
  session->consume(number);
  if (sleepers_ == 0) return;
  (void)node_->flush();  // the peer may wait for credit, and nobody else is about to move anything
  mind_sleepers();
}

void LiveEngine::finish(FlowId flow) {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  if (Session* const session = session_with_flow(flow, number); session != nullptr) session->finish(number);
}

Sent LiveEngine::get(FlowId flow, std::byte* local, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
                     std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  Session* const session = session_with_flow(flow, number);
  if (session == nullptr || !session->takes_items(number)) return Sent::closed;
  return session->get(number, local, tag, address, length, cookie) ? Sent::yes : Sent::full;
}

Sent LiveEngine::put(FlowId flow, const std::byte* local, std::uint64_t tag, std::uint64_t address,
                     std::uint64_t length, std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  Session* const session = session_with_flow(flow, number);
  if (session == nullptr || !session->takes_items(number)) return Sent::closed;
  return session->put(number, local, tag, address, length, cookie) ? Sent::yes : Sent::full;
}

void LiveEngine::give_up_transfers(FlowId flow) {
  const std::lock_guard lock(mutex_);
  FlowRecord* const record = find(flow);
  if (record == nullptr) return;
  Session* const session = session_of(*record);
  if (session == nullptr) return;
  session->give_up_transfers(record->number);
  // Those that have ended already, and nobody has heard of it.
  std::erase_if(record->events, [](const FlowEvent& event) { return event.kind == FlowEvent::Kind::transferred; });
  (void)node_->flush();
  mind_sleepers();
}

// Driving it.

bool LiveEngine::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || node_ == nullptr) return false;
  program_is_here();
  const bool moved = node_->progress();
  const bool told = distribute(now_ns());
  mind_sleepers();
  mind_keeper();
  return moved || told;
}

void LiveEngine::flush() {
  const std::lock_guard lock(mutex_);
  if (node_ == nullptr) return;
  (void)node_->flush();
  mind_sleepers();
}

bool LiveEngine::drain(std::uint64_t within_ns) {
  const std::uint64_t end = now_ns() + within_ns;
  for (;;) {
    const std::uint64_t seen = news();
    const bool moved = progress();
    {
      const std::lock_guard lock(mutex_);
      if (node_ == nullptr) return false;
      node_->prepare_to_sleep();
      if (node_->is_quiet()) return true;
    }
    const std::uint64_t now = now_ns();
    if (now >= end) return false;
    if (!moved) sleep(seen, end - now);
  }
}

Path LiveEngine::path(FlowId flow) const {
  const std::lock_guard lock(mutex_);
  const FlowRecord* record = find(flow);
  if (record == nullptr || node_ == nullptr || record->session == 0) return {};
  return node_->path_of(record->session);
}

std::size_t LiveEngine::sessions() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

}  // namespace viaduct::net
