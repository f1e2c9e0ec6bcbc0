#include "via/port/net_reach.hpp"

#include <algorithm>

namespace viaduct::via {

namespace {

constexpr std::size_t kMostOperations = 4096;
constexpr std::size_t kMostWaiting = 256;  // pieces

Reach::Began how_it_ended(net::TransferStatus status) {
  switch (status) {
    case net::TransferStatus::done:
      return Reach::Began::done;
    case net::TransferStatus::no_such_tag:
    case net::TransferStatus::out_of_bounds:
    case net::TransferStatus::not_allowed:
      return Reach::Began::refused;
    case net::TransferStatus::flow_closed:
      break;
  }
  return Reach::Began::gone;
}

}  // namespace

Reach::Began NetReach::begin(Way way, std::span<const iovec> local, const RemoteBytes& there, std::uint64_t cookie) {
  send_waiting();
  if (waiting_.size() >= kMostWaiting || operations_.size() >= kMostOperations) return Began::full;
  if (channel_.close_reason() != CloseReason::open) return Began::gone;
  std::uint64_t at = 0, left = there.length;
  const std::uint64_t number = next_operation_++;
  Operation& operation = operations_[number];
  operation.cookie = cookie;
  for (const iovec& piece : local) {
    const std::uint64_t part = std::min<std::uint64_t>(piece.iov_len, left);
    if (part == 0) continue;
    waiting_.push_back({way, static_cast<std::byte*>(piece.iov_base), there.key, there.address + at, part, number});
    ++operation.pieces;
    at += part;
    left -= part;
  }
  if (operation.pieces == 0) {  // nothing to move: but it is checked all the same
    waiting_.push_back({way, nullptr, there.key, there.address, 0, number});
    operation.pieces = 1;
  }
  send_waiting();
  return Began::under_way;
}

void NetReach::send_waiting() {
  net::Engine& engine = channel_.network().engine();
  bool any = false;
  while (!waiting_.empty()) {
    const Piece& piece = waiting_.front();
    const net::FlowId flow = channel_.flow();
    const net::Sent sent = piece.way == Way::get
                               ? engine.get(flow, piece.local, piece.key, piece.address, piece.length, piece.operation)
                               : engine.put(flow, piece.local, piece.key, piece.address, piece.length, piece.operation);
    if (sent == net::Sent::full) break;
    if (sent != net::Sent::yes) {
      fail_all();
      break;
    }
    channel_.count_taken();
    waiting_.pop_front();
    any = true;
  }
  channel_.hold_back(!waiting_.empty());
  if (any) engine.flush();
}

void NetReach::ended(std::uint64_t number, Began how) {
  const auto found = operations_.find(number);
  if (found == operations_.end()) return;
  Operation& operation = found->second;
  if (operation.how == Began::done) operation.how = how;
  if (--operation.pieces > 0) return;
  ends_.push_back({operation.cookie, operation.how});
  operations_.erase(found);
}

// The flow takes nothing more.
void NetReach::fail_all() {
  for (const Piece& piece : waiting_) ended(piece.operation, Began::gone);
  waiting_.clear();
}

bool NetReach::take_end(End& end) {
  send_waiting();
  net::FlowEvent event;
  while (channel_.take_transferred(event)) ended(event.cookie, how_it_ended(event.status));
  if (ends_.empty()) return false;
  end = ends_.front();
  ends_.pop_front();
  return true;
}

void NetReach::give_up() {
  channel_.network().engine().give_up_transfers(channel_.flow());
  net::FlowEvent event;
  while (channel_.take_transferred(event)) continue;
  operations_.clear();
  waiting_.clear();
  ends_.clear();
  channel_.hold_back(false);
}

}  // namespace viaduct::via
