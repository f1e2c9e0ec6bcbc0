// A session: everything between two processes on two hosts, as a pure state machine. Frames and time come in; frames,
// events and the next deadline come out. It makes no system call, reads no clock and has no thread, so the same code
// runs over a real network, in a fault simulator and in a simulated cluster. docs/formats/net.md is what it says on the
// wire.
//
// One thread at a time. Whoever drives it:
//   receive() for each frame that came; next_frame() until it gives 0; take_event() until there is none;
//   about_to_sleep() and the rest of the frames; sleep until next_deadline() or a frame; tick().
//
// The peer is not trusted: the worst that its frames can do is to end this session as `broken`.
#pragma once

#include <sys/uio.h>

#include <deque>
#include <memory>
#include <span>
#include <unordered_map>

#include "net/congestion.hpp"
#include "net/flow.hpp"
#include "net/path_mtu.hpp"
#include "net/received_numbers.hpp"
#include "net/round_trip.hpp"
#include "net/sent_frames.hpp"
#include "net/session_types.hpp"
#include "net/transfer.hpp"

namespace viaduct::net {

class Session {
 public:
  Session(const SessionOptions& options, RegisteredMemory& memory, std::uint64_t now);

  // Flows. open() asks the peer, which finds the request in its event; 0: too many wait for an answer.
  std::uint32_t open(const FlowLimits& limits, std::span<const std::byte> request);
  bool accept(std::uint32_t flow, const FlowLimits& limits, std::span<const std::byte> answer);
  void refuse(std::uint32_t flow, Reason reason, std::span<const std::byte> answer);
  // Taken: the bytes are copied. At most largest_item() of them.
  Sent try_send(std::uint32_t flow, std::span<const iovec> pieces);
  std::size_t largest_item(std::uint32_t flow) const;
  std::uint32_t credit(std::uint32_t flow);  // 0: an event `writable` follows
  // The next message, in place until consume().
  bool peek(std::uint32_t flow, std::span<const std::byte>& message);
  void consume(std::uint32_t flow);
  // The peer sees the end behind what was sent. Receiving goes on.
  void finish(std::uint32_t flow);
  // What registered memory knows the flow by; its number to begin with.
  void set_user(std::uint32_t flow, std::uint64_t user) {
    if (Flow* found = find(flow); found != nullptr) found->user = user;
  }
  // Items of ours that the peer has acknowledged, with all before them.
  std::uint64_t delivered(std::uint32_t flow) const;
  void tell_when_delivered(std::uint32_t flow, std::uint64_t items);
  // What this side began through the flow is not touched any more; no event tells of it.
  void give_up_transfers(std::uint32_t flow);
  // Forgets the flow here. In good order: delivers first what was taken, and the peer sees the end; else at once.
  void close(std::uint32_t flow, bool in_good_order = true);

  // The peer's registered memory. False: no credit, or the flow is not open; an event `writable` follows. `local` must
  // stay as it is until the event `transferred`, which comes once for each.
  bool get(std::uint32_t flow, std::byte* local, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
           std::uint64_t cookie);
  bool put(std::uint32_t flow, const std::byte* local, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
           std::uint64_t cookie);

  // Frames in and out. `marked`: the network says that it is congested.
  // False: it is not the peer's, and has changed nothing.
  bool receive(const OpenedFrame& frame, std::uint64_t now, bool marked = false);
  std::size_t next_frame(std::span<std::byte> room, std::uint64_t now);
  // What is owed to the peer is sent by the next next_frame(), not later.
  void about_to_sleep() { acknowledge_now_ |= unacknowledged_ > 0; }
  std::uint64_t next_deadline() const;
  void tick(std::uint64_t now);

  bool take_event(Event& event);

  static bool are_sane(const FlowLimits& limits);
  // The flow is open and takes messages, gets and puts, where there is credit.
  bool takes_items(std::uint32_t flow) const;
  bool has_flows() const { return flows_.size() > 1 || !asked_.empty(); }  // beside the control flow

