// The account of a connection's messages: which receive descriptor of the peer's the next one takes, and how much of
// what went either way is in memory there. Sends of reliable reception are complete when the peer says that they are
// in memory; those of reliable delivery between hosts when the peer's side has them.
//
// Owns the counts. Under the VI's lock.
#pragma once

#include "via/vipl/outgoing.hpp"
#include "via/vipl/queues.hpp"

namespace viaduct::vipl {

class Account {
 public:
  Account(Link& link, Queues& queues, Outgoing& outgoing) : link_(link), queues_(queues), outgoing_(outgoing) {}
  void connected();

  // ---- what we send

  std::uint64_t next_receive() const { return receives_taken_; }  // of the peer's
  std::uint64_t take_receive() { return receives_taken_++; }
  void give_back_receive() { --receives_taken_; }

  // It has gone, and is done, or will be when the peer says so.
  void sent(WorkItem& item) {
    if (!item.is_rdma() || (item.control & VIP_CONTROL_IMMEDIATE) != 0) ++receives_taken_;
    if (link_.acknowledged())
      item.sequence = ++sent_;
    else if (link_.far != nullptr) [[unlikely]]
      sent_afar(item);
    else
      item.finish(item.send_operation());
  }
  void placed_there() {  // by ourselves
    ++receives_taken_;
    if (link_.acknowledged()) ++sent_;
  }
  Pushed push_send(WorkItem& item);
  std::uint64_t acknowledged() const { return acknowledged_; }
  bool take_placed(const via::Fragment& fragment, Effects& effects);

  bool waits_for_delivery() const { return told_when_ != 0; }
  void finish_what_is_delivered(Effects& effects);

  // ---- what we receive

  void placed_here() {
    ++placed_;
    if (!link_.acknowledged()) placed_told_ = placed_;
  }
  bool has_to_tell() const { return placed_ != placed_told_; }
  Pushed tell();

 private:
  void sent_afar(WorkItem& item);

  Link& link_;
  Queues& queues_;
  Outgoing& outgoing_;
  std::uint64_t receives_taken_ = 0;  // of the peer's, by our messages
  std::uint64_t sent_ = 0;            // that the peer acknowledges
  std::uint64_t acknowledged_ = 0;
  std::uint64_t placed_ = 0;  // of the peer's
  std::uint64_t placed_told_ = 0;
  std::uint64_t told_when_ = 0;  // how much must be delivered for the channel to tell; 0: it was not asked
};

}  // namespace viaduct::vipl
