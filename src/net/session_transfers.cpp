// Transfers: gets and puts, at the end that began them and at the end that owns the memory.
#include <algorithm>
#include <cstring>

#include "net/session.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint64_t kBlock = 64 << 10;      // asked for at a time
constexpr std::uint64_t kSmallBlock = 4 << 10;  // asked for when nothing else of it is, however much others ask
constexpr std::uint64_t kLeastFirstAsk = 1024;  // of a get, whatever else is asked for
constexpr std::uint32_t kMostPeersGets = 16;    // of one flow at a time; the next waits for its turn
constexpr std::uint32_t kMostOffers = 8;        // of one flow that are pulled at the same time
constexpr std::size_t kPutFields = 20;
constexpr std::size_t kMostPieces = 1024;
constexpr std::size_t kMostResults = 4096;

}  // namespace

Session::PeersPlace Session::place_from(Reader& reader) {
  PeersPlace place;
  place.transfer = reader.get<std::uint32_t>();
  place.tag = reader.get<std::uint64_t>();
  place.address = reader.get<std::uint64_t>();
  return place;
}

// Begun here.

Flow* Session::flow_with_credit(std::uint32_t flow) {
  if (!takes_items(flow)) return nullptr;
  Flow* found = find(flow);
  if (!found->outgoing->has_credit()) {
    found->refused_full = true;
    return nullptr;
  }
  return found;
}

Transfer& Session::begin(std::uint32_t flow, Transfer::Role role, std::uint64_t cookie, std::byte* local,
                         std::uint64_t length) {
  std::uint32_t id;
  do {
    id = next_transfer_ | whose(true);
    next_transfer_ = (next_transfer_ + 1) & ~kTransferOfAcceptor;
  } while ((id & ~kTransferOfAcceptor) == 0 || transfers_.contains(id));
  Transfer& transfer = transfers_[id];
  transfer.id = id;
  transfer.flow = flow;
  transfer.role = role;
  transfer.cookie = cookie;
  transfer.local = local;
  transfer.length = length;
  return transfer;
}

void Session::send_item(Flow& flow, What what, std::vector<std::byte> bytes) {
  const iovec piece{bytes.data(), bytes.size()};
  flow.outgoing->push(what, {&piece, 1});
  queue(flow);
}

bool Session::get(std::uint32_t flow, std::byte* local, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
                  std::uint64_t cookie) {
  Flow* found = flow_with_credit(flow);
  if (found == nullptr) return false;
  Transfer& transfer = begin(flow, Transfer::Role::our_get, cookie, local, length);
  const std::uint64_t spare = options_.pull_bytes > asked_bytes_ ? options_.pull_bytes - asked_bytes_ : 0;
  transfer.asked = std::min(length, std::max(kLeastFirstAsk, std::min(kBlock, spare)));
  transfer.waits_to_ask = true;  // the owner cannot serve what it has not yet heard of
  asked_bytes_ += transfer.asked;
  send_item(*found, What::get,
            GrowingBytes()
                .add(transfer.id)
                .add(tag)
                .add(address)
                .add(length)
                .add(static_cast<std::uint32_t>(transfer.asked))
                .take());
  return true;
}

bool Session::put(std::uint32_t flow, const std::byte* local, std::uint64_t tag, std::uint64_t address,
                  std::uint64_t length, std::uint64_t cookie) {
  Flow* found = flow_with_credit(flow);
  if (found == nullptr) return false;
  // What is only read is kept with what is written: one kind of transfer.
  Transfer& transfer = begin(flow, Transfer::Role::our_put, cookie, const_cast<std::byte*>(local), length);
  GrowingBytes item;
  item.add(transfer.id).add(tag).add(address);
  const bool small = length <= std::min<std::uint64_t>(kSmallPut, found->outgoing->largest() - kPutFields);
  if (small) {
    item.add_all({local, static_cast<std::size_t>(length)});
  } else {
    item.add(length);
  }
  send_item(*found, small ? What::put : What::offer, item.take());
  return true;
}

// Begun by the peer: items that are no messages, when their turn comes.

bool Session::begun_by_peer(std::uint32_t id) const {
  return (id & kTransferOfAcceptor) == whose(false) && (id & ~kTransferOfAcceptor) != 0;
}

bool Session::run_head(Flow& flow) {
  if (over_ != Over::no) return false;
  switch (flow.incoming.what()) {
    case What::put:
      return run_put(flow);
    case What::offer:
      return run_offers(flow);
    case What::get:
      return flow.state == Flow::State::gone || run_get(flow);
    default:
      return true;
  }
}

bool Session::run_put(Flow& flow) {
  Reader reader(flow.incoming.bytes());
  const PeersPlace place = place_from(reader);
  const auto bytes = reader.rest();
  if (!reader.good() || !begun_by_peer(place.transfer)) return break_session(), true;
  const auto reached =
      memory_.reach(flow.user, place.tag, place.address, bytes.size(), RegisteredMemory::Access::write);
  if (reached.status == TransferStatus::done && !bytes.empty()) std::memcpy(reached.at, bytes.data(), bytes.size());
  if (flow.state != Flow::State::gone) owe_result(flow, place.transfer, reached.status);
  return true;
}

