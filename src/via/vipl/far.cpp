// What only connections to other hosts need: ends of gets and puts that were under way, sends that are complete once
// the peer's side has them, messages that are fetched without anybody waiting for it.
#include <utility>

#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

using Began = via::Reach::Began;

void Vi::take_news_from_afar(Effects& effects) {
  via::Reach::End end;
  while (state_ == VIP_STATE_CONNECTED && reach_->take_end(end)) transfer_ended(end, effects);
  if (state_ == VIP_STATE_CONNECTED && told_when_ != 0) finish_what_is_delivered(effects);
}

// ---- RDMA

void Vi::transfer_ended(const via::Reach::End& end, Effects& effects) {
  if (end.cookie == kFetching) return message_was_fetched(end.how, effects);
  WorkItem* const item = send_.started_at(end.cookie);
  if (item == nullptr || !item->under_way) return;
  item->under_way = false;
  if (std::exchange(item->read_under_way, false)) --reads_under_way_;
  switch (end.how) {
    case Began::done: {
      // One with immediate data is also a message, and complete when that is acknowledged.
      const bool message_too = acknowledged() && item->sequence > messages_acknowledged_;
      if (!message_too) finish(*item, item->send_operation());
      complete(false, effects);
      if (send_.has_waiting()) (void)run_sends(effects);  // a fence may have kept them back
      return;
    }
    case Began::refused:
      return rdma_refused(*item, effects);
    case Began::failed:
      return rdma_failed(*item, effects);
    default:
      return lost(VIP_ERROR_CONN_LOST, effects);
  }
}

// ---- reliable delivery: a send is complete when the peer's side has it

void Vi::sent_afar(WorkItem& item) {
  if (item.under_way) return;  // complete when its transfer has ended
  if (!reliable()) return finish(item, item.send_operation());
  item.delivering = true;
  item.sequence = channel_->taken();
  if (told_when_ != 0) return;
  told_when_ = item.sequence;
  channel_->tell_when_delivered(told_when_);
}

void Vi::finish_what_is_delivered(Effects& effects) {
  const std::uint64_t delivered = channel_->delivered();
  if (delivered < told_when_) return;
  told_when_ = 0;
  send_.for_each_started([&](WorkItem& item) {
    if (!item.delivering || item.finished) return true;
    if (item.sequence > delivered) {
      told_when_ = item.sequence;
      return false;
    }
    finish(item, item.send_operation());
    return true;
  });
  complete(false, effects);
  if (told_when_ != 0) channel_->tell_when_delivered(told_when_);
}

// ---- messages by reference

void Vi::take_back_lent(WorkItem& item) {
  if (item.lent != 0) far_->take_back(std::exchange(item.lent, 0), item.data()->Data.Address);
}

// Into the receive descriptor that is next. It is complete when the bytes are there.
bool Vi::fetch_from_afar() {
  const WorkItem& item = receive_.first_open();
  iovec pieces[kMostSegments];
  const std::size_t count = gather(item.data(), item.segments, 0, taking_.length, pieces);
  const via::RemoteBytes there{taking_.handle, taking_.address, taking_.length};
  if (reach_->get({pieces, count}, there, kFetching) != Began::under_way) {
    taking_ = {};
    return refer_.tell_declined = true;
  }
  return taking_.waiting = true;
}

void Vi::message_was_fetched(Began how, Effects& effects) {
  if (!taking_.waiting) return;
  switch (how) {
    case Began::done:
      long_one_is_there(effects);
      if (refer_.tell_taken) (void)run_sends(effects);
      return;
    case Began::gone:
      return lost(VIP_ERROR_CONN_LOST, effects);
    default:
      return fetch_failed(Moved::fault, effects);
  }
}

// ---- memory that goes back to the program

// What is posted is about to: nothing of it is touched any more.
void Vi::give_up_transfers() {
  reach_->give_up();
  send_.for_each_started([&](WorkItem& item) {
    item.under_way = false;
    take_back_lent(item);
    return true;
  });
}

void Vi::stop_using_memory(Effects& effects) {
  if (far_ == nullptr || state_ != VIP_STATE_CONNECTED) return;
  WorkItem* gone = nullptr;
  send_.for_each_started([&](WorkItem& item) {
    const bool used = (item.under_way || item.lent != 0) && !item.finished;
    if (used && !still_allowed(item, false)) gone = &item;
    return gone == nullptr;
  });
  if (gone != nullptr) {
    finish(*gone, VIP_STATUS_PROTECTION_ERROR | gone->send_operation());
    return fail(VIP_ERROR_CONN_LOST, effects, Tell::reason, gone->descriptor, gone->send_operation());
  }
  if (taking_.waiting && !still_allowed(receive_.first_open(), true))
    receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects);
}

}  // namespace viaduct::vipl
