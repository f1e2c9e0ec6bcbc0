// Flows: how they are opened, fed, read and closed.
#include <algorithm>

#include "net/session.hpp"

namespace viaduct::net {

namespace {

constexpr std::size_t kOpenFields = 12;     // of an open or accept, before the program's bytes
constexpr std::size_t kMostBacklog = 4096;  // control items without credit, for what the peer can bring about

FlowLimits limits_from(Reader& reader) {
  FlowLimits limits;
  limits.slots = reader.get<std::uint32_t>();
  limits.slot_size = reader.get<std::uint32_t>();
  return limits;
}

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

bool Session::are_sane(const FlowLimits& limits) {
  return limits.slots >= 1 && limits.slots <= 4096 && limits.slot_size >= 64 && limits.slot_size <= (1U << 20) &&
         std::uint64_t{limits.slots} * limits.slot_size <= (16U << 20);
}

bool Session::takes_items(std::uint32_t flow) const {
  const Flow* found = find(flow);
  return over_ == Over::no && found != nullptr && flow != kControlFlow && found->state == Flow::State::open &&
         !found->finished;
}

Flow* Session::find(std::uint32_t flow) const {
  const auto found = flows_.find(flow);
  return found == flows_.end() ? nullptr : found->second.get();
}

void Session::queue(Flow& flow) {
  if (flow.queued) return;
  flow.queued = true;
  sending_.push_back(flow.id);
}

void Session::send_control(What what, std::vector<std::byte> bytes) {
  backlog_.push_back({what, std::move(bytes)});
  drain_backlog();
}

void Session::drain_backlog() {
  Flow& control = *find(kControlFlow);
  while (!backlog_.empty() && control.outgoing->has_credit()) {
    const Backlog next = std::move(backlog_.front());
    backlog_.pop_front();
    const iovec piece{const_cast<std::byte*>(next.bytes.data()), next.bytes.size()};
    control.outgoing->push(next.what, {&piece, 1});
    queue(control);
  }
}

std::uint32_t Session::open(const FlowLimits& limits, std::span<const std::byte> request) {
  if (over_ != Over::no || !are_sane(limits) || request.size() + kOpenFields > kControlSlotSize) return 0;
  if (flows_.size() > options_.most_flows || backlog_.size() >= kControlSlots) return 0;
  const std::uint32_t id = next_flow_;
  next_flow_ += 2;
  flows_.emplace(id, std::make_unique<Flow>(id, limits, options_.first_sequence));
  send_control(What::open, GrowingBytes().add(id).add(limits.slots).add(limits.slot_size).add_all(request).take());
  return id;
}

bool Session::accept(std::uint32_t flow, const FlowLimits& limits, std::span<const std::byte> answer) {
  const auto asked = asked_.find(flow);
  if (over_ != Over::no || asked == asked_.end() || !are_sane(limits)) return false;
  if (answer.size() > kControlSlotSize - kOpenFields) return false;
  auto opened = std::make_unique<Flow>(flow, limits, options_.first_sequence);
  opened->connect(options_.first_sequence, asked->second);
  flows_.emplace(flow, std::move(opened));
  asked_.erase(asked);
  send_control(What::accept, GrowingBytes().add(flow).add(limits.slots).add(limits.slot_size).add_all(answer).take());
  return true;
}

void Session::refuse(std::uint32_t flow, Reason reason, std::span<const std::byte> answer) {
  if (asked_.erase(flow) == 0 || over_ != Over::no) return;
  answer = answer.first(std::min(answer.size(), kControlSlotSize - kOpenFields));
  send_control(What::refuse, GrowingBytes().add(flow).add(reason).add_all(answer).take());
}

Sent Session::try_send(std::uint32_t flow, std::span<const iovec> pieces) {
  if (!takes_items(flow)) return Sent::closed;
  Flow* found = find(flow);
  std::size_t size = 0;
  for (const iovec& piece : pieces) size += piece.iov_len;
  if (size > found->outgoing->largest()) return Sent::too_long;
  if (!found->outgoing->has_credit()) {
    found->refused_full = true;
    ++counters_.credit_limited;
    return Sent::full;
  }
  found->outgoing->push(What::message, pieces);
  queue(*found);
  return Sent::yes;
}

std::size_t Session::largest_item(std::uint32_t flow) const {
  const Flow* found = find(flow);
  return found != nullptr && found->outgoing ? found->outgoing->largest() : 0;
}

std::uint32_t Session::credit(std::uint32_t flow) {
  Flow* found = find(flow);
  if (found == nullptr || !found->outgoing || found->state != Flow::State::open) return 0;
  const std::uint32_t credit = found->outgoing->credit();
  found->refused_full |= credit == 0;
  return credit;
}

std::uint64_t Session::delivered(std::uint32_t flow) const {
  const Flow* found = find(flow);
  if (found == nullptr) return 0;
  return found->outgoing ? found->outgoing->delivered() : found->delivered;
}

void Session::tell_when_delivered(std::uint32_t flow, std::uint64_t items) {
  Flow* found = find(flow);
  if (found == nullptr || !found->outgoing) return;
  found->tell_delivered_at = items;
  tell_delivered(*found);
}

void Session::tell_delivered(Flow& flow) {
  if (flow.outgoing->delivered() < flow.tell_delivered_at) return;
  flow.tell_delivered_at = UINT64_MAX;
  tell(Event::Kind::delivered, flow.id);
}

bool Session::peek(std::uint32_t flow, std::span<const std::byte>& message) {
  Flow* found = find(flow);
  if (found == nullptr || flow == kControlFlow || found->state == Flow::State::lingering) return false;
  if (!found->incoming.ready() || found->incoming.what() != What::message) {
    found->readable_told = false;
    return false;
  }
  message = found->incoming.bytes();
  return true;
}

void Session::consume(std::uint32_t flow) {
  Flow* found = find(flow);
  if (found == nullptr || !found->incoming.ready()) return;
  found->incoming.consume();
  advance(*found);
}

// After something came or was consumed: runs what is no message, and tells what the program should know.
void Session::advance(Flow& flow) {
  while (flow.incoming.ready() && (flow.incoming.what() != What::message || flow.state == Flow::State::lingering)) {
    if (flow.incoming.what() != What::message) {
      if (!run_head(flow)) break;
      if (over_ != Over::no) return;
    }
    flow.incoming.consume();
  }
  if (flow.incoming.credit_due() && flow.state != Flow::State::gone) queue(flow);
  if (flow.state == Flow::State::lingering || flow.state == Flow::State::opening) return;
  if (flow.incoming.ready() && flow.incoming.what() == What::message && !flow.readable_told) {
    flow.readable_told = true;
    tell(Event::Kind::readable, flow.id);
  }
  if (flow.incoming.at_end() && !flow.ended_told) {
    flow.ended_told = true;
    tell(Event::Kind::ended, flow.id);
  }
}

void Session::finish(std::uint32_t flow) {
  Flow* found = find(flow);
  if (found == nullptr || flow == kControlFlow || found->state != Flow::State::open || found->finished) return;
  found->finished = true;
  found->end_due = true;
  queue(*found);
}

void Session::close(std::uint32_t flow, bool in_good_order) {
  Flow* found = find(flow);
  if (found == nullptr || flow == kControlFlow) {
    refuse(flow, Reason::not_wanted, {});
    return;
  }
  if (over_ != Over::no || found->state == Flow::State::gone) return forget(flow, TransferStatus::flow_closed);
  if (found->state == Flow::State::opening || !in_good_order) {
    send_control(What::close, GrowingBytes().add(flow).add(Reason::aborted).take());
    return forget(flow, TransferStatus::flow_closed);
  }
  finish(flow);
  found->state = Flow::State::lingering;
  advance(*found);
  settle(*found);
}

void Session::tell_writable(Flow& flow) {
  if (!flow.refused_full || !flow.outgoing->has_credit()) return;
  flow.refused_full = false;
  tell(Event::Kind::writable, flow.id);
}

// A flow that was closed here goes when all was delivered.
void Session::settle(Flow& flow) {
  if (flow.state != Flow::State::lingering || !flow.all_delivered() || flow.results_owed > 0) return;
  const std::uint32_t id = flow.id;
  // What this side began and is not done, the peer has not got in good order.
  const bool cut = std::any_of(transfers_.begin(), transfers_.end(),
                               [id](const auto& entry) { return entry.second.ours() && entry.second.flow == id; });
  if (cut) return;  // until the results are there
  send_control(What::close, GrowingBytes().add(id).add(Reason::done).take());
  forget(id, TransferStatus::flow_closed);
}

void Session::end_transfers_of(std::uint32_t flow, TransferStatus status) {
  std::vector<std::uint32_t> theirs;
  for (const auto& [id, transfer] : transfers_) {
    if (transfer.flow == flow) theirs.push_back(id);
  }
  for (const std::uint32_t id : theirs) {
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) continue;  // the session broke meanwhile
    if (found->second.ours()) {
      finish_transfer(id, status);
    } else {
      drop_transfer(id);
    }
  }
}

void Session::give_up_transfers(std::uint32_t flow) {
  std::vector<std::uint32_t> ours;
  for (const auto& [id, transfer] : transfers_) {
    if (transfer.flow == flow && transfer.ours()) ours.push_back(id);
  }
  for (const std::uint32_t id : ours) {
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) continue;
    // The peer need not wait for asks or bytes that will not come, nor keep back what stands behind.
    results_.push_back({id, TransferStatus::flow_closed, 0});
    drop_transfer(id);
  }
}

