#include "via/vipl/references.hpp"

#include <utility>

#include "base/counters.hpp"

namespace viaduct::vipl {

namespace {

// What fits the ring is gone from the sender's memory as soon as it is there; longer messages need the receiver anyway.
constexpr std::uint32_t kLeastByReference = 256u << 10;
// Between hosts the copies on the way are saved.
constexpr std::uint32_t kLeastFromAfar = 64u << 10;

}  // namespace

// ---- the sender

bool References::goes_by_reference(const WorkItem& item) const {
  return item.length >= (link_.far != nullptr ? kLeastFromAfar : kLeastByReference) && item.segments == 1 &&
         link_.reliable() && !declined_;
}

Pushed References::push(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  VIP_MEM_HANDLE key = item.data()->Handle;
  if (link_.far != nullptr) {
    if (item.lent == 0) item.lent = link_.far->lend(item.data()->Data.Address, item.length);
    if (item.lent == 0) {  // the table is full
      declined_ = true;
      return account_.push_send(item);
    }
    key = item.lent;
  }
  const ReferenceHeader header{item.data()->Data.AddressBits, key, item.length, item.descriptor->CS.ImmediateData, 0};
  const Pushed pushed = outgoing_.push_control(kReference | (immediate ? kWithImmediate : 0), bytes_of(header));
  if (pushed != Pushed::all) return pushed;
  item.by_reference = true;
  asking_ = true;
  ++lent_;
  (void)account_.take_receive();
  static Counter count = counter("via.sends_by_reference");
  count.add();
  return Pushed::all;
}

// The one that waits for its answer: nothing was sent behind it. None: the peer owes us no answer.
WorkItem* References::asked_for() {
  if (!asking_) return nullptr;
  WorkItem* const last = queues_.send.last_started();
  return last != nullptr && last->by_reference && last->offer == 0 && !last->finished ? last : nullptr;
}

bool References::take_taken(const via::Fragment& fragment, Effects& effects) {
  WorkItem* const item = asked_for();
  if (item == nullptr || !fragment.last) return false;
  asking_ = false;
  --lent_;
  take_back_key(*item);
  item->finish(VIP_STATUS_OP_SEND);
  queues_.complete(false, effects);
  return true;
}

bool References::take_declined(const via::Fragment& fragment) {
  WorkItem* const item = asked_for();
  if (item == nullptr || !fragment.last) return false;
  item->by_reference = false;
  take_back_key(*item);
  asking_ = false;
  --lent_;
  account_.give_back_receive();
  declined_ = true;
  queues_.send.not_started();
  return true;
}

void References::take_back_key(WorkItem& item) {
  if (item.lent != 0) link_.far->take_back(std::exchange(item.lent, 0), item.data()->Data.Address);
}

// ---- the receiver

bool References::take(const via::Fragment& fragment, Effects& effects) {
  ReferenceHeader header;
  if (!link_.reliable() || !read_whole(fragment, header)) return false;
  if (header.length < kLeastFromAfar || header.length > kMostTransfer) return false;
  if (!receives_.find(header.length, effects)) return true;
  taking_.begin({fragment.immediate, header.immediate, {header.handle, header.address, header.length}});
  if (link_.far != nullptr) {
    if (!taking_.fetch_from_afar(kFetching)) tell_declined_ = true;
    return true;
  }
  const Moved moved = taking_.fetch(0, header.length);
  // Also where the memory is not registered any more: the sender will find that out, and say what is wrong with it.
  if (moved == Moved::no_way) return tell_declined_ = true;
  if (moved != Moved::all) return taking_.failed(moved), true;
  taking_.finish(effects);
  return tell_taken_ = true;
}

bool References::was_fetched(via::Reach::Began how, Effects& effects) {
  if (!taking_.waiting) return false;
  switch (how) {
    case via::Reach::Began::done:
      taking_.finish(effects);
      return tell_taken_ = true;
    case via::Reach::Began::gone:
      taking_.failed(Moved::gone);
      return false;
    default:
      taking_.failed(Moved::fault);
      return false;
  }
}

Pushed References::push_answer() {
  if (tell_taken_) {
    if (const Pushed pushed = outgoing_.push_control(kTaken, {}); pushed != Pushed::all) return pushed;
    tell_taken_ = false;
  }
  if (tell_declined_) {
    if (const Pushed pushed = outgoing_.push_control(kDeclined, {}); pushed != Pushed::all) return pushed;
    tell_declined_ = false;
  }
  return Pushed::all;
}

}  // namespace viaduct::vipl
