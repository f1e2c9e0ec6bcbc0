// A virtual interface: two work queues, a state, and while it is connected a channel to its peer.
//
// The thread that calls in does the work: it sends what is waiting, as far as there is room, and receives what has come
// into the descriptors posted for it. A VI is made of parts, each with a subject and a state of its own:
//
//   link.hpp           what it is, what carries its connection, what has broken it
//   queues.hpp         the work queues: checking, completing, flushing
//   receives.hpp       messages into receive descriptors, and showing those to the peer
//   outgoing.hpp       the message that goes out, fragment by fragment
//   account.hpp        how many messages have gone each way, and what is acknowledged
//   rdma.hpp           remote memory
//   long_messages.hpp  messages that need not go through the ring: direct.hpp, offers.hpp, references.hpp, taking.hpp
//   incoming.hpp       messages that come through the ring
//
// A part knows those above it in this list, and none the VI. What is here brings them together: states and connections
// (vi.cpp), what is sent next (vi_sending.cpp), and what becomes of what has come (vi_receiving.cpp).
//
// Locks: `lock` guards everything here but receiving from a channel that is in the adapter's ready queue (`attended`),
// which needs the adapter's leadership as well. Leadership is taken first, or tried.
#pragma once

#include <viaduct/vipl.h>
#include <viaduct/via.hpp>

#include <memory>

#include "base/spin_lock.hpp"
#include "via/vipl/incoming.hpp"
#include "via/vipl/long_messages.hpp"

namespace viaduct::vipl {

class PeerRequest;

class Vi {
 public:
  Vi(std::shared_ptr<Adapter> adapter, const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag, std::uint32_t slot);
  ~Vi();

  Adapter& adapter() const { return *link_.adapter; }
  VIP_VI_HANDLE handle() const { return link_.handle; }
  void set_handle(VIP_VI_HANDLE handle) { link_.handle = handle; }  // before anybody has it
  std::uint32_t slot() const { return link_.slot; }

  SpinLock lock;

  // ---- all of the following under the lock

  WorkQueue& queue(bool receive) { return queues_.of(receive); }
  VIP_VI_STATE state() const { return link_.state; }
  void set_state(VIP_VI_STATE state) { link_.state = state; }  // of one that is not connected
  const VIP_VI_ATTRIBUTES& attributes() const { return link_.attributes; }
  std::uint64_t tag() const { return link_.tag; }
  void set_attributes(const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag) {
    link_.attributes = attributes;
    link_.tag = tag;
  }

  void unlock_and_deliver(Effects& effects);
  VIP_RETURN post(bool receive, VIP_DESCRIPTOR* descriptor, VIP_MEM_HANDLE memory, Effects& effects);
  // VIP_NOT_DONE: nothing has completed, after having looked.
  VIP_RETURN take_completed(bool receive, VIP_DESCRIPTOR** descriptor, Effects& effects);

  std::uint32_t number_connection();  // of the one to come, for the peer to compare with
  void connected(via::Connection connection, const VIP_VI_ATTRIBUTES& peer);
  // What carried it, to be destroyed; everything still posted is flushed.
  via::Connection disconnected(Effects& effects);
  via::Channel* channel() const { return link_.channel.get(); }
  const VIP_VI_ATTRIBUTES& peer() const { return link_.peer; }
  // After memory was deregistered: nothing is on its way to or from it any more.
  void stop_using_memory(Effects& effects);
  bool peer_copies(via::ShmReach::Looks& looks) const {
    return link_.shared != nullptr && link_.shared->peer_copies(looks);
  }

  // By whoever has leadership if attended: receives what is there, at most kMostPerVisit fragments. True: there is
  // more.
  bool visit(Effects& effects) { return receive_some(Enough::everything, effects); }
  // The same by anybody, if nobody else leads.
  void look_for_news(Effects& effects) {
    if (blocked) (void)run_sends(effects);
    try_to_receive(false, effects);
  }
  // Goes on with what waits for room. True: nothing waits for room any more.
  bool run_sends(Effects& effects);
  // The peer tells us with a message when there is room; sends once more after having said so.
  void ask_for_room(Effects& effects);

  bool attended = false;         // changed under leadership too
  bool wants_attention = false;  // somebody waits on this VI by sleeping: attend to it once it is connected
  bool leftover = false;         // in the adapter's list; under leadership
  bool blocked = false;          // in the adapter's list of those that wait for room

  std::unique_ptr<PeerRequest> peer_request;  // VipConnectPeerRequest under way

 private:
  static constexpr int kMostPerVisit = 256;
  enum class Enough { everything, one_receive, one_send };

  // vi.cpp
  void end_copies();
  void give_up_transfers();
  void flush(bool receive, Effects& effects);
  void end_if_broken(Effects& effects) {
    if (link_.is_broken()) [[unlikely]]
      end_connection(effects);
  }
  void end_connection(Effects& effects);

  // vi_sending.cpp
  bool run_all_sends(Effects& effects);
  Pushed push_between_messages();
  Pushed push_item(WorkItem& item);
  void set_blocked(bool now);

  // vi_receiving.cpp
  void try_to_receive(bool receive_queue, Effects& effects);
  bool receive_some(Enough enough, Effects& effects);
  bool take_fragment(const via::Fragment& fragment, Effects& effects);
  bool take_message(const via::Fragment& fragment, Effects& effects);
  bool take_broken(const via::Fragment& fragment);
  void take_news_from_afar(Effects& effects);
  void tell_of_room();

  Link link_;
  Queues queues_{link_};
  Receives receives_{link_, queues_};
  Outgoing outgoing_{link_};
  Account account_{link_, queues_, outgoing_};
  Rdma rdma_{link_, queues_, outgoing_, account_};
  LongMessages long_{link_, queues_, receives_, outgoing_, account_};
  Incoming incoming_{link_, receives_, account_, rdma_};
  std::uint32_t send_looks_ = 0;
};

}  // namespace viaduct::vipl