void Session::forget(std::uint32_t flow, TransferStatus status) {
  Flow* found = find(flow);
  found->state = Flow::State::gone;
  end_transfers_of(flow, status);
  std::erase(sending_, flow);
  std::erase_if(events_, [flow](const Event& event) {
    return event.flow == flow && (event.kind == Event::Kind::readable || event.kind == Event::Kind::writable ||
                                  event.kind == Event::Kind::ended);
  });
  flows_.erase(flow);
}

// Control items, in order.
bool Session::take_control(Flow& control) {
  while (control.incoming.ready()) {
    const What what = control.incoming.what();
    Reader reader(control.incoming.bytes());
    const bool possible = what == What::open     ? take_open(reader)
                          : what == What::accept ? take_accept(reader)
                          : what == What::refuse ? take_refusal(reader)
                          : what == What::close  ? take_close(reader)
                                                 : false;
    if (!possible || backlog_.size() > kMostBacklog) return false;
    control.incoming.consume();
  }
  if (control.incoming.credit_due()) queue(control);
  return true;
}

bool Session::take_open(Reader& reader) {
  const auto id = reader.get<std::uint32_t>();
  const FlowLimits limits = limits_from(reader);
  const auto request = reader.rest();
  const bool of_connecting = id % 2 == 1;
  if (!reader.good() || id == kControlFlow || of_connecting == options_.connecting) return false;
  if (id <= peers_last_flow_ || !are_sane(limits)) return false;
  peers_last_flow_ = id;
  if (flows_.size() + asked_.size() > options_.most_flows) {
    send_control(What::refuse, GrowingBytes().add(id).add(Reason::too_many).take());
    return true;
  }
  asked_.emplace(id, limits);
  tell(Event::Kind::asked, id).bytes = copy_of(request);
  return true;
}

