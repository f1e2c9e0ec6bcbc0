// The states of a VI, and the ends of its connections.
//
//   Idle -> Connect Pending -> Connected -> Error -> Idle
//     ^_________VipDisconnect, or it failed_________|
#include "via/vipl/vi.hpp"

#include <sched.h>

#include <utility>

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "base/log.hpp"
#include "via/port/children.hpp"
#include "via/vipl/peer_request.hpp"

namespace viaduct::vipl {

Vi::Vi(std::shared_ptr<Adapter> adapter, const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag, std::uint32_t slot)
    : link_(std::move(adapter), attributes, tag, slot) {}

Vi::~Vi() = default;

// Whoever is woken may destroy this VI as soon as the lock is free: nothing of it is touched afterwards, unless there
// are errors to report.
void Vi::unlock_and_deliver(Effects& effects) {
  if (effects.wake) [[unlikely]]
    link_.adapter->leadership().tell_waiters();
  effects.wake = false;
  const std::shared_ptr<Adapter> adapter = effects.errors.empty() ? nullptr : link_.adapter;
  lock.unlock();
  if (adapter) [[unlikely]]
    adapter->deliver(effects);
}

// ---- what programs post and take back

VIP_RETURN Vi::post(bool receive, VIP_DESCRIPTOR* descriptor, VIP_MEM_HANDLE memory, Effects& effects) {
  if (const VIP_RETURN posted = queues_.post(receive, descriptor, memory, effects); posted != VIP_SUCCESS) [[unlikely]]
    return posted;
  const bool useless = receive ? link_.state == VIP_STATE_ERROR : !link_.intact();
  if (useless) [[unlikely]]
    flush(receive, effects);
  else if (receive) {
    queues_.complete(true, effects);
    if (link_.intact()) receives_.show();
  } else
    (void)run_sends(effects);
  return VIP_SUCCESS;
}

VIP_RETURN Vi::take_completed(bool receive, VIP_DESCRIPTOR** descriptor, Effects& effects) {
  if (blocked) [[unlikely]]
    (void)run_sends(effects);
  // A program that only sends must still hear what its peer has to say, if not at every call.
  constexpr std::uint32_t kLookEvery = 8;
  if (!queues_.of(receive).has_completed() || (!receive && ++send_looks_ % kLookEvery == 0))
    try_to_receive(receive, effects);
  return queues_.take(receive, descriptor);
}

void Vi::flush(bool receive, Effects& effects) {
  bool has_part = false;  // a receive that has got a part of its message says so
  if (receive) {
    has_part = incoming_.let_receive_go();
    has_part = long_.let_receive_go() || has_part;
  } else {
    long_.offers().let_sends_go();
  }
  queues_.flush(receive, has_part ? VIP_STATUS_PARTIAL_ERROR : 0, effects);
}

// ---- connections

// Numbers are odd and never the same for one place in the table: whoever remembers an old one is not mistaken.
std::uint32_t Vi::number_connection() {
  std::atomic<std::uint32_t>& word = link_.words().connection;
  const std::uint32_t number = (word.load(std::memory_order_relaxed) + 1) | 1;
  word.store(number, std::memory_order_release);
  return number;
}

void Vi::connected(via::Connection connection, const VIP_VI_ATTRIBUTES& peer) {
  link_.connect(std::move(connection), peer);
  if (link_.shared != nullptr) via::close_in_children(link_.channel->shared()->descriptor());
  receives_.connected();
  outgoing_.connected();
  account_.connected();
  rdma_.connected();
  long_.connected();
  incoming_.connected();
  receives_.show();
}

// What is posted is about to go back to the program: the peer touches none of it any more (S2 of memory_table.hpp). No
// copy takes a second; a peer that says so does not hold us up for ever.
void Vi::end_copies() {
  std::atomic<std::uint32_t>& word = link_.words().connection;
  const std::uint32_t number = word.load(std::memory_order_relaxed);
  if (number % 2 == 1) word.store(number + 1, std::memory_order_seq_cst);
  if (link_.far != nullptr) return give_up_transfers();
  if (link_.state != VIP_STATE_CONNECTED || !(receives_.lends_memory() || long_.lends_memory())) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  constexpr std::uint64_t kPatienceNs = 1'000'000'000;
  const Deadline deadline = Deadline::after_ns(Clock::steady(), kPatienceNs);
  for (via::ShmReach::Looks looks; peer_copies(looks); ::sched_yield())
    if (deadline.expired(Clock::steady().now_ns()))
      return log::fault("a peer copies from or to memory of a VI that was disconnected: is its process stopped?");
}

// The same for a peer on another host.
void Vi::give_up_transfers() {
  link_.reach->give_up();
  queues_.send.for_each_started([&](WorkItem& item) {
    item.under_way = false;
    long_.references().take_back_key(item);
    return true;
  });
}

void Vi::stop_using_memory(Effects& effects) {
  if (link_.far == nullptr || !link_.intact()) return;
  WorkItem* gone = nullptr;
  queues_.send.for_each_started([&](WorkItem& item) {
    const bool used = (item.under_way || item.lent != 0) && !item.finished;
    if (used && !queues_.still_allowed(item, false)) gone = &item;
    return gone == nullptr;
  });
  if (gone != nullptr) {
    gone->finish(VIP_STATUS_PROTECTION_ERROR | gone->send_operation());
    link_.fail(VIP_ERROR_CONN_LOST, Link::Tell::reason, gone->descriptor, gone->send_operation());
  } else if (long_.taking().waiting && !receives_.next_is_still_allowed()) {
    receives_.next_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects);
  }
  end_if_broken(effects);
}

