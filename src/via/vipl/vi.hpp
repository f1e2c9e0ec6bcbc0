// A virtual interface: two work queues, a state, and while it is connected a channel to its peer.
//
// The thread that calls in does the work: it sends what is waiting, as far as there is room, and receives what has come
// into the descriptors posted for it. Files: vi.cpp (creating, states), queues.cpp (posting and taking back),
// send.cpp (out), receive.cpp (in), direct.cpp (into memory that can be reached), offer.cpp (both
// sides share the work), reference.cpp (messages too long for the ring), rdma.cpp (remote memory),
// connect.cpp (connecting).
//
// Locks: `lock` guards everything here but receiving from a channel that is in the adapter's ready queue (`attended`),
// which needs the adapter's leadership as well. Leadership is taken first, or tried.
#pragma once

#include <viaduct/vipl.h>
#include <viaduct/via.hpp>

#include <deque>
#include <memory>
#include <span>

#include "base/spin_lock.hpp"
#include "via/port/net_reach.hpp"
#include "via/port/shm_reach.hpp"
#include "via/vipl/adapter.hpp"
#include "via/vipl/message.hpp"
#include "via/vipl/work_queue.hpp"

namespace viaduct::vipl {

class PeerRequest;

class Vi {
 public:
  Vi(std::shared_ptr<Adapter> adapter, const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag, std::uint32_t slot);
  ~Vi();

  Adapter& adapter() const { return *adapter_; }
  VIP_VI_HANDLE handle = nullptr;

  SpinLock lock;

  // ---- all of the following under the lock

  WorkQueue& queue(bool receive) { return receive ? receive_ : send_; }
  VIP_VI_STATE state() const { return state_; }
  void set_state(VIP_VI_STATE state) { state_ = state; }
  const VIP_VI_ATTRIBUTES& attributes() const { return attributes_; }
  void set_attributes(const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag) { attributes_ = attributes, tag_ = tag; }
  std::uint64_t tag() const { return tag_; }
  std::uint32_t slot() const { return slot_; }

  void unlock_and_deliver(Effects& effects);
  VIP_RETURN post(bool receive, VIP_DESCRIPTOR* descriptor, VIP_MEM_HANDLE memory, Effects& effects);
  // VIP_NOT_DONE: nothing has completed, after having looked.
  VIP_RETURN take_completed(bool receive, VIP_DESCRIPTOR** descriptor, Effects& effects);

  std::uint32_t number_connection();  // of the one to come, for the peer to compare with
  void connected(via::Connection connection, const VIP_VI_ATTRIBUTES& peer);
  // What carried it, to be destroyed; everything still posted is flushed.
  via::Connection disconnected(Effects& effects);
  via::Channel* channel() const { return channel_.get(); }
  // After memory was deregistered: nothing is on its way to or from it any more.
  void stop_using_memory(Effects& effects);
  const via::ShmReach* shared() const { return shared_; }
  const VIP_VI_ATTRIBUTES& peer() const { return peer_; }  // what the other VI said about itself
  bool peer_copies(via::ShmReach::Looks& looks) const { return shared_ != nullptr && shared_->peer_copies(looks); }

