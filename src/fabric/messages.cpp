#include <rdma/fi_errno.h>

#include <algorithm>
#include <mutex>

#include "fabric/endpoint.hpp"
#include "fabric/info.hpp"

namespace viaduct::fabric {

// ---- operations

Operation* Endpoint::begin(Operation::Kind kind, void* context, std::uint64_t flags) {
  const std::lock_guard lock(lock_);
  if (under_way_ >= kMostUnderWay) return nullptr;
  if (free_ == nullptr) free_ = &pool_.emplace_back();
  Operation& operation = *free_;
  free_ = operation.next;
  ++under_way_;
  operation.kind = kind;
  operation.context = context;
  operation.flags = flags;
  operation.number = next_number_++;
  operation.request = nullptr;
  operation.used = operation.moved = 0;
  operation.asked_again = operation.has_data = false;
  operation.next = live_.next;
  operation.previous = &live_;
  if (live_.next != nullptr) live_.next->previous = &operation;
  live_.next = &operation;
  return &operation;
}

// It may have completed meanwhile, and been used again.
void Endpoint::began(Operation& operation, std::uint64_t number, mx::Request* request) {
  const std::lock_guard lock(lock_);
  if (operation.number == number) operation.request = request;
}

void Endpoint::over(Operation& operation) {
  operation.previous->next = operation.next;
  if (operation.next != nullptr) operation.next->previous = operation.previous;
  operation.number = 0;
  operation.request = nullptr;
}

void Endpoint::free(Operation& operation) {
  operation.copy.clear();
  operation.pieces.clear();
  operation.operands.clear();
  const std::lock_guard lock(lock_);
  operation.next = free_;
  free_ = &operation;
  --under_way_;
}

// ---- sending

ssize_t Endpoint::send(const Outgoing& message) {
  if (!enabled_) return -FI_EOPBADSTATE;
  if (message.bytes.size() > kMostPieces) return -FI_EINVAL;
  mx::Partner* const to = partner_at(message.to);
  if (to == nullptr) return -FI_EINVAL;
  const bool inject = message.silent || (message.flags & FI_INJECT) != 0;
  std::size_t length = 0;
  for (const iovec& piece : message.bytes) length += piece.iov_len;
  if (length > (inject ? kInjectSize : kMostMessage)) return -FI_EMSGSIZE;
  const std::uint64_t kind = message.space == kTagged ? FI_TAGGED : FI_MSG;
  Operation* const operation = begin(Operation::Kind::send, message.context, FI_SEND | kind);
  if (operation == nullptr) {
    progress();
    return -FI_EAGAIN;
  }
  operation->tells = !message.silent && (!send_selects_ || (message.flags & FI_COMPLETION) != 0);
  mx::Send send{.to = to,
                .bytes = message.bytes,
                .match = message.tag,
                .space = message.space,
                .until_matched = (message.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0,
                .has_data = message.has_data,
                .data = message.data,
                .context = operation};
  iovec whole{};
  if (inject && length != 0) {
    operation->copy.resize(length);
    std::size_t at = 0;
    for (const iovec& piece : message.bytes) {
      const auto* const from = static_cast<const std::byte*>(piece.iov_base);
      std::copy_n(from, piece.iov_len, operation->copy.begin() + static_cast<std::ptrdiff_t>(at));
      at += piece.iov_len;
    }
    whole = {operation->copy.data(), length};
    send.bytes = {&whole, 1};
  }
  const std::uint64_t number = operation->number;
  mx::Request* const request = below_->send(send);
  if (request != nullptr) return began(*operation, number, request), 0;
  {
    const std::lock_guard lock(lock_);
    over(*operation);
  }
  free(*operation);
  return -FI_ENOMEM;
}

// ---- receiving

mx::Receive Endpoint::like(const Incoming& wanted, mx::Partner* from) {
  const std::uint64_t mask = wanted.space == kTagged ? ~wanted.ignore : 0;
  return {.into = wanted.into, .match = wanted.tag & mask, .mask = mask, .space = wanted.space, .from = from};
}

ssize_t Endpoint::receive(const Incoming& wanted) {
  if (!enabled_) return -FI_EOPBADSTATE;
  if (wanted.into.size() > kMostPieces) return -FI_EINVAL;
  if ((wanted.flags & FI_PEEK) != 0) return peek(wanted);
  if ((wanted.flags & FI_CLAIM) != 0) return receive_claimed(wanted);
  if ((wanted.flags & FI_MULTI_RECV) != 0) return receive_several(wanted);
  mx::Partner* from = nullptr;
  if (wanted.from != FI_ADDR_UNSPEC && (caps_ & FI_DIRECTED_RECV) != 0) {
    from = partner_at(wanted.from);
    if (from == nullptr) return -FI_EINVAL;
  }
  const std::uint64_t kind = wanted.space == kTagged ? FI_TAGGED : FI_MSG;
  Operation* const operation = begin(Operation::Kind::receive, wanted.context, FI_RECV | kind);
  if (operation == nullptr) return -FI_EAGAIN;
  operation->tells = !receive_selects_ || (wanted.flags & FI_COMPLETION) != 0;
  operation->buffer = wanted.into.empty() ? nullptr : wanted.into[0].iov_base;
  mx::Receive receive = like(wanted, from);
  receive.context = operation;
  const std::uint64_t number = operation->number;
  mx::Request* const request = below_->receive(receive);
  if (request != nullptr) return began(*operation, number, request), 0;
  {
    const std::lock_guard lock(lock_);
    over(*operation);
  }
  free(*operation);
  return -FI_ENOMEM;
}

// One buffer, as many messages as it holds: what is left of it is posted again for each.
ssize_t Endpoint::receive_several(const Incoming& wanted) {
  if (wanted.into.size() != 1 || wanted.space != kPlain || wanted.into[0].iov_len < least_room_) return -FI_EINVAL;
  Operation* const operation = begin(Operation::Kind::several, wanted.context, FI_RECV | FI_MSG);
  if (operation == nullptr) return -FI_EAGAIN;
  operation->tells = !receive_selects_ || (wanted.flags & FI_COMPLETION) != 0;
  operation->buffer = wanted.into[0].iov_base;
  operation->length = wanted.into[0].iov_len;
  operation->partner = nullptr;
  if (wanted.from != FI_ADDR_UNSPEC && (caps_ & FI_DIRECTED_RECV) != 0) operation->partner = partner_at(wanted.from);
  post_several(*operation);
  return 0;
}

void Endpoint::post_several(Operation& operation) {
  const iovec rest{static_cast<std::byte*>(operation.buffer) + operation.used, operation.length - operation.used};
  const std::uint64_t number = operation.number;
  mx::Request* const request = below_->receive(
      {.into = {&rest, 1}, .match = 0, .mask = 0, .space = kPlain, .from = operation.partner, .context = &operation});
  if (request != nullptr) return began(operation, number, request);
  Completed failed{.entry = {operation.context, operation.flags | FI_MULTI_RECV, 0, nullptr, 0, 0},
                   .source = FI_ADDR_NOTAVAIL,
                   .error = FI_ENOMEM};
  if (receive_queue_ != nullptr) receive_queue_->write(failed);
  {
    const std::lock_guard lock(lock_);
    over(operation);
  }
  free(operation);
}

// Looks whether such a message is there: a completion with its length, or an error that says there is none.
ssize_t Endpoint::peek(const Incoming& wanted) {
  progress();
  mx::Partner* from = nullptr;
  if (wanted.from != FI_ADDR_UNSPEC && (caps_ & FI_DIRECTED_RECV) != 0) from = partner_at(wanted.from);
  const mx::Receive what = like(wanted, from);
  mx::Waiting found;
  bool is_there = false;
  if ((wanted.flags & (FI_CLAIM | FI_DISCARD)) != 0) {
    mx::Message* const message = below_->claim(what, found);
    is_there = message != nullptr;
    if (is_there && (wanted.flags & FI_CLAIM) != 0) {
      const std::lock_guard lock(lock_);
      claimed_[wanted.context] = message;
    } else if (is_there) {
      Operation* const operation = begin(Operation::Kind::discard, nullptr, 0);
      if (operation == nullptr) return -FI_EAGAIN;
      (void)below_->receive_claimed(message, {.context = operation});
    }
  } else {
    is_there = below_->probe(what, found);
  }
  const std::uint64_t kind = wanted.space == kTagged ? FI_TAGGED : FI_MSG;
  Completed told{.entry = {wanted.context, FI_RECV | kind, found.length, nullptr, found.data, found.match}};
  if (found.has_data) told.entry.flags |= FI_REMOTE_CQ_DATA;
  if (is_there)
    told.source = address_at(found.from);
  else
    told.error = FI_ENOMSG;
  if (receive_queue_ != nullptr) receive_queue_->write(told);
  return 0;
}

ssize_t Endpoint::receive_claimed(const Incoming& wanted) {
  mx::Message* message = nullptr;
  {
    const std::lock_guard lock(lock_);
    const auto found = claimed_.find(wanted.context);
    if (found == claimed_.end()) return -FI_EINVAL;
    message = found->second;
    claimed_.erase(found);
  }
  const bool discard = (wanted.flags & FI_DISCARD) != 0;
  const std::uint64_t kind = wanted.space == kTagged ? FI_TAGGED : FI_MSG;
  Operation* const operation =
      begin(discard ? Operation::Kind::discard : Operation::Kind::receive, wanted.context, FI_RECV | kind);
  if (operation == nullptr) {
    const std::lock_guard lock(lock_);
    claimed_[wanted.context] = message;
    return -FI_EAGAIN;
  }
  operation->tells = !receive_selects_ || (wanted.flags & FI_COMPLETION) != 0;
  operation->buffer = wanted.into.empty() ? nullptr : wanted.into[0].iov_base;
  const std::uint64_t number = operation->number;
  const mx::Receive receive{.into = discard ? std::span<const iovec>{} : wanted.into, .context = operation};
  began(*operation, number, below_->receive_claimed(message, receive));
  return 0;
}

// ---- giving up

// A request does not go away between being found here and being cancelled: whoever completes it meanwhile sees
// `cancelling_`, and leaves it to us.
ssize_t Endpoint::cancel(void* context) {
  mx::Request* request = nullptr;
  {
    const std::lock_guard lock(lock_);
    for (Operation* one = live_.next; one != nullptr && request == nullptr; one = one->next) {
      if (one->context == context && one->kind != Operation::Kind::remote) request = one->request;
    }
    if (request == nullptr) return -FI_ENOENT;
    ++cancelling_;
  }
  const bool done = below_->cancel(request);
  std::vector<mx::Request*> mine;
  {
    const std::lock_guard lock(lock_);
    if (--cancelling_ == 0) mine.swap(left_over_);
  }
  mx::Completion ignored;
  for (mx::Request* const one : mine) (void)below_->take(one, ignored);
  return done ? 0 : -FI_ENOENT;
}

}  // namespace viaduct::fabric
