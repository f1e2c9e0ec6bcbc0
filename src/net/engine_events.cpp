// What a node tells, brought to the flows of the program.
#include <fmt/format.h>

#include <algorithm>

#include "net/live_engine.hpp"

namespace viaduct::net {

namespace {

Reason reason_of(Over over) {
  switch (over) {
    case Over::finished_there:
      return Reason::peer_ended;
    case Over::timed_out:
      return Reason::timed_out;
    case Over::broken:
      return Reason::broken;
    case Over::forgotten:
      return Reason::peer_restarted;
    case Over::no:
    case Over::finished_here:
      break;
  }
  return Reason::session_over;
}

const char* words_for(Over over) {
  switch (over) {
    case Over::finished_there:
      return "its process ended the session";
    case Over::timed_out:
      return "it was silent for too long";
    case Over::broken:
      return "it said something impossible";
    case Over::forgotten:
      return "its process was started again";
    case Over::no:
    case Over::finished_here:
      break;
  }
  return "the session was ended here";
}

}  // namespace

bool LiveEngine::distribute(std::uint64_t now) {
  bool told = false;
  StationEvent event;
  while (node_->take_event(event)) {
    told = true;
    switch (event.kind) {
      case StationEvent::Kind::connected:
        if (sessions_.contains(event.session)) met(event.session, now);
        break;
      case StationEvent::Kind::failed:
        if (sessions_.contains(event.session)) not_met(event, now);
        break;
      case StationEvent::Kind::met:
        sessions_[event.session].connected = true;
        break;
      case StationEvent::Kind::session:
        take_session_event(event.session, event.event, now);
        break;
    }
  }
  const bool expired = expire(now);
  if (told || expired) (void)node_->flush();  // what has come of it
  return told;
}

void LiveEngine::take_session_event(std::uint64_t number, Event& event, std::uint64_t now) {
  const auto session = sessions_.find(number);
  if (session == sessions_.end()) return;
  if (event.kind == Event::Kind::asked) return take_asked(number, event);
  if (event.kind == Event::Kind::over) return session_over(number, now);
  const auto found = session->second.flows.find(event.flow);
  if (found == session->second.flows.end()) return;  // closed here
  const FlowId flow = found->second;
  FlowRecord& record = *find(flow);
  switch (event.kind) {
    case Event::Kind::accepted:
      record.state = FlowRecord::State::open;
      set_deadline(flow, UINT64_MAX);
      return tell(flow, {.kind = FlowEvent::Kind::accepted, .bytes = std::move(event.bytes), .text = {}});
    case Event::Kind::refused:
      return take_refused(flow, event, now);
    case Event::Kind::readable:
      record.readable = true;
      return list(flow, record);
    case Event::Kind::writable:
      record.writable = true;
      return list(flow, record);
    case Event::Kind::delivered:
      record.delivered = true;
      return list(flow, record);
    case Event::Kind::ended:
      record.ended = true;
      return list(flow, record);
    case Event::Kind::transferred:
      return tell(flow, {.kind = FlowEvent::Kind::transferred,
                         .status = event.status,
                         .cookie = event.cookie,
                         .bytes = {},
                         .text = {}});
    case Event::Kind::closed:
      if (record.state == FlowRecord::State::asked) {  // nobody has answered yet, and nobody need any more
        leave_session(flow, Leaving::at_once);
        return free_flow(flow);
      }
      return tell(flow, {.kind = FlowEvent::Kind::closed,
                         .reason = event.reason,
                         .bytes = {},
                         .text = fmt::format("{} closed the flow", node_->name_of(number))});
    case Event::Kind::asked:
    case Event::Kind::over:
      break;
  }
}

void LiveEngine::take_asked(std::uint64_t number, Event& event) {
  Reader reader(event.bytes);
  const auto name = reader.get_bytes(reader.get<std::uint8_t>());
  const auto request = reader.rest();
  const std::string wanted(reinterpret_cast<const char*>(name.data()), name.size());
  if (!reader.good() || !node_->station().offers(wanted)) {
    node_->use(number)->refuse(event.flow, Reason::not_offered, {});
    return;
  }
  const FlowId flow = make_flow();
  FlowRecord& record = flows_[index_of(flow)];
  record.state = FlowRecord::State::asked;
  record.session = number;
  record.number = event.flow;
  sessions_.at(number).flows[event.flow] = flow;
  incoming_.push_back({flow, wanted, node_->name_of(number), {request.begin(), request.end()}});
  make_news();
}

// The name may have gone to another process of that host: it is looked for afresh, once.
void LiveEngine::take_refused(FlowId flow, Event& event, std::uint64_t now) {
  FlowRecord& record = *find(flow);
  if (event.reason == Reason::not_offered && !record.met_for_it) {
    by_key_.erase(record.key);
    leave_session(flow, Leaving::it_is_closed);
    record.state = FlowRecord::State::meeting;
    return meet(flow, now);
  }
  set_deadline(flow, UINT64_MAX);
  leave_session(flow, Leaving::it_is_closed);
  record.state = FlowRecord::State::open;
  tell(flow, {.kind = FlowEvent::Kind::refused,
              .reason = event.reason,
              .bytes = std::move(event.bytes),
              .text = fmt::format("{} refused the connection to '{}'", record.route.peer, record.name)});
}

void LiveEngine::session_over(std::uint64_t number, std::uint64_t now) {
  SessionRecord& session = sessions_.at(number);
  const Over over = node_->look(number)->over();
  const std::string text = fmt::format("{}: {}", node_->name_of(number), words_for(over));
  for (auto each = by_key_.begin(); each != by_key_.end();) {
    each = each->second == number ? by_key_.erase(each) : std::next(each);
  }
  const auto flows = session.flows;
  for (const auto& [its_number, flow] : flows) {
    FlowRecord& record = *find(flow);
    if (record.state == FlowRecord::State::asked) {
      leave_session(flow, Leaving::it_is_closed);
      free_flow(flow);
    } else if (record.state == FlowRecord::State::opening && !record.met_for_it) {
      // The other side ended a session that it did not need any more, while this side began to use it again.
      leave_session(flow, Leaving::it_is_closed);
      record.state = FlowRecord::State::meeting;
      meet(flow, now);
    } else if (record.state == FlowRecord::State::opening) {
      fail(flow, fmt::format("connect to '{}' at {}: {}", record.name, record.route.peer, text));
    } else {
      tell(flow, {.kind = FlowEvent::Kind::closed, .reason = reason_of(over), .bytes = {}, .text = text});
    }
  }
  if (sessions_.contains(number)) note_idle(number);
}

void LiveEngine::tell(FlowId flow, FlowEvent event) {
  FlowRecord& record = *find(flow);
  record.events.push_back(std::move(event));
  list(flow, record);
}

void LiveEngine::list(FlowId flow, FlowRecord& record) {
  make_news();
  if (record.listed) return;
  record.listed = true;
  ready_.push_back(flow);
}

std::size_t LiveEngine::take_ready(std::span<std::uint64_t> users) {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (; count < users.size() && !ready_.empty(); ++count) {
    FlowRecord& record = *find(ready_.front());
    ready_.pop_front();
    record.listed = false;
    users[count] = record.user;
  }
  return count;
}

bool LiveEngine::take_event(FlowId flow, FlowEvent& event) {
  const std::lock_guard lock(mutex_);
  FlowRecord* const record = find(flow);
  if (record == nullptr) return false;
  event = {};
  // An acceptance stands before what came after it; the end and the close stand behind what can be read.
  const bool first = !record->events.empty() && record->events.front().kind != FlowEvent::Kind::closed;
  if (first) {
    event = std::move(record->events.front());
    record->events.pop_front();
  } else if (std::exchange(record->readable, false)) {
    event.kind = FlowEvent::Kind::readable;
  } else if (std::exchange(record->writable, false)) {
    event.kind = FlowEvent::Kind::writable;
  } else if (std::exchange(record->delivered, false)) {
    event.kind = FlowEvent::Kind::delivered;
  } else if (std::exchange(record->ended, false)) {
    event.kind = FlowEvent::Kind::ended;
  } else if (!record->events.empty()) {
    event = std::move(record->events.front());
    record->events.pop_front();
  } else {
    return false;
  }
  return true;
}

}  // namespace viaduct::net
