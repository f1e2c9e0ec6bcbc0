// Connections of an engine: finding or making the session to a process, opening flows on it, and giving up in time.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.hpp"
#include "net/live_engine.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint64_t kDoubt = 300'000'000;  // ns without a word, after which a process is looked for afresh

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

// What travels as the request of a flow: which name it is for, and what the program says.
std::vector<std::byte> request_for(const std::string& name, std::span<const std::byte> request) {
  return GrowingBytes()
      .add(static_cast<std::uint8_t>(name.size()))
      .add_all(std::as_bytes(std::span(name)))
      .add_all(request)
      .take();
}

}  // namespace

FlowId LiveEngine::connect(const std::string& host, const std::string& name, const ConnectOptions& options,
                           Failure& why) {
  const auto impossible = [&](int code, std::string text) {
    why = {std::error_code(code, std::generic_category()), std::move(text)};
    return FlowId{0};
  };
  if (name.empty() || name.size() > UINT8_MAX) return impossible(EINVAL, "a name has 1 to 255 bytes");
  if (options.request.size() > kLongestRequest) {
    return impossible(EMSGSIZE, fmt::format("a request has {} bytes at most", kLongestRequest));
  }
  if (!Session::are_sane(options.limits)) {
    return impossible(EINVAL, "a flow has 1 to 4096 slots of 64 bytes to 1 MB, 16 MB together at most");
  }
  // Outside of the lock: names may have to be looked up.
  Result<Route> route = Error(ECHILD, "a forked child has no engines: it opens one of its own");
  if (node_ != nullptr) route = node_->route_to(host);
  if (!route) return impossible(route.error().code(), route.error().message());

  Keeper::process().start();
  const std::lock_guard lock(mutex_);
  const FlowId flow = make_flow();
  FlowRecord& record = flows_[index_of(flow)];
  record.state = FlowRecord::State::meeting;
  record.user = options.user;
  record.name = name;
  record.route = std::move(*route);
  record.key = record.route.peer + '/' + name;
  record.request = request_for(name, options.request);
  record.limits = options.limits;
  record.within_ns = options.within_ns;
  const std::uint64_t now = now_ns();
  set_deadline(flow, options.within_ns > UINT64_MAX - now ? UINT64_MAX : now + options.within_ns);
  meet(flow, now);
  (void)node_->flush();
  mind_sleepers();
  mind_keeper();
  return flow;
}

// The session that leads there, or the beginning of one.
void LiveEngine::meet(FlowId flow, std::uint64_t now) {
  FlowRecord& record = *find(flow);
  if (const auto known = by_key_.find(record.key); known != by_key_.end()) {
    SessionRecord& session = sessions_.at(known->second);
    if (session.connected) return open_on(known->second, flow);
    session.meeting.push_back(flow);
    return;
  }
  const auto number = node_->connect(record.route, record.name, record.deadline - std::min(record.deadline, now));
  if (!number) return fail(flow, number.error().message());
  SessionRecord& session = sessions_[*number];
  session.ours = true;
  session.key = record.key;
  session.meeting.push_back(flow);
  by_key_[record.key] = *number;
  record.met_for_it = true;
}

void LiveEngine::open_on(std::uint64_t number, FlowId flow) {
  FlowRecord& record = *find(flow);
  Session* const session = node_->use(number);
  const std::uint32_t opened = session == nullptr ? 0 : session->open(record.limits, record.request);
  if (opened == 0) {
    return fail(flow, fmt::format("connect to '{}' at {}: too many connections to that process are under way",
                                  record.name, record.route.peer));
  }
  record.state = FlowRecord::State::opening;
  record.session = number;
  record.number = opened;
  session->set_user(opened, record.user);
  record.opened_at = now_ns();
  set_doubt(flow, record.opened_at + kDoubt);
  SessionRecord& mine = sessions_.at(number);
  mine.flows[opened] = flow;
  if (mine.idle_since != UINT64_MAX) {
    idle_.erase({mine.idle_since, number});
    mine.idle_since = UINT64_MAX;
  }
}

