#include <rdma/fi_errno.h>

#include <mutex>

#include "fabric/endpoint.hpp"

namespace viaduct::fabric {

int error_of(mx::Status status) {
  switch (status) {
    case mx::Status::success:
    case mx::Status::buffered:
      return 0;
    case mx::Status::truncated:
      return FI_ETRUNC;
    case mx::Status::cancelled:
      return FI_ECANCELED;
    case mx::Status::timed_out:
      return FI_ETIMEDOUT;
    case mx::Status::endpoint_unreachable:
    case mx::Status::endpoint_unknown:
      return FI_EHOSTUNREACH;
    case mx::Status::endpoint_closed:
    case mx::Status::bad_session:
      return FI_ECONNABORTED;
    case mx::Status::rejected:
    case mx::Status::bad_key:
      return FI_ECONNREFUSED;
    case mx::Status::no_resources:
      return FI_ENOMEM;
    default:
      return FI_EIO;
  }
}

bool Endpoint::completed(mx::Request* request, const mx::Completion& completion) {
  if (completion.context == nullptr) return true;
  Operation& operation = *static_cast<Operation*>(completion.context);
  if (operation.kind == Operation::Kind::remote) return reached(operation, completion), true;
  const bool goes_on = operation.kind == Operation::Kind::several && completion.status == mx::Status::success;
  bool is_over = true;
  {
    const std::lock_guard lock(lock_);
    is_over = cancelling_ == 0;
    if (!is_over) left_over_.push_back(request);
    operation.request = nullptr;
    if (!goes_on) over(operation);
  }
  switch (operation.kind) {
    case Operation::Kind::send:
      tell_sent(operation, completion);
      break;
    case Operation::Kind::several:
      if (goes_on) return one_of_several(operation, completion), is_over;
      [[fallthrough]];
    case Operation::Kind::receive:
      tell_received(operation, completion);
      break;
    default:
      break;
  }
  free(operation);
  return is_over;
}

void Endpoint::tell_sent(Operation& operation, const mx::Completion& completion) {
  const int error = error_of(completion.status);
  count(kSends, error == 0);
  if (send_queue_ == nullptr || (error == 0 && !operation.tells)) return;
  send_queue_->write({.entry = {operation.context, operation.flags, 0, nullptr, 0, completion.match}, .error = error});
}

void Endpoint::tell_received(Operation& operation, const mx::Completion& completion) {
  const int error = error_of(completion.status);
  count(kReceives, error == 0);
  if (receive_queue_ == nullptr || (error == 0 && !operation.tells)) return;
  Completed told{.entry = {operation.context, operation.flags, completion.transferred, operation.buffer,
                           completion.data, completion.match},
                 .error = error};
  if (completion.has_data) told.entry.flags |= FI_REMOTE_CQ_DATA;
  if (operation.kind == Operation::Kind::several) told.entry.flags |= FI_MULTI_RECV;
  if (completion.partner != nullptr) told.source = address_at(completion.partner);
  if (error == FI_ETRUNC) told.left_out = completion.length - completion.transferred;
  receive_queue_->write(told);
}

void Endpoint::one_of_several(Operation& operation, const mx::Completion& completion) {
  Completed told{.entry = {operation.context, operation.flags, completion.transferred,
                           static_cast<std::byte*>(operation.buffer) + operation.used, completion.data, 0}};
  if (completion.has_data) told.entry.flags |= FI_REMOTE_CQ_DATA;
  told.source = address_at(completion.partner);
  operation.used += completion.transferred;
  const bool full = operation.length - operation.used < least_room_;
  if (full) told.entry.flags |= FI_MULTI_RECV;
  count(kReceives, true);
  if (receive_queue_ != nullptr && (operation.tells || full)) receive_queue_->write(told);
  if (!full) return post_several(operation);
  {
    const std::lock_guard lock(lock_);
    over(operation);
  }
  free(operation);
}

void Endpoint::control(mx::Partner* partner, std::uint32_t word, std::span<const std::byte> bytes) {
  switch (static_cast<RemoteWord>(word)) {
    case RemoteWord::key_wanted:
      return answer_key(partner, bytes);
    case RemoteWord::key:
      return hear_key(partner, bytes);
    case RemoteWord::ask:
      return answer_ask(partner, bytes);
    case RemoteWord::answer:
      return hear_answer(partner, bytes);
    case RemoteWord::notice:
      return hear_notice(bytes);
    case RemoteWord::rank:
      return hear_rank(partner, bytes);
  }
}

void Endpoint::partner_gone(mx::Partner* partner, mx::Status why) {
  const int error = error_of(why);
  fail_all_with(partner, error == 0 ? FI_ECONNABORTED : error);
}

}  // namespace viaduct::fabric
