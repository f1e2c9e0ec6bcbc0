// What goes out: messages in fragments, as far as there is room; between them acknowledgements and replies.
#include <algorithm>

#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint32_t kPlainSend = 1024;  // goes out in one fragment or not at all
constexpr std::uint16_t kPlainSegments = 4;

}  // namespace

// Goes on where the last call was refused.
Vi::Pushed Vi::push_message(std::uint32_t word, std::span<const std::byte> header, const Body& body) {
  const std::size_t most = channel_->largest_fragment();
  iovec pieces[kMostSegments + 1];
  for (;;) {
    const std::size_t head = out_.begun ? 0 : header.size();
    const std::size_t left = body.length - out_.sent;
    const std::size_t part = std::min(left, most - head);
    std::size_t used = 0;
    if (head != 0) pieces[used++] = {const_cast<std::byte*>(header.data()), head};
    used += gather(body.segments, body.count, out_.sent, part, pieces + used);
    const bool more = part < left;
    switch (channel_->try_send({pieces, used}, word, more)) {
      case via::Sent::taken:
        break;
      case via::Sent::full:
        return Pushed::full;
      case via::Sent::closed:
        return Pushed::lost;
    }
    out_.begun = more;
    out_.sent = more ? out_.sent + part : 0;
    if (!more) return Pushed::all;
  }
}

// A header and nothing else, of one fragment.
Vi::Pushed Vi::push_control(std::uint32_t kind, std::span<const std::byte> header) {
  return push_message(kind, header, {});
}

Vi::Pushed Vi::push_between_messages() {
  if (out_.owner == Owner::reply)
    if (const Pushed pushed = push_reply(); pushed != Pushed::all) return pushed;
  if (const Pushed pushed = push_answers(); pushed != Pushed::all) return pushed;
  if (messages_placed_ != placed_told_) {
    const PlacedHeader header{messages_placed_};
    if (const Pushed pushed = push_control(kPlaced, bytes_of(header)); pushed != Pushed::all) return pushed;
    placed_told_ = messages_placed_;
  }
  while (!replies_.empty())
    if (const Pushed pushed = push_reply(); pushed != Pushed::all) return pushed;
  return Pushed::all;
}

// Of a message that the peer acknowledges where the level says so: done, or to be done when it does.
void Vi::sent(WorkItem& item) {
  if (!item.is_rdma() || (item.control & VIP_CONTROL_IMMEDIATE) != 0) ++receives_taken_;
  if (acknowledged())
    item.sequence = ++messages_sent_;
  else if (far_ != nullptr)
    sent_afar(item);
  else
    finish(item, item.send_operation());
}

Vi::Pushed Vi::push_send(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const std::uint32_t data = item.descriptor->CS.ImmediateData;
  const std::uint32_t flag = immediate ? kWithImmediate : 0;
  const Body body{item.data(), item.segments, item.length};
  const std::size_t head = immediate ? sizeof data : 0;
  if (head + item.length <= channel_->largest_fragment())
    return push_message(kSend | flag, bytes_of(data).first(head), body);
  const LongHeader header{item.length, data};
  return push_message(kLongSend | flag, bytes_of(header), body);
}

// Of few segments, and so short that every channel takes it as one fragment.
bool Vi::push_plain_send(const WorkItem& item) {
  std::uint32_t data = 0;
  std::uint32_t word = kSend;
  iovec pieces[kPlainSegments + 1];
  std::size_t used = 0;
  if ((item.control & VIP_CONTROL_IMMEDIATE) != 0) {
    data = item.descriptor->CS.ImmediateData;
    word |= kWithImmediate;
    pieces[used++] = {&data, sizeof data};
  }
  const VIP_DATA_SEGMENT* segment = item.data();
  for (std::uint16_t i = 0; i < item.segments; ++i, ++segment)
    pieces[used++] = {segment->Data.Address, segment->Length};
  return channel_->try_send({pieces, used}, word) == via::Sent::taken;
}

Vi::Pushed Vi::push_item(WorkItem& item, Effects& effects) {
  if (item.is_rdma()) return rdma(item, effects);
  if (!out_.begun && item.length >= kLeastDirect && reliable()) {
    const Way way = item.moved ? Way::direct : way_of(item);
    if (way == Way::offer) return push_offer(item);
    if (way == Way::reference) return push_reference(item);
    if (way == Way::direct && !item.moved) item.moved = put_there(item, receives_taken_, 0, item.length) == Moved::all;
    if (item.moved) return push_direct(item);
  }
  return push_send_and_count(item);
}

