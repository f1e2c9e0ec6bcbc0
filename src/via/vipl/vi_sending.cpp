// What is sent next: what was posted, in order; between messages acknowledgements and answers.
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

Pushed Vi::push_between_messages() {
  if (outgoing_.owner == Outgoing::Owner::reply)
    if (const Pushed pushed = rdma_.push_reply(); pushed != Pushed::all) return pushed;
  if (const Pushed pushed = long_.push_answers(); pushed != Pushed::all) return pushed;
  if (account_.has_to_tell())
    if (const Pushed pushed = account_.tell(); pushed != Pushed::all) return pushed;
  while (rdma_.has_to_reply())
    if (const Pushed pushed = rdma_.push_reply(); pushed != Pushed::all) return pushed;
  return Pushed::all;
}

Pushed Vi::push_item(WorkItem& item) {
  if (item.is_rdma()) return rdma_.push(item);
  if (!outgoing_.begun() && item.length >= kLeastDirect && link_.reliable()) return long_.push(item);
  return account_.push_send(item);
}

bool Vi::run_sends(Effects& effects) {
  // By far the most frequent: one send that was just posted, and nothing else to do.
  const bool plain = outgoing_.owner == Outgoing::Owner::nobody && !account_.has_to_tell() && !rdma_.has_to_reply() &&
                     !blocked && !long_.references().asking() && !long_.has_to_answer() && link_.intact() &&
                     queues_.send.has_only_one_waiting();
  if (plain) [[likely]] {
    WorkItem& item = queues_.send.first_waiting();
    const bool send = (item.control & (VIP_CONTROL_OP_MASK | VIP_CONTROL_QFENCE)) == 0 && !item.finished &&
                      item.length <= Outgoing::kPlainSend && item.segments <= Outgoing::kPlainSegments;
    if (send && queues_.still_allowed(item, false) && outgoing_.push_plain_send(item)) {
      account_.sent(item);
      queues_.send.started();
      queues_.complete(false, effects);
      return true;
    }
  }
  return run_all_sends(effects);
}

bool Vi::run_all_sends(Effects& effects) {
  Offers& offers = long_.offers();
  if (offers.any_unfinished() && link_.intact()) {
    offers.look(effects);
    end_if_broken(effects);
  }
  Pushed pushed = Pushed::all;
  const std::uint64_t offers_before = offers.made();
  while (link_.intact() && pushed == Pushed::all) {
    if (outgoing_.owner != Outgoing::Owner::item) {
      pushed = push_between_messages();
      if (pushed != Pushed::all) break;
    }
    if (!queues_.send.has_waiting() || long_.references().asking()) break;
    WorkItem& item = queues_.send.first_waiting();
    const bool fenced = (item.control & VIP_CONTROL_QFENCE) != 0 && rdma_.reads_are_under_way();
    if (outgoing_.owner == Outgoing::Owner::nobody && fenced) break;
    if (!item.finished && !queues_.still_allowed(item, false)) {
      item.finish(VIP_STATUS_PROTECTION_ERROR | item.send_operation());
      if (outgoing_.begun()) {  // half a message cannot be taken back
        link_.fail(VIP_ERROR_CONN_LOST, Link::Tell::nothing, item.descriptor, item.send_operation());
        end_if_broken(effects);
        break;
      }
    }
    if (item.finished) {  // by a fault of its own
      queues_.send.started();
      queues_.complete(false, effects);
      if (link_.reliable())
        link_.fail(VIP_ERROR_CONN_LOST, Link::Tell::reason, item.descriptor, item.status & VIP_STATUS_OP_MASK);
      end_if_broken(effects);
      continue;
    }
    outgoing_.owner = Outgoing::Owner::item;
    pushed = push_item(item);
    end_if_broken(effects);
    if (pushed == Pushed::full && outgoing_.begun()) break;
    outgoing_.owner = Outgoing::Owner::nobody;
    if (pushed == Pushed::all && link_.intact()) {
      queues_.send.started();
      queues_.complete(false, effects);
    }
  }
  // Lost: whoever receives finds the end, behind what the peer had sent before.
  const bool stuck = pushed != Pushed::all;
  if (stuck) queues_.complete(false, effects);  // what may_offer() has found
  set_blocked((stuck || offers.any_unfinished()) && link_.intact());
  if (blocked && offers.made() != offers_before) link_.adapter->leadership().leader_has_to_know();
  return !stuck;
}

void Vi::set_blocked(bool now) {
  if (blocked == now) [[likely]]
    return;
  blocked = now;
  if (now) {
    link_.adapter->add_blocked(*this);
    return link_.adapter->leadership().leader_has_to_know();
  }
  link_.adapter->remove_blocked(*this);
  link_.words().wants_room.store(0, std::memory_order_relaxed);
}

void Vi::ask_for_room(Effects& effects) {
  Offers& offers = long_.offers();
  offers.take_back(effects);
  link_.words().wants_room.store(1, std::memory_order_seq_cst);
  fence::heavy();        // the wish, then our look at the ring; the peer gives room back, then looks for wishes
  offers.not_now(true);  // we are about to sleep, and could not take it back
  (void)run_sends(effects);
  offers.not_now(false);
}

}  // namespace viaduct::vipl