// There is an answer: the flows that wait for it are opened, on the session that is there already if it is to the same
// process.
void LiveEngine::met(std::uint64_t number, std::uint64_t) {
  SessionRecord& session = sessions_.at(number);
  session.connected = true;
  const std::vector<FlowId> waiting = std::exchange(session.meeting, {});
  std::uint64_t through = number;
  for (const auto& [other, its] : sessions_) {
    if (other != number && its.connected && node_->is_same_process(other, number)) through = other;
  }
  if (through != number) {
    by_key_[session.key] = through;
    sessions_.erase(number);
    node_->forget(number);
  }
  for (const FlowId flow : waiting) {
    if (find(flow) != nullptr) open_on(through, flow);
  }
}

void LiveEngine::not_met(const StationEvent& event, std::uint64_t now) {
  const std::string& text = event.text;
  const SessionRecord session = sessions_.at(event.session);
  sessions_.erase(event.session);
  by_key_.erase(session.key);
  for (const FlowId flow : session.meeting) {
    const FlowRecord* record = find(flow);
    if (record == nullptr) continue;
    // Nobody answered in the time of the one that began: others may have more.
    if (text == kNobodyAnswered && now < record->deadline) {
      meet(flow, now);
    } else if (text == kNobodyAnswered) {
      fail(flow, no_answer(*record));
    } else {
      fail(flow,
           fmt::format("connect to '{}' at {} ({}): {}", record->name, record->route.peer, record->route.text(), text),
           event.reason);
    }
  }
}

std::string LiveEngine::no_answer(const FlowRecord& record) const {
  const std::string what = fmt::format("connect to '{}' at {} within {:g} s", record.name, record.route.peer,
                                       static_cast<double>(record.within_ns) / 1e9);
  if (record.state == FlowRecord::State::opening) {
    return fmt::format("{}: its process is there ({}), and its program did not take the connection", what,
                       node_->name_of(record.session));
  }
  return fmt::format(
      "{}: no answer to hellos over {} {}; does a program run there that uses Viaduct, and does a firewall let UDP "
      "through in both directions?",
      what, node_->carrier(), record.route.text());
}

void LiveEngine::fail(FlowId flow, std::string text, Reason reason) {
  set_deadline(flow, UINT64_MAX);
  leave_session(flow, Leaving::at_once);
  find(flow)->state = FlowRecord::State::open;  // nothing more comes of it
  tell(flow, {.kind = FlowEvent::Kind::failed, .reason = reason, .bytes = {}, .text = std::move(text)});
}

void LiveEngine::set_doubt(FlowId flow, std::uint64_t doubt_at) {
  FlowRecord& record = *find(flow);
  if (record.doubt_at != UINT64_MAX) doubts_.erase({record.doubt_at, flow});
  record.doubt_at = doubt_at;
  if (doubt_at != UINT64_MAX) doubts_.insert({doubt_at, flow});
}

// Nothing has come through its session since it asked: the process may be gone, and another one have the name.
void LiveEngine::doubt(FlowId flow, std::uint64_t now) {
  FlowRecord& record = *find(flow);
  set_doubt(flow, UINT64_MAX);
  if (record.state != FlowRecord::State::opening) return;
  const Session* const session = node_->look(record.session);
  if (session != nullptr && session->heard_at() > record.opened_at) return;
  by_key_.erase(record.key);
  leave_session(flow, Leaving::at_once);
  record.state = FlowRecord::State::meeting;
  meet(flow, now);
}

void LiveEngine::set_deadline(FlowId flow, std::uint64_t deadline) {
  FlowRecord& record = *find(flow);
  if (deadline == UINT64_MAX) set_doubt(flow, UINT64_MAX);
  if (record.deadline != UINT64_MAX) deadlines_.erase({record.deadline, flow});
  record.deadline = deadline;
  if (deadline != UINT64_MAX) deadlines_.insert({deadline, flow});
}

// Connections whose time is up, and sessions that nobody has needed for a while.
bool LiveEngine::expire(std::uint64_t now) {
  bool expired = false;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const FlowId flow = deadlines_.begin()->second;
    expired = true;
    fail(flow, no_answer(*find(flow)));
  }
  while (!doubts_.empty() && doubts_.begin()->first <= now) {
    expired = true;
    doubt(doubts_.begin()->second, now);
  }
  while (!idle_.empty() && idle_.begin()->first + kKeepIdle <= now) {
    const std::uint64_t number = idle_.begin()->second;
    SessionRecord& session = sessions_.at(number);
    idle_.erase(idle_.begin());
    expired = true;
    session.idle_since = UINT64_MAX;
    const Session* const its = node_->look(number);
    if (its != nullptr && its->has_flows()) {  // what was closed in good order is still being delivered
      session.idle_since = now;
      idle_.insert({now, number});
    } else {
      drop_session(number);
    }
  }
  return expired;
}

