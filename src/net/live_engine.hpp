// The engine of the door: a node, the flows of its program, and the threads that sleep on it.
//
// Everything but news() is under one lock. A flow has a record here from connect() or its arrival until close(); the
// session that carries it is shared by all flows to that process, and goes when it has none for a while.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "net/engine_lock.hpp"
#include "net/keeper.hpp"
#include "net/node.hpp"
#include "net/sleepers.hpp"

namespace viaduct::net {

class LiveEngine final : public Engine, private Kept {
 public:
  LiveEngine(const EngineOptions& options, std::unique_ptr<Node> node);
  ~LiveEngine() override;

  bool offer(const std::string& name, Failure& why) override;
  void withdraw(const std::string& name) override;

  FlowId connect(const std::string& host, const std::string& name, const ConnectOptions& options,
                 Failure& why) override;
  bool take_incoming(Incoming& incoming) override;
  bool accept(FlowId flow, std::uint64_t user, const FlowLimits& limits, std::span<const std::byte> answer) override;
  void refuse(FlowId flow, Reason reason, std::span<const std::byte> answer) override;

  Sent try_send(FlowId flow, std::span<const iovec> pieces) override;
  std::size_t largest_item(FlowId flow) const override;
  std::uint32_t credit(FlowId flow) const override;
  std::uint64_t delivered(FlowId flow) const override;
  void tell_when_delivered(FlowId flow, std::uint64_t items) override;
  bool peek(FlowId flow, std::span<const std::byte>& message) override;
  void consume(FlowId flow) override;
  void finish(FlowId flow) override;
  void close(FlowId flow, bool in_good_order) override;

  Sent get(FlowId flow, std::byte* local, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
           std::uint64_t cookie) override;
  Sent put(FlowId flow, const std::byte* local, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
           std::uint64_t cookie) override;
  void give_up_transfers(FlowId flow) override;
  void settle() override { const std::lock_guard lock(mutex_); }

  std::size_t take_ready(std::span<std::uint64_t> users) override;
  bool take_event(FlowId flow, FlowEvent& event) override;

  bool progress() override;
  void flush() override;

  std::uint64_t news() const override { return news_.load(std::memory_order_acquire); }
  int descriptor() const override;
  bool prepare_to_sleep(std::uint64_t seen) override;
  void woke() override;
  void sleep(std::uint64_t seen, std::uint64_t most_ns) override;
  bool drain(std::uint64_t within_ns) override;

  Path path(FlowId flow) const override;
  std::size_t sessions() const override;

 private:
  struct FlowRecord {
    enum class State : std::uint8_t {
      unused,
      meeting,  // no session yet
      opening,  // the peer's program has not answered
      asked,    // by the peer; not answered here
      open,     // or closed by the peer, or without a session any more: there is still something to be read
    };
    State state = State::unused;
    std::uint32_t generation = 0;
    std::uint64_t session = 0;
    std::uint32_t number = 0;  // in its session
    std::uint64_t user = 0;
    // Events that say no more than that they are.
    bool readable = false, writable = false, delivered = false, ended = false;
    bool listed = false;  // in ready_
    std::deque<FlowEvent> events;
    // Connecting.
    std::string key, name;
    Route route;
    std::vector<std::byte> request;
    FlowLimits limits;
    std::uint64_t deadline = UINT64_MAX, within_ns = 0;
    std::uint64_t opened_at = 0, doubt_at = UINT64_MAX;  // on a session that was there before
    bool met_for_it = false;                             // its session was made for this connection
  };
  struct SessionRecord {
    bool connected = false;
    bool ours = false;  // this side said hello
    std::string key;    // host and name that led to it
    std::unordered_map<std::uint32_t, FlowId> flows;
    std::vector<FlowId> meeting;  // wait for the session
    std::uint64_t idle_since = UINT64_MAX;
  };
  static constexpr std::uint64_t kKeepIdle = 5'000'000'000;  // ns that a session without flows is kept