  // By whoever has leadership if attended: receives what is there, at most kMostPerVisit fragments. True: there is
  // more.
  bool visit(Effects& effects);
  // The same by anybody, if nobody else leads.
  void look_for_news(Effects& effects) {
    if (blocked) (void)run_sends(effects);
    (void)may_receive_and(effects, false);
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
  using Moved = via::ShmReach::Moved;
  static constexpr int kMostPerVisit = 256;

  bool reliable() const { return attributes_.ReliabilityLevel != VIP_SERVICE_UNRELIABLE; }
  bool acknowledged() const { return attributes_.ReliabilityLevel == VIP_SERVICE_RELIABLE_RECEPTION; }

  // queues.cpp
  std::uint32_t check(WorkItem& item, bool receive) const;
  bool descriptor_is_there(const WorkItem& item) const;
  bool still_allowed(WorkItem& item, bool receive) const {
    return item.version == registrations_.version() || still_allowed_now(item, receive);
  }
  bool still_allowed_now(WorkItem& item, bool receive) const;
  void finish(WorkItem& item, std::uint32_t status);
  void complete(bool receive, Effects& effects);
  void flush(bool receive, Effects& effects);
  bool lends_memory() const {
    return state_ == VIP_STATE_CONNECTED && (taking_.waiting || posted_.lent || refer_.lent != 0);
  }
  void end_copies();
  bool may_receive_and(Effects& effects, bool receive_queue);

  // errors.cpp
  enum class Tell { nothing, reason, our_descriptor };  // the peer; the last: a receive descriptor of ours is to blame
  void fail(VIP_ERROR_CODE code, Effects& effects, Tell tell, VIP_DESCRIPTOR* descriptor = nullptr,
            std::uint32_t operation = 0);
  void lost(VIP_ERROR_CODE code, Effects& effects);  // the peer is gone, or talks nonsense
  void report(VIP_ERROR_CODE code, Effects& effects, VIP_DESCRIPTOR* descriptor, std::uint32_t operation) const;

  // send.cpp
  enum class Pushed { all, full, lost };
  struct Body {
    const VIP_DATA_SEGMENT* segments = nullptr;
    std::size_t count = 0;
    std::size_t length = 0;
  };
  Pushed push_message(std::uint32_t word, std::span<const std::byte> header, const Body& body);
  Pushed push_control(std::uint32_t kind, std::span<const std::byte> header);
  bool run_all_sends(Effects& effects);
  Pushed push_between_messages();
  Pushed push_item(WorkItem& item, Effects& effects);
  Pushed push_send(WorkItem& item);
  Pushed push_send_and_count(WorkItem& item);
  bool push_plain_send(const WorkItem& item);
  void sent(WorkItem& item);
  void set_blocked(bool now);

  // rdma.cpp
  Pushed rdma(WorkItem& item, Effects& effects);
  Pushed push_rdma_done(WorkItem& item);
  Pushed push_write(WorkItem& item);
  Pushed push_read(WorkItem& item);
  Pushed push_reply();
  void rdma_refused(WorkItem& item, Effects& effects);
  void rdma_failed(WorkItem& item, Effects& effects);
  bool start_write(const via::Fragment& fragment, std::size_t& header);
  bool start_read(const via::Fragment& fragment, Effects& effects);
  bool start_reply(const via::Fragment& fragment, std::size_t& header);
  bool own_memory_allows(std::uint32_t memory, std::uint64_t address, std::uint64_t length, Enable enable) const;
  void place_write(std::span<const std::byte> bytes, Effects& effects);
  void place_reply(std::span<const std::byte> bytes, Effects& effects);
  WorkItem* oldest_read();

  // direct.cpp
  static constexpr std::uint32_t kLeastDirect = 8u << 10;  // shorter ones are as fast through the ring
  static constexpr std::uint32_t kLeastByKernel = 64u << 10;
  static constexpr std::uint32_t kLeastByKernelAlone = 128u << 10;
  enum class Way { ring, direct, offer, reference };
  void show_receives();
  void show(const WorkItem& item, std::uint64_t number);
  bool take_direct(const via::Fragment& fragment, Effects& effects);
  Moved put_there(const WorkItem& item, std::uint64_t number, std::uint32_t offset, std::uint32_t length);
  Way way_of(const WorkItem& item);
  Pushed push_direct(WorkItem& item);

  // offer.cpp
  static constexpr std::uint32_t kLeastOffer = 16u << 10;
  static constexpr std::uint32_t kLeastOfferAlone = 256u << 10;
  using OfferPlace = std::atomic<std::uint64_t>;
  OfferWords& words(via::SharedEnd::Whose whose) const {
    return *reinterpret_cast<OfferWords*>(channel_->shared()->words(whose));
  }
  OfferPlace& own_offer(std::uint64_t offer) const {
    return words(via::SharedEnd::Whose::ours).states[offer % kMostOffers];
  }
  OfferPlace& their_offer(std::uint64_t offer) const {
    return words(via::SharedEnd::Whose::theirs).states[offer % kMostOffers];
  }
  void say_whether_we_can_fetch() { words(via::SharedEnd::Whose::ours).fetches = shared_->reaches_by_cma() ? 1 : 0; }
  bool may_offer(const WorkItem& item);
  Pushed push_offer(WorkItem& item);
  bool peer_can_fetch(const WorkItem& item) const;
  bool some_offers_are_there();
  void look_at_offers(Effects& effects);
  void take_back_offers(Effects& effects);
  bool take_back(WorkItem& item);
  void offer_is_there(WorkItem& item);
  void offer_is_returned(Effects& effects);
  bool take_offer(const via::Fragment& fragment, Effects& effects);
  bool settle_offer(Effects& effects);
  bool wait_for_sender(bool connected, Effects& effects);
  bool take_rest(const via::Fragment& fragment, Effects& effects);

  // far.cpp
  static constexpr std::uint64_t kFetching = UINT64_MAX;  // of a message by reference; the others are positions
  void take_news_from_afar(Effects& effects);
  void transfer_ended(const via::Reach::End& end, Effects& effects);
  void message_was_fetched(via::Reach::Began how, Effects& effects);
  void sent_afar(WorkItem& item);
  void finish_what_is_delivered(Effects& effects);
  void give_up_transfers();
  bool fetch_from_afar();
  void take_back_lent(WorkItem& item);

  // reference.cpp
  bool goes_by_reference(const WorkItem& item) const;
  Pushed push_reference(WorkItem& item);
  Pushed push_answers();
  WorkItem* asked_for();
  bool take_reference(const via::Fragment& fragment, Effects& effects);
  bool take_taken(const via::Fragment& fragment, Effects& effects);
  bool take_declined(const via::Fragment& fragment);
  Moved fetch(std::size_t offset, std::size_t length);
  void fetch_failed(Moved why, Effects& effects);
  void long_one_is_there(Effects& effects);

  // receive.cpp. False: the peer talks nonsense, or the connection failed.
  enum class Enough { everything, one_receive, one_send };
  bool receive_some(Enough enough, Effects& effects);
  bool handle_fragment(const via::Fragment& fragment, Effects& effects);
  bool start_message(const via::Fragment& fragment, Effects& effects);
  bool whole_send(const via::Fragment& fragment, Effects& effects);
  bool start_long_send(const via::Fragment& fragment, std::size_t& header, Effects& effects);
  bool rdma_done(const via::Fragment& fragment, Effects& effects);
  bool placed(const via::Fragment& fragment, Effects& effects);
  bool told_broken(const via::Fragment& fragment, Effects& effects);
  bool more_of_message(std::span<const std::byte> bytes, bool last, Effects& effects);
  void end_of_message(Effects& effects);
  bool find_receive(std::size_t length, Effects& effects);
  void receive_cannot_take(std::uint32_t status, Effects& effects);
  void place_long_send(std::span<const std::byte> bytes, Effects& effects);
  void finish_receive(std::uint32_t operation, std::uint32_t word, std::uint32_t data, std::uint32_t length,
                      Effects& effects);
  static void place(const WorkItem& item, std::size_t offset, std::span<const std::byte> bytes);
  static void place_small(const WorkItem& item, std::span<const std::byte> bytes);
  void tell_of_room();

  const std::shared_ptr<Adapter> adapter_;
  Registrations& registrations_;  // the adapter's
  VIP_VI_STATE state_ = VIP_STATE_IDLE;
  VIP_VI_ATTRIBUTES attributes_;
  std::uint64_t tag_;
  const std::uint32_t slot_;

  WorkQueue send_;
  WorkQueue receive_;

  std::unique_ptr<via::Channel> channel_;
  std::unique_ptr<via::Reach> reach_;
  via::ShmReach* shared_ = nullptr;  // the reach, if the peer is on this host
  via::NetReach* far_ = nullptr;     // the reach, if it is not
  VIP_VI_ATTRIBUTES peer_{};

  // The message going out, if it did not all fit.
  enum class Owner { nobody, item, reply };
  struct {
    Owner owner = Owner::nobody;
    bool begun = false;
    std::size_t sent = 0;
  } out_;

  // The message coming in, if it has not all come.
  struct {
    std::uint32_t word = 0;    // 0: none
    bool has_receive = false;  // else what comes is dropped
    std::uint32_t length = 0;
    std::uint32_t have = 0;
    std::uint32_t immediate = 0;
    std::uint32_t handle = 0;
    std::uint64_t address = 0;
  } in_;

  // Sends by reference. `asking`: the last one sent has not been answered, and nothing is sent behind it.
  struct {
    bool asking = false;
    bool declined = false;       // the peer cannot reach our memory: never again
    bool tell_declined = false;  // what could not be pushed yet
    bool tell_taken = false;
    std::uint32_t lent = 0;  // sent, and not taken yet: the peer may be reading them
  } refer_;
  // Offers to the peer, by number: open are those behind `through`.
  enum class Rest { said, is_there, is_not };
  struct {
    Rest rest = Rest::said;  // of the last one
    std::uint64_t made = 0;
    std::uint64_t through = 0;     // by the peer
    std::uint32_t unfinished = 0;  // sends
    std::uint32_t looks = 0;       // since the peer was through with one
    std::uint32_t pause = 0;       // messages until the next offer
    std::uint32_t next_pause = 0;
    bool not_now = false;
    bool never = false;  // the peer cannot reach our memory
  } offers_;
  std::uint64_t offers_seen_ = 0;  // of the peer's

  // The one being received by reference, or of which a part is the sender's to write.
  struct {
    bool waiting = false;   // for kRest
    bool stalled = false;   // an offer that the sender has, for now: it stays in the ring
    bool returned = false;  // by us
    bool told = true;       // that it is
    bool peer_is_gone = false;
    std::uint32_t looks = 0;
    std::uint32_t word = 0;
    std::uint32_t length = 0;
    std::uint32_t immediate = 0;
    std::uint32_t handle = 0;
    std::uint64_t address = 0;
    std::uint32_t theirs_from = 0;
    std::uint64_t offer = 0;
  } taking_;

  // Receive descriptors of this connection, without those that had a fault of their own.
  struct {
    std::uint64_t shown = 0;  // that the peer may know of
    std::uint64_t used = 0;   // by messages
    bool has_place = false;   // in the table, from the first that can be mapped
    bool lent = false;        // one was shown

    void took_one() {
      ++used;
      if (shown < used) shown = used;
    }
  } posted_;
  std::uint64_t receives_taken_ = 0;  // of the peer's, by our messages

  std::uint32_t send_looks_ = 0;
  std::uint64_t told_when_ = 0;      // how much must be delivered for the channel to tell; 0: it was not asked
  std::uint64_t messages_sent_ = 0;  // that the peer acknowledges
  std::uint64_t messages_acknowledged_ = 0;
  std::uint64_t messages_placed_ = 0;  // of the peer's
  std::uint64_t placed_told_ = 0;
  std::uint32_t reads_under_way_ = 0;  // by message
  std::deque<ReadHeader> replies_;     // reads of the peer that we are to answer
};

}  // namespace viaduct::vipl