Transfer& Session::take_on(Flow& flow, Transfer::Role role, const PeersPlace& place, std::uint64_t length) {
  Transfer& transfer = transfers_[place.transfer];
  transfer.id = place.transfer;
  transfer.flow = flow.id;
  transfer.user = flow.user;
  transfer.role = role;
  transfer.tag = place.tag;
  transfer.address = place.address;
  transfer.length = length;
  return transfer;
}

// Offers in a row are pulled at the same time, for nothing is to be seen between them; but those that touch the same
// bytes one after the other. True: the first is done.
bool Session::run_offers(Flow& flow) {
  if (!flow.pulling.empty() && flow.pulling.front() == 0) {
    flow.pulling.pop_front();
    return true;
  }
  if (flow.state == Flow::State::gone)
    return false;  // its bytes will not come, and what stands behind it must not be seen
  for (auto behind = static_cast<std::uint32_t>(flow.pulling.size()); behind < kMostOffers; ++behind) {
    if (!flow.incoming.ready(behind) || flow.incoming.what(behind) != What::offer) break;
    if (!begin_offer(flow, behind)) break;
  }
  if (over_ != Over::no || flow.pulling.empty() || flow.pulling.front() != 0) return false;
  flow.pulling.pop_front();
  return true;
}

// False: it waits for another.
bool Session::begin_offer(Flow& flow, std::uint32_t behind) {
  Reader reader(flow.incoming.bytes(behind));
  const PeersPlace place = place_from(reader);
  const auto length = reader.get<std::uint64_t>();
  if (!reader.good() || !begun_by_peer(place.transfer) || transfers_.contains(place.transfer))
    return break_session(), false;
  if (overlaps_another(flow, place, length)) return false;
  const auto reached = memory_.reach(flow.user, place.tag, place.address, length, RegisteredMemory::Access::write);
  if (reached.status != TransferStatus::done || length == 0) {
    owe_result(flow, place.transfer, reached.status);
    flow.pulling.push_back(0);
    return true;
  }
  Transfer& transfer = take_on(flow, Transfer::Role::peers_put, place, length);
  flow.pulling.push_back(transfer.id);
  pulls_.push_back(transfer.id);
  ask_more();
  keep_going(transfer);
  return true;
}

bool Session::overlaps_another(const Flow& flow, const PeersPlace& place, std::uint64_t length) const {
  return std::any_of(flow.pulling.begin(), flow.pulling.end(), [&](std::uint32_t id) {
    if (id == 0) return false;
    const Transfer& other = transfers_.at(id);
    return place.address - other.address < other.length || other.address - place.address < length;
  });
}

bool Session::run_get(Flow& flow) {
  if (flow.peers_gets >= kMostPeersGets) return false;
  Reader reader(flow.incoming.bytes());
  const PeersPlace place = place_from(reader);
  const auto length = reader.get<std::uint64_t>();
  const std::uint64_t asked = reader.get<std::uint32_t>();
  if (!reader.good() || !begun_by_peer(place.transfer) || transfers_.contains(place.transfer) || asked > length ||
      (asked == 0 && length > 0)) {
    return break_session(), true;
  }
  const auto reached = memory_.reach(flow.user, place.tag, place.address, length, RegisteredMemory::Access::read);
  if (reached.status != TransferStatus::done || length == 0) {
    owe_result(flow, place.transfer, reached.status);
    return true;
  }
  Transfer& transfer = take_on(flow, Transfer::Role::peers_get, place, length);
  transfer.asked_for.add({0, asked});
  transfer.to_send.add({0, asked});
  ++flow.peers_gets;
  queue_data(transfer);
  return true;
}

void Session::owe_result(Flow& flow, std::uint32_t transfer, TransferStatus status) {
  results_.push_back({transfer, status, flow.id});
  ++flow.results_owed;
}

// Asking, sending, placing.

void Session::ask(Transfer& transfer, std::uint64_t most) {
  const std::uint64_t size = std::min(most, transfer.length - transfer.asked);
  asks_.push_back({transfer.id, transfer.asked, static_cast<std::uint32_t>(size)});
  transfer.asked += size;
  asked_bytes_ += size;
}

// The transfers that want more take turns within what may be under way to this side.
void Session::ask_more() {
  while (!pulls_.empty() && asked_bytes_ + kBlock <= options_.pull_bytes) {
    Transfer& transfer = transfers_.find(pulls_.front())->second;
    pulls_.pop_front();
    if (transfer.asked == transfer.length) continue;
    ask(transfer, kBlock);
    if (transfer.asked < transfer.length) pulls_.push_back(transfer.id);
  }
}

// None stands still for others: they may wait for it themselves.
void Session::keep_going(Transfer& transfer) {
  if (transfer.asked == transfer.came.bytes() && transfer.asked < transfer.length) ask(transfer, kSmallBlock);
}