  // What the sleep protocol works on.
  struct Bell;

  FlowRecord* find(FlowId flow) const;
  FlowId make_flow();
  static std::uint32_t index_of(FlowId flow) { return static_cast<std::uint32_t>(flow) - 1; }
  Session* session_of(const FlowRecord& record) const;
  Session* session_with_flow(FlowId flow, std::uint32_t& number) const;
  void free_flow(FlowId flow);

  // engine_connect.cpp
  void meet(FlowId flow, std::uint64_t now);
  void open_on(std::uint64_t session, FlowId flow);
  void met(std::uint64_t session, std::uint64_t now);
  void not_met(const StationEvent& event, std::uint64_t now);
  void fail(FlowId flow, std::string text, Reason reason = Reason::timed_out);
  std::string no_answer(const FlowRecord& record) const;
  enum class Leaving { at_once, in_good_order, it_is_closed };
  void leave_session(FlowId flow, Leaving how);
  void note_idle(std::uint64_t session);
  void drop_session(std::uint64_t session);
  void set_deadline(FlowId flow, std::uint64_t deadline);
  void set_doubt(FlowId flow, std::uint64_t doubt_at);
  void doubt(FlowId flow, std::uint64_t now);
  bool expire(std::uint64_t now);

  // engine_events.cpp
  bool distribute(std::uint64_t now);
  void take_session_event(std::uint64_t session, Event& event, std::uint64_t now);
  void take_asked(std::uint64_t session, Event& event);
  void take_refused(FlowId flow, Event& event, std::uint64_t now);
  void session_over(std::uint64_t session, std::uint64_t now);
  void tell(FlowId flow, FlowEvent event);
  void list(FlowId flow, FlowRecord& record);

  // engine_keep.cpp
  Next keep(std::uint64_t now) override;
  int kept_descriptor() const override { return node_->descriptor(); }
  void before_fork() override { mutex_.lock(); }
  void after_fork(bool in_child) override;
  void end_at_exit(std::uint64_t within_ns) override;
  bool can_need_keeper() const;
  void program_is_here();
  void mind_keeper();

  // engine_sleep.cpp
  void drain_timer();
  void make_news();
  std::uint64_t next_deadline() const;
  void arm_timer(std::uint64_t due);
  void mind_sleepers();

  const EngineOptions options_;
  mutable EngineLock mutex_;
  std::unique_ptr<Node> node_;  // none in a forked child
  mutable std::deque<FlowRecord> flows_;
  std::vector<std::uint32_t> unused_;
  std::unordered_map<std::uint64_t, SessionRecord> sessions_;
  std::map<std::string, std::uint64_t> by_key_;             // sessions by host and name
  std::set<std::pair<std::uint64_t, FlowId>> deadlines_;    // of connections
  std::set<std::pair<std::uint64_t, FlowId>> doubts_;       // when those are looked for afresh that got no answer
  std::set<std::pair<std::uint64_t, std::uint64_t>> idle_;  // since when, sessions of ours without flows
  std::deque<Incoming> incoming_;
  std::deque<FlowId> ready_;

  std::atomic<std::uint64_t> news_{0};
  std::uint32_t sleepers_ = 0;
  bool rung_ = false;
  Fd bell_, timer_;
  Fd bed_;  // what the program's threads sleep on: the bell, and what the keeper sleeps on as well
  std::uint64_t timer_at_ = UINT64_MAX;

  // What the keeper does for it: nothing until it is called, looking now and then whether the program calls, or all.
  enum class Keeping : std::uint8_t { nothing, looking, all };
  Keeping keeping_ = Keeping::nothing;
  std::uint64_t calls_ = 0;       // of the program, in which frames were looked for
  std::uint64_t calls_seen_ = 0;  // by the keeper
  std::uint64_t pause_ = 0;       // until it looks again
};

}  // namespace viaduct::net