bool Session::take_accept(Reader& reader) {
  const auto id = reader.get<std::uint32_t>();
  const FlowLimits limits = limits_from(reader);
  const auto answer = reader.rest();
  if (!reader.good() || !are_sane(limits)) return false;
  Flow* flow = find(id);
  if (flow == nullptr) return true;  // closed here before the answer came
  if (id == kControlFlow || flow->state != Flow::State::opening) return false;
  flow->connect(options_.first_sequence, limits);
  tell(Event::Kind::accepted, id).bytes = copy_of(answer);
  advance(*flow);
  return true;
}

bool Session::take_refusal(Reader& reader) {
  const auto id = reader.get<std::uint32_t>();
  const auto reason = reader.get<Reason>();
  const auto answer = reader.rest();
  if (!reader.good()) return false;
  Flow* flow = find(id);
  if (flow == nullptr) return true;
  if (id == kControlFlow || flow->state != Flow::State::opening) return false;
  Event& event = tell(Event::Kind::refused, id);
  event.reason = reason;
  event.bytes = copy_of(answer);
  forget(id, TransferStatus::flow_closed);
  return true;
}

bool Session::take_close(Reader& reader) {
  const auto id = reader.get<std::uint32_t>();
  const auto reason = reader.get<Reason>();
  if (!reader.good() || id == kControlFlow) return false;
  Flow* flow = find(id);
  if (flow == nullptr) {
    if (asked_.erase(id) > 0) tell(Event::Kind::closed, id).reason = reason;
    return true;
  }
  if (flow->state == Flow::State::opening) return false;
  if (flow->state == Flow::State::lingering) {
    forget(id, TransferStatus::flow_closed);
    return true;
  }
  flow->state = Flow::State::gone;
  std::erase(sending_, id);
  flow->queued = false;
  if (flow->outgoing) flow->delivered = flow->outgoing->delivered();
  flow->outgoing.reset();
  end_transfers_of(id, TransferStatus::flow_closed);
  tell(Event::Kind::closed, id).reason = reason;
  return true;
}

}  // namespace viaduct::net