// The connection is over: the peer is told why as well as possible, and everything posted comes back.
void Vi::end_connection(Effects& effects) {
  const Link::Fault fault = link_.take_fault();
  Offers& offers = long_.offers();
  if (fault.lost) {
    end_copies();
    (void)offers.some_are_there();
    // What had left and is not acknowledged may have arrived or not; what waits behind it has not left.
    queues_.send.for_each_started([&](WorkItem& item) {
      if (!item.finished && (!item.by_reference || link_.acknowledged()))
        item.finish(VIP_STATUS_TRANSPORT_ERROR | item.send_operation());
      return true;
    });
  }
  static Counter broken = counter("via.broken");
  broken.add();
  (void)offers.some_are_there();  // before what the peer has said since
  if (fault.tell != Link::Tell::nothing && !outgoing_.begun()) {
    // What was placed before is acknowledged first: the peer blames the oldest message that is not.
    const bool our_descriptor = fault.tell == Link::Tell::our_descriptor;
    const BrokenHeader header{static_cast<std::uint32_t>(fault.code), our_descriptor ? 1u : 0u};
    if (account_.has_to_tell()) (void)account_.tell();
    (void)long_.push_answers();
    (void)outgoing_.push_control(kBroken, bytes_of(header));
  }
  link_.channel->finish_sending();  // a peer that could not be told sees the end
  end_copies();
  (void)offers.some_are_there();
  link_.leave(VIP_STATE_ERROR);
  set_blocked(false);
  queues_.report(fault.code, effects, fault.descriptor, fault.operation);
  flush(false, effects);
  flush(true, effects);
}

via::Connection Vi::disconnected(Effects& effects) {
  if (link_.intact() && !outgoing_.begun()) (void)outgoing_.push_control(kDisconnect, {});
  end_copies();
  if (link_.intact()) (void)long_.offers().some_are_there();
  link_.leave(VIP_STATE_IDLE);
  set_blocked(false);
  flush(false, effects);
  flush(true, effects);
  peer_request.reset();
  if (link_.shared != nullptr) via::keep_in_children(link_.channel->shared()->descriptor());
  return link_.disconnect();
}

}  // namespace viaduct::vipl