  // The session's end: the peer is told with the next frame.
  void finish_session();
  // Somebody at the peer's address says that there is no such session.
  void peer_forgot(std::uint64_t now);
  Over over() const { return over_; }
  std::uint64_t heard_at() const { return heard_at_; }  // when the peer's last frame came
  // Nothing is under way in either direction that this side knows of.
  bool quiet() const;

  std::size_t frame_size() const { return path_mtu_.size(); }  // the largest in use
  const SessionCounters& counters() const { return counters_; }
  const RoundTrip& round_trip() const { return round_trip_; }
  std::uint32_t window() const { return congestion_.window(); }
  std::size_t memory_in_use() const;  // roughly: for limits and tests

 private:
  static constexpr std::uint64_t kNever = UINT64_MAX;
  struct Composing {
    Writer writer;
    SentFrame* frame;  // what must be repaired is noted here
  };
  struct Ask {
    std::uint32_t transfer;
    std::uint64_t offset;
    std::uint32_t size;
  };
  struct PeersPlace {  // what a put, an offer or a get names
    std::uint32_t transfer;
    std::uint64_t tag;
    std::uint64_t address;
  };
  struct ResultDue {
    std::uint32_t transfer;
    TransferStatus status;
    std::uint32_t flow;  // which is not closed before this has come; 0: none
  };
  struct Backlog {
    What what;
    std::vector<std::byte> bytes;
  };

  // session_receive.cpp
  void take_frame(const OpenedFrame& frame, std::uint64_t now, bool marked);
  bool take_chunk(Reader& reader, bool numbered, std::uint64_t now);
  bool take_item(Reader& reader, ChunkKind kind);
  bool take_credit(Reader& reader);
  bool take_end(Flow& flow, std::uint32_t sequence);
  void break_session() {
    if (over_ == Over::no) end_session(Over::broken);
  }
  void end_session(Over why);
  void note_arrival(std::uint64_t number, std::uint64_t now, bool out_of_order);

  // session_acks.cpp
  bool take_ack(Reader& reader, std::uint64_t now);
  void acknowledged(SentFrame& frame, std::uint64_t now);
  void detect_losses(std::uint64_t now);
  void lose(SentFrame& frame, std::uint64_t now);
  void repair(const Repair& repair);
  void came(const Repair& repair);
  std::uint64_t loss_bound() const;
  std::uint64_t probe_deadline() const;

  // session_send.cpp
  bool has_content() const;
  bool has_met() const { return options_.connecting || highest_came_ != 0; }  // the peer is no stranger
  std::size_t write_probe(std::span<std::byte> room, std::size_t size, std::uint64_t now);
  SentFrame& number_frame(FrameHeader& header, std::uint64_t now);
  std::size_t finish_frame(std::span<std::byte> room, std::size_t used, const FrameHeader& header);
  void write_ack(Writer& writer, std::uint64_t now);
  void write_results(Composing& composing);
  void write_asks(Composing& composing);
  void write_flows(Composing& composing);
  bool write_flow(Composing& composing, Flow& flow);
  void write_data(Composing& composing);
  bool write_data_of(Composing& composing, Transfer& transfer);

  // session_flows.cpp
  Flow* find(std::uint32_t flow) const;
  void queue(Flow& flow);
  void advance(Flow& flow);
  bool take_control(Flow& control);
  bool take_open(Reader& reader);
  bool take_accept(Reader& reader);
  bool take_refusal(Reader& reader);
  bool take_close(Reader& reader);
  void send_control(What what, std::vector<std::byte> bytes);
  void drain_backlog();
  void settle(Flow& flow);
  void tell_writable(Flow& flow);
  void tell_delivered(Flow& flow);
  void end_transfers_of(std::uint32_t flow, TransferStatus status);
  void forget(std::uint32_t flow, TransferStatus status);
  Event& tell(Event::Kind kind, std::uint32_t flow);