Vi::Pushed Vi::push_send_and_count(WorkItem& item) {
  const Pushed pushed = push_send(item);
  if (pushed == Pushed::all) sent(item);
  return pushed;
}

bool Vi::run_sends(Effects& effects) {
  // By far the most frequent: one send that was just posted, and nothing else to do.
  const bool plain = out_.owner == Owner::nobody && messages_placed_ == placed_told_ && replies_.empty() && !blocked &&
                     !refer_.asking && !refer_.tell_taken && !refer_.tell_declined && state_ == VIP_STATE_CONNECTED &&
                     send_.has_only_one_waiting();
  if (plain) [[likely]] {
    WorkItem& item = send_.first_waiting();
    const bool send = (item.control & (VIP_CONTROL_OP_MASK | VIP_CONTROL_QFENCE)) == 0 && !item.finished &&
                      item.length <= kPlainSend && item.segments <= kPlainSegments;
    if (send && still_allowed(item, false) && push_plain_send(item)) {
      sent(item);
      send_.started();
      complete(false, effects);
      return true;
    }
  }
  return run_all_sends(effects);
}

bool Vi::run_all_sends(Effects& effects) {
  if (offers_.unfinished != 0 && state_ == VIP_STATE_CONNECTED) look_at_offers(effects);
  Pushed pushed = Pushed::all;
  const std::uint64_t offers_before = offers_.made;
  while (state_ == VIP_STATE_CONNECTED && pushed == Pushed::all) {
    if (out_.owner != Owner::item) {
      pushed = push_between_messages();
      if (pushed != Pushed::all) break;
    }
    if (!send_.has_waiting() || refer_.asking) break;
    WorkItem& item = send_.first_waiting();
    if (out_.owner == Owner::nobody && (item.control & VIP_CONTROL_QFENCE) != 0 && reads_under_way_ != 0) break;
    if (!item.finished && !still_allowed(item, false)) {
      finish(item, VIP_STATUS_PROTECTION_ERROR | item.send_operation());
      if (out_.begun) {  // half a message cannot be taken back
        fail(VIP_ERROR_CONN_LOST, effects, Tell::nothing, item.descriptor, item.send_operation());
        break;
      }
    }
    if (item.finished) {  // by a fault of its own
      send_.started();
      complete(false, effects);
      if (reliable())
        fail(VIP_ERROR_CONN_LOST, effects, Tell::reason, item.descriptor, item.status & VIP_STATUS_OP_MASK);
      continue;
    }
    out_.owner = Owner::item;
    pushed = push_item(item, effects);
    if (pushed == Pushed::full && out_.begun) break;
    out_.owner = Owner::nobody;
    if (pushed == Pushed::all && state_ == VIP_STATE_CONNECTED) {
      send_.started();
      complete(false, effects);
    }
  }
  // Lost: whoever receives finds the end, behind what the peer had sent before.
  const bool stuck = pushed != Pushed::all;
  if (stuck) complete(false, effects);  // what may_offer() has found
  set_blocked((stuck || offers_.unfinished != 0) && state_ == VIP_STATE_CONNECTED);
  if (blocked && offers_.made != offers_before) adapter_->leadership().leader_has_to_know();
  return !stuck;
}

void Vi::set_blocked(bool now) {
  if (blocked == now) [[likely]]
    return;
  blocked = now;
  if (now) {
    adapter_->add_blocked(*this);
    return adapter_->leadership().leader_has_to_know();
  }
  adapter_->remove_blocked(*this);
  registrations_.view().words(slot_).wants_room.store(0, std::memory_order_relaxed);
}

void Vi::ask_for_room(Effects& effects) {
  take_back_offers(effects);
  registrations_.view().words(slot_).wants_room.store(1, std::memory_order_seq_cst);
  fence::heavy();          // the wish, then our look at the ring; the peer gives room back, then looks for wishes
  offers_.not_now = true;  // we are about to sleep, and could not take it back
  (void)run_sends(effects);
  offers_.not_now = false;
}

}  // namespace viaduct::vipl
