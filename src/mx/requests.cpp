// What becomes of requests: done, taken, cancelled, out of time.
#include "mx/core.hpp"

namespace viaduct::mx {

using Stage = Request::Stage;

void Core::finish(Request& request, Status status) {
  if (request.partner != nullptr) {
    request.partner->requests.remove(request);
    if (!request.partner->getters.empty()) std::erase(request.partner->getters, &request);
  }
  timed_.remove(request);
  if (!request.keys.empty()) take_back(request, false);
  request.places.clear();
  request.link = nullptr;
  request.status = status;
  request.stage = Stage::done;
  if (statistics_ != nullptr) count(request);
  tell_waiters_ = true;
  if (events_ != nullptr) return to_tell_.append(request);
  if (request.forgotten) return give_back(request);
  finished_.append(request);
}

// For those who look on.
void Core::count(const Request& request) {
  if (request.status != Status::success && request.status != Status::truncated) return;
  const bool sent = request.kind == Completion::Kind::send;
  if (!sent && request.kind != Completion::Kind::receive) return;
  const Number messages = sent ? Number::messages_sent : Number::messages_received;
  const Number bytes = sent ? Number::bytes_sent : Number::bytes_received;
  statistics_->add(messages, 1);
  statistics_->add(bytes, request.length);
  PartnerEntry* const entry = request.partner->shown;
  if (entry == nullptr) return;
  Statistics::add(entry->numbers, messages, 1);
  Statistics::add(entry->numbers, bytes, request.length);
}

void Core::publish() {
  statistics_->set(Number::posted, matcher_.posted().size());
  statistics_->set(Number::unexpected, matcher_.arrived().size());
  statistics_->set(Number::unexpected_bytes, unexpected_bytes_);
}

void Core::give_back(Request& request) {
  finished_.remove(request);
  pool_.give_back(request);
}

Completion Core::completion_of(const Request& request) const {
  Completion completion;
  completion.kind = request.kind;
  completion.status = request.status;
  completion.space = request.space;
  completion.has_data = request.has_data;
  completion.partner = request.partner;
  completion.match = request.finished_match;
  completion.data = request.data;
  completion.length = request.length;
  const bool moved = request.status == Status::success || request.status == Status::truncated;
  const bool received = request.kind == Completion::Kind::receive;
  completion.transferred = !moved ? 0 : received ? request.limit : request.length;
  completion.context = request.context;
  return completion;
}

bool Core::owns(const Request* request) {
  const Guard guard(*this);
  return pool_.owns(request) && request->stage != Stage::free;
}

bool Core::is_done(const Request* request) const {
  const Guard guard(*this);
  return request->stage == Stage::done;
}

bool Core::look(const Request* request, Completion& completion) const {
  const Guard guard(*this);
  if (request->stage != Stage::done) return false;
  completion = completion_of(*request);
  return true;
}

bool Core::take(Request* request, Completion& completion) {
  const Guard guard(*this);
  if (request->stage != Stage::done) return false;
  completion = completion_of(*request);
  give_back(*request);
  return true;
}

Request* Core::first_done(std::uint64_t match, std::uint64_t mask) const {
  const Guard guard(*this);
  for (Request* one = finished_.first(); one != nullptr; one = decltype(finished_)::next(*one))
    if ((one->finished_match & mask) == match) return one;
  return nullptr;
}

bool Core::is_buffered(const Request* request) const {
  const Guard guard(*this);
  return request->buffered || request->stage == Stage::done;
}

void Core::forget(Request* request) {
  const Guard guard(*this);
  if (request->stage == Stage::done)
    give_back(*request);
  else
    request->forgotten = true;
}

// ---- giving up

// False: it is too late, somebody else has a part in it.
bool Core::give_up(Request& request, Status why) {
  switch (request.stage) {
    case Stage::posted:
      matcher_.withdraw(request);
      break;
    case Stage::queued:
      if (request.progress != 0) return false;
      request.partner->line.remove(request);
      break;
    case Stage::connecting:
      break;
    case Stage::sent:
      if (request.to_self == nullptr) return false;
      matcher_.remove(*request.to_self);
      free_message(*request.to_self);
      request.to_self = nullptr;
      break;
    default:
      return false;
  }
  finish(request, why);
  return true;
}

bool Core::cancel(Request* request) {
  const Guard guard(*this);
  return give_up(*request, Status::cancelled);
}

void Core::give_time(Request& request, std::uint64_t until) {
  request.deadline = until;
  timed_.remove(request);
  if (until == UINT64_MAX) return;
  timed_.append(request);
  next_time_ = std::min(next_time_, until);
  tell_leader_ = true;
}

void Core::set_timeout(Request* request, std::uint64_t within_ns) {
  const Guard guard(*this);
  if (request == nullptr) {
    usual_timeout_ns_ = within_ns;
    return;
  }
  if (request->stage == Stage::done) return;
  give_time(*request, within_ns == kForever ? UINT64_MAX : Clock::steady().now_ns() + within_ns);
}

// Those whose time is over. What has begun ends here all the same: its memory is the program's again.
void Core::look_at_times() {
  if (next_time_ == UINT64_MAX) [[likely]]
    return;
  const std::uint64_t now = Clock::steady().now_ns();
  if (now < next_time_) return;
  next_time_ = UINT64_MAX;
  for (Request *one = timed_.first(), *next = nullptr; one != nullptr; one = next) {
    next = decltype(timed_)::next(*one);
    if (one->deadline > now) {
      next_time_ = std::min(next_time_, one->deadline);
      continue;
    }
    time_is_over(*one);
  }
}

void Core::time_is_over(Request& request) {
  if (give_up(request, Status::timed_out)) return;
  switch (request.stage) {
    case Stage::announced:
      take_back(request, true);
      return finish(request, Status::timed_out);
    case Stage::sent:
    case Stage::wanted:  // what still comes is dropped
      return finish(request, Status::timed_out);
    case Stage::arriving:
      request.link->receiver = nullptr;
      return finish(request, Status::timed_out);
    case Stage::pushing:
      request.partner->line.remove(request);
      return finish(request, Status::timed_out);
    default:
      break;  // part of a message is in the channel, or bytes are on their way into its memory: it goes on
  }
  timed_.remove(request);
}

}  // namespace viaduct::mx