  // session_transfers.cpp
  Flow* flow_with_credit(std::uint32_t flow);
  Transfer& begin(std::uint32_t flow, Transfer::Role role, std::uint64_t cookie, std::byte* local,
                  std::uint64_t length);
  void send_item(Flow& flow, What what, std::vector<std::byte> bytes);
  bool run_head(Flow& flow);  // of a flow: a put, an offer or a get. False: it waits
  static PeersPlace place_from(Reader& reader);
  Transfer& take_on(Flow& flow, Transfer::Role role, const PeersPlace& place, std::uint64_t length);
  bool run_put(Flow& flow);
  bool run_offers(Flow& flow);
  bool begin_offer(Flow& flow, std::uint32_t behind);
  bool overlaps_another(const Flow& flow, const PeersPlace& place, std::uint64_t length) const;
  bool run_get(Flow& flow);
  bool take_ask(Reader& reader);
  bool take_data(Reader& reader);
  bool take_result(Reader& reader);
  void owe_result(Flow& flow, std::uint32_t transfer, TransferStatus status);
  void ask(Transfer& transfer, std::uint64_t most);
  void ask_more();
  void keep_going(Transfer& transfer);
  void queue_data(Transfer& transfer);
  void finish_transfer(std::uint32_t id, TransferStatus status);
  void drop_transfer(std::uint32_t id);
  bool begun_by_peer(std::uint32_t id) const;
  std::uint32_t whose(bool ours) const { return ours == options_.connecting ? 0 : kTransferOfAcceptor; }

  const SessionOptions options_;
  RegisteredMemory& memory_;
  PathMtu path_mtu_;
  Over over_ = Over::no;
  bool bye_due_ = false;
  std::uint32_t byes_left_ = 8;
  std::deque<Event> events_;
  const std::unique_ptr<SessionCounters> own_counters_;
  SessionCounters& counters_;

  // Receiving.
  ReceivedNumbers received_;
  std::uint32_t unacknowledged_ = 0;  // frames that came since the last ack
  bool acknowledge_now_ = false;
  std::uint64_t ack_deadline_ = kNever;
  std::uint64_t highest_came_ = 0;
  std::uint64_t highest_came_at_ = 0;
  std::uint64_t heard_at_;
  std::uint64_t silent_since_ = 0;  // the first ping that it has not answered; 0: it has all
  std::uint64_t window_limited_since_ = 0;
  std::uint64_t doubted_at_ = 0;  // since when somebody says that the peer has forgotten the session
  std::uint32_t marks_ = 0;

  // Sending.
  SentFrames sent_;
  Congestion congestion_;
  RoundTrip round_trip_;
  std::uint64_t highest_acknowledged_ = 0;
  std::uint64_t marks_told_ = 0;
  std::uint32_t number_bound_ = 3;  // later frames that prove a loss
  std::uint32_t time_bound_ = 1;    // eighths of a round trip beyond the whole that prove a loss
  std::uint64_t loss_deadline_ = kNever;
  std::uint64_t waiting_since_ = 0;  // nothing was under way before
  std::uint64_t last_sent_at_ = 0;
  std::uint32_t probes_in_row_ = 0;
  bool ping_due_ = false;

  // Flows and what they have to send.
  std::unordered_map<std::uint32_t, std::unique_ptr<Flow>> flows_;
  std::unordered_map<std::uint32_t, FlowLimits> asked_;  // by the peer, not answered yet
  std::deque<std::uint32_t> sending_;
  std::deque<Backlog> backlog_;  // control items without credit
  std::uint32_t next_flow_;
  std::uint32_t peers_last_flow_ = 0;

  // Transfers.
  std::unordered_map<std::uint32_t, Transfer> transfers_;
  std::uint32_t next_transfer_;
  std::deque<std::uint32_t> data_ready_;
  std::deque<std::uint32_t> pulls_;  // want to ask for more
  std::deque<Ask> asks_;
  std::deque<ResultDue> results_;
  std::uint64_t asked_bytes_ = 0;  // asked for and not there yet
};

}  // namespace viaduct::net