void Session::queue_data(Transfer& transfer) {
  if (transfer.queued || transfer.to_send.empty()) return;
  transfer.queued = true;
  data_ready_.push_back(transfer.id);
}

bool Session::take_ask(Reader& reader) {
  const auto id = reader.get<std::uint32_t>();
  const auto offset = reader.get<std::uint64_t>();
  const std::uint64_t size = reader.get<std::uint32_t>();
  if (!reader.good()) return false;
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) {
    // Given up here: the puller waits for nothing.
    results_.push_back({id, TransferStatus::flow_closed, 0});
    return results_.size() <= kMostResults;
  }
  Transfer& transfer = found->second;
  if (transfer.pulls() || size == 0 || offset > transfer.length || size > transfer.length - offset) return false;
  // What was asked for before is under way already.
  const ByteRange wanted{offset, offset + size};
  ByteRanges fresh;
  fresh.add(wanted);
  for (const ByteRange& had : transfer.asked_for.ranges()) fresh.remove(had);
  transfer.asked_for.add(wanted);
  for (const ByteRange& range : fresh.ranges()) transfer.to_send.add(range);
  queue_data(transfer);
  return transfer.asked_for.pieces() <= kMostPieces && results_.size() <= kMostResults;
}

bool Session::take_data(Reader& reader) {
  const auto id = reader.get<std::uint32_t>();
  const auto offset = reader.get<std::uint64_t>();
  const auto size = reader.get<std::uint16_t>();
  const auto bytes = reader.get_bytes(size);
  if (!reader.good() || size == 0) return false;
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) {
    // Done; or a get that was given up here before its owner heard of it.
    if (!begun_by_peer(id)) results_.push_back({id, TransferStatus::flow_closed, 0});
    return results_.size() <= kMostResults;
  }
  Transfer& transfer = found->second;
  if (!transfer.pulls() || offset > transfer.asked || size > transfer.asked - offset) return false;
  const std::uint64_t fresh = transfer.came.add({offset, offset + size});
  if (fresh == 0) return true;
  if (transfer.came.pieces() > kMostPieces) return false;
  asked_bytes_ -= fresh;
  std::byte* to = transfer.local + offset;
  if (!transfer.ours()) {
    const auto reached =
        memory_.reach(transfer.user, transfer.tag, transfer.address + offset, size, RegisteredMemory::Access::write);
    if (reached.status != TransferStatus::done) {
      finish_transfer(id, reached.status);
      return true;
    }
    to = reached.at;
  }
  std::memcpy(to, bytes.data(), size);
  if (transfer.came.bytes() == transfer.length) {
    finish_transfer(id, TransferStatus::done);
    ask_more();
    return true;
  }
  if (transfer.waits_to_ask) {
    transfer.waits_to_ask = false;
    if (transfer.asked < transfer.length) pulls_.push_back(id);
  }
  ask_more();
  keep_going(transfer);
  return true;
}

bool Session::take_result(Reader& reader) {
  const auto id = reader.get<std::uint32_t>();
  const auto status = reader.get<TransferStatus>();
  if (!reader.good() || status > TransferStatus::flow_closed) return false;
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return true;
  // Of a get only a failure is told; of a put that this side pulls, that its source is gone.
  if (found->second.role == Transfer::Role::our_get && status == TransferStatus::done && found->second.length > 0) {
    return false;
  }
  finish_transfer(id, status);
  return true;
}

// Tells whoever waits for it, and forgets it.
void Session::finish_transfer(std::uint32_t id, TransferStatus status) {
  Transfer& transfer = transfers_.find(id)->second;
  if (transfer.ours()) {
    Event& event = tell(Event::Kind::transferred, transfer.flow);
    event.cookie = transfer.cookie;
    event.status = status;
  } else if (Flow* flow = find(transfer.flow); transfer.role == Transfer::Role::peers_put && flow != nullptr) {
    owe_result(*flow, id, status);
  }
  drop_transfer(id);
}

// Forgets it; the flow goes on with what waited for it.
void Session::drop_transfer(std::uint32_t id) {
  const auto found = transfers_.find(id);
  const Transfer& transfer = found->second;
  const Transfer::Role role = transfer.role;
  Flow* flow = find(transfer.flow);
  if (transfer.pulls()) {
    asked_bytes_ -= transfer.asked - transfer.came.bytes();
    std::erase(pulls_, id);
    std::erase_if(asks_, [id](const Ask& ask) { return ask.transfer == id; });
  }
  if (transfer.queued) std::erase(data_ready_, id);
  transfers_.erase(found);
  if (flow == nullptr) return;
  if (role == Transfer::Role::peers_put) {
    if (flow->state == Flow::State::gone) return;
    std::replace(flow->pulling.begin(), flow->pulling.end(), id, std::uint32_t{0});
    advance(*flow);
  } else if (role == Transfer::Role::peers_get) {
    --flow->peers_gets;
    advance(*flow);
  } else {
    settle(*flow);
  }
}

}  // namespace viaduct::net