void LiveEngine::drop_session(std::uint64_t number) {
  const auto found = sessions_.find(number);
  for (auto each = by_key_.begin(); each != by_key_.end();) {
    each = each->second == number ? by_key_.erase(each) : std::next(each);
  }
  if (found->second.idle_since != UINT64_MAX) idle_.erase({found->second.idle_since, number});
  sessions_.erase(found);
  node_->forget(number);
}

// The flow has nothing to do with its session any more. A session of ours without flows is kept for a while; one that
// is over goes.
void LiveEngine::leave_session(FlowId flow, Leaving how) {
  FlowRecord& record = *find(flow);
  if (record.state == FlowRecord::State::meeting) {
    const auto known = by_key_.find(record.key);
    if (known == by_key_.end()) return;
    SessionRecord& session = sessions_.at(known->second);
    std::erase(session.meeting, flow);
    if (!session.connected && session.meeting.empty()) drop_session(known->second);
    return;
  }
  const std::uint64_t number = std::exchange(record.session, 0);
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  if (Session* const session = node_->use(number); session != nullptr && how != Leaving::it_is_closed) {
    session->close(record.number, how == Leaving::in_good_order);
  }
  found->second.flows.erase(record.number);
  note_idle(number);
}

void LiveEngine::note_idle(std::uint64_t number) {
  SessionRecord& session = sessions_.at(number);
  if (!session.flows.empty()) return;
  if (const Session* const over = node_->look(number); over == nullptr || over->over() != Over::no) {
    return drop_session(number);
  }
  if (!session.ours || session.idle_since != UINT64_MAX) return;
  session.idle_since = now_ns();
  idle_.insert({session.idle_since, number});
}

// The other side's program.

bool LiveEngine::take_incoming(Incoming& incoming) {
  const std::lock_guard lock(mutex_);
  while (!incoming_.empty()) {
    incoming = std::move(incoming_.front());
    incoming_.pop_front();
    const FlowRecord* const record = find(incoming.flow);
    if (record != nullptr && record->state == FlowRecord::State::asked) return true;
  }
  return false;
}

bool LiveEngine::accept(FlowId flow, std::uint64_t user, const FlowLimits& limits, std::span<const std::byte> answer) {
  const std::lock_guard lock(mutex_);
  FlowRecord* const record = find(flow);
  if (record == nullptr || record->state != FlowRecord::State::asked || answer.size() > kLongestRequest) return false;
  Session* const session = session_of(*record);
  if (session == nullptr || !session->accept(record->number, limits, answer)) return false;
  session->set_user(record->number, user);
  record->user = user;
  record->state = FlowRecord::State::open;
  (void)node_->flush();
  mind_sleepers();
  return true;
}

void LiveEngine::refuse(FlowId flow, Reason reason, std::span<const std::byte> answer) {
  const std::lock_guard lock(mutex_);
  FlowRecord* const record = find(flow);
  if (record == nullptr || record->state != FlowRecord::State::asked) return;
  if (Session* const session = session_of(*record); session != nullptr) {
    session->refuse(record->number, reason, answer.first(std::min(answer.size(), kLongestRequest)));
    (void)node_->flush();
  }
  leave_session(flow, Leaving::it_is_closed);
  free_flow(flow);
  mind_sleepers();
}

void LiveEngine::close(FlowId flow, bool in_good_order) {
  const std::lock_guard lock(mutex_);
  FlowRecord* const record = find(flow);
  if (record == nullptr) return;
  set_deadline(flow, UINT64_MAX);
  if (Session* const session = session_of(*record); session != nullptr) session->give_up_transfers(record->number);
  if (node_ != nullptr) {
    leave_session(flow, in_good_order ? Leaving::in_good_order : Leaving::at_once);
    (void)node_->flush();
  }
  free_flow(flow);
  mind_sleepers();
}

}  // namespace viaduct::net
