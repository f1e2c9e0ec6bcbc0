// The endpoint behind viaduct/mx.hpp.
//
// Files: open.cpp (opening, closing), connect.cpp (partners and connections), send.cpp (out), receive.cpp (in),
// rendezvous.cpp (long messages), self.cpp (to ourselves), requests.cpp (completions), progress.cpp (who does the work,
// and how those who wait sleep), memory.cpp (gets and puts of the program's).
//
// Locks: one for everything; who holds it may take it again, since the program's handlers call the endpoint. Looking
// into the ready queue, and adding and removing connections there, needs leadership (via/port/leadership.hpp), which is
// taken first, or tried.
#pragma once

#include <viaduct/mx.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/spin_lock.hpp"
#include "base/waiter.hpp"
#include "mx/matcher.hpp"
#include "mx/partner.hpp"
#include "mx/request.hpp"
#include "mx/statistics.hpp"
#include "via/port/leadership.hpp"
#include "via/port/network.hpp"
#include "via/port/port.hpp"

namespace viaduct::mx {

class Doorkeeper;

constexpr std::uint64_t kConnectionTag = 1;           // of memory that partners reach
constexpr std::uint64_t kConnectNs = 30'000'000'000;  // for what begins to connect without saying how long
constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 46;

constexpr std::uint64_t kEagerMost = 32u << 10;  // longer messages stay where they are until a receive takes them
constexpr std::size_t kFragment = 16u << 10;     // so that the receiver copies while the sender does

class Core final : public Endpoint {
 public:
  Core();
  ~Core() override;
  bool start(const Options& options, Failure& why);

  Name name() const override { return name_; }
  std::uint32_t session() const override { return session_; }

  Partner* partner(const Name& name, std::uint32_t key) override;
  Partner* self() override { return self_; }
  Name name_of(const Partner* partner) const override { return partner->name; }
  std::uint32_t session_of(const Partner* partner) const override { return partner->session; }
  std::uint32_t index_of(const Partner* partner) const override { return partner->index; }
  bool is_connected(const Partner* partner) const override;
  bool is_local(const Partner* partner) const override;
  void set_context(Partner* partner, void* context) override { partner->context = context; }
  void* context_of(const Partner* partner) const override { return partner->context; }
  Request* connect(Partner* partner, std::uint32_t key, std::uint64_t match, void* context,
                   std::uint64_t within_ns) override;
  void disconnect(Partner* partner) override;

  Request* send(const Send& send) override;
  Request* receive(const Receive& receive) override;
  bool probe(const Receive& like, Waiting& found) override;
  Message* claim(const Receive& like, Waiting& found) override;
  Request* receive_claimed(Message* message, const Receive& receive) override;
  bool send_control(Partner* to, std::uint32_t word, std::span<const std::byte> bytes) override;

  Memory expose(const void* address, std::size_t length, std::uint64_t rights) override;
  void withdraw(Memory memory, const void* address) override;
  Request* get(Partner* from, std::span<const iovec> into, std::uint32_t key, std::uint64_t address,
               void* context) override {
    return move(Completion::Kind::get, from, into, key, address, context);
  }
  Request* put(Partner* to, std::span<const iovec> bytes, std::uint32_t key, std::uint64_t address,
               void* context) override {
    return move(Completion::Kind::put, to, bytes, key, address, context);
  }

  bool is_done(const Request* request) const override;
  bool look(const Request* request, Completion& completion) const override;
  bool take(Request* request, Completion& completion) override;
  Request* first_done(std::uint64_t match, std::uint64_t mask) const override;
  bool is_buffered(const Request* request) const override;
  void forget(Request* request) override;
  bool cancel(Request* request) override;
  void set_timeout(Request* request, std::uint64_t within_ns) override;

  bool progress() override;
  bool wait(std::uint64_t within_ns, Look look) override;
  void wake() override;
  View view() const override;

  // By another endpoint of this process that waits: programs of one thread have several.
  bool poll_for_another(std::uint64_t now);
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }  // in a forked child
  bool is_abandoned() const { return abandoned_.load(std::memory_order_relaxed); }
  bool owns(const Request* request);
  void set_events(Events* events) { events_ = events; }  // under a Guard

  class Guard {
   public:
    explicit Guard(const Core& core) : core_(const_cast<Core&>(core)) { core_.enter(); }
    ~Guard() { core_.leave(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Core& core_;
  };

 private:
  friend class Guard;
  class LeaderSleeper;
  enum class Took { yes, not_now, nonsense };
  enum class Pushed { yes, full, closed };

  // progress.cpp
  void enter();
  void leave();
  void tell_events();
  bool poll(bool of_a_wait);
  void help_in_time();
  void poll_as_leader();
  void visit_tags(std::span<const std::uint64_t> tags);
  void visit(Link& link);
  void visit_if_there(Link* link);
  void look_again_at(Link& link);
  void press_on();
  bool ask_for_room();
  void look_at_times();
  void look_at_door_in_time();
  std::uint64_t most_sleep_ns() const;
  SleepResult sleep_as_leader(Deadline deadline, const Clock& clock);
  static Waiter& waiter();

  // connect.cpp
  void begin_to_connect(Partner& partner, std::uint64_t until);
  void advance_connecting();
  void end_of_handshake(Partner& partner, via::Handshake::Step step);
  void answer_the_door();
  void answer(std::unique_ptr<via::Handshake> handshake);
  void advance_answered();
  void adopt(Partner& partner, via::Connection connection, std::uint32_t slot, std::uint32_t session);
  void connecting_failed(Partner& partner, Status why);
  void link_ended(Link& link);
  void link_broke(Link& link, const char* why);
  void partner_gone(Partner& partner, Status why);
  void drop_links(Partner& partner);
  void attend(Link& link);
  void leave_alone(Link& link);
  std::uint32_t take_slot();
  void give_slot(std::uint32_t slot);
  via::Terms terms(std::uint32_t slot) const;
  via::ChannelOptions channel_options() const;
  Partner* add_partner(const Name& name);

  // send.cpp
  Request* new_request(Completion::Kind kind, Partner* partner, void* context);
  void run_line(Partner& partner);
  Pushed run_line_until_stuck(Partner& partner);
  Pushed push(Request& request);
  Pushed push_message(Request& request);
  Pushed push_data(Request& request);
  void end_of_push(Request& request);
  void set_blocked(Partner& partner, bool now);
  Pushed try_send(Partner& partner, std::span<const iovec> pieces, std::uint32_t immediate, bool more);
  void say(Partner& partner, std::uint32_t immediate, std::span<const std::byte> bytes);
  template <class Header>
  void say(Partner& partner, Word word, const Header& header) {
    say(partner, Immediate{word, 0, 0}.pack(), std::as_bytes(std::span(&header, 1)));
  }
  void tell_of_room(Link& link);

  // receive.cpp
  Took take_fragment(Link& link, const via::Fragment& fragment);
  Took take_message(Link& link, const via::Fragment& fragment, Immediate immediate);
  Took more_of_message(Link& link, const via::Fragment& fragment);
  Took take_control(Link& link, std::span<const std::byte> bytes, Immediate immediate);
  Request* find_receive(std::uint64_t match, Space space, Partner& from);
  bool has_room_for(std::uint64_t bytes) const;
  Message& new_message(Partner& from, std::uint64_t match, Space space, std::uint64_t length);
  void free_message(Message& message);
  void forget_room(const Message& message);
  void unstall();
  void deliver(Message& message, Request& request);
  void begin_receive(Request& request, Partner& from, std::uint64_t match, std::uint64_t length, bool has_data,
                     std::uint64_t data);
  void end_receive(Request& request);
  void tell_matched(Partner& partner, std::uint32_t number);

  // rendezvous.cpp
  Pushed push_announce(Request& request);
  void lend(Request& request);
  void take_back(Request& request, bool wait_for_copies);
  Took take_announce(Link& link, std::span<const std::byte> bytes, Immediate immediate);
  Took take_want(Link& link, std::span<const std::byte> bytes);
  Took take_data(Link& link, std::span<const std::byte> bytes);
  Took take_done(Link& link, std::span<const std::byte> bytes);
  void begin_to_get(Request& request);
  void go_on_getting(Request& request);
  void want_it_pushed(Request& request);
  void take_ends(Link& link);
  void run_getters(Partner& partner);

  // self.cpp
  void send_to_self(Request& request);

  // memory.cpp
  Request* move(Completion::Kind kind, Partner* partner, std::span<const iovec> pieces, std::uint32_t key,
                std::uint64_t address, void* context);
  void go_on_moving(Request& request);
  void move_ended(Request& request, via::Reach::Began how);

  // requests.cpp
  void finish(Request& request, Status status);
  Completion completion_of(const Request& request) const;
  void give_back(Request& request);
  void count(const Request& request);
  void publish();
  void give_time(Request& request, std::uint64_t until);
  bool give_up(Request& request, Status why);
  void time_is_over(Request& request);

  Name name_;
  std::string family_;
  std::uint32_t key_ = 0;
  std::uint32_t session_ = 0;
  std::size_t most_unexpected_ = 0;
  Events* events_ = nullptr;
  std::atomic<bool> abandoned_{false};
  bool asymmetric_ = false;

  SpinLock lock_;
  std::atomic<const void*> owner_{nullptr};
  int depth_ = 0;
  bool tell_waiters_ = false;    // something has completed
  bool tell_leader_ = false;     // there is something new to do
  bool telling_events_ = false;  // one at a time, in order

  std::shared_ptr<via::Port> port_;
  std::shared_ptr<via::Listener> listener_;
  std::shared_ptr<via::Network> network_;
  via::Leadership leadership_;
  std::unique_ptr<via::ReadyQueue> ready_;  // goes before the channels in it
  std::unique_ptr<Doorkeeper> doorkeeper_;
  bool somebody_knocks_ = true;
  std::uint32_t polls_of_leader_ = 0;
  std::uint64_t door_looked_at_ns_ = 0;
  std::atomic<std::uint64_t> wakes_{0};
  std::atomic<std::uint32_t> idle_polls_{0};

  std::unique_ptr<Statistics> statistics_;
  Matcher matcher_;
  RequestPool pool_;
  std::vector<std::unique_ptr<Message>> all_messages_;
  std::vector<Message*> free_messages_;
  std::size_t unexpected_bytes_ = 0;
  Chain<Request, &Request::finished> finished_;
  Chain<Request, &Request::finished> to_tell_;
  Chain<Request, &Request::timed> timed_;
  std::uint64_t next_time_ = UINT64_MAX;
  std::uint64_t usual_timeout_ns_ = kForever;

  std::vector<std::unique_ptr<Partner>> partners_;
  struct NameHash {
    std::size_t operator()(const Name& name) const {
      return static_cast<std::size_t>((name.nic << 16 ^ name.endpoint) * 0x9e3779b97f4a7c15);
    }
  };
  std::unordered_map<Name, Partner*, NameHash> by_name_;
  Partner* self_ = nullptr;
  std::vector<Partner*> connecting_;
  struct Answered {
    std::unique_ptr<via::Handshake> handshake;
    Partner* partner;
    std::uint32_t slot;
    std::uint32_t session;
    std::uint64_t until;
  };
  std::vector<Answered> answered_;
  std::size_t link_count_ = 0;
  std::uint64_t links_dropped_ = 0;       // ever
  std::uint64_t links_dropped_seen_ = 0;  // when what is visited was looked up
  std::vector<std::uint32_t> free_slots_;
  std::uint32_t slots_used_ = 0;
  std::vector<Link*> leftovers_;
  std::vector<Link*> stalled_;
  std::vector<Partner*> blocked_;
};

// All partners of this process, by a number that outsiders may hold on to.
std::uint32_t register_partner(Partner* partner);  // 0: there is no room
void unregister_partner(std::uint32_t handle);
Partner* registered_partner(std::uint32_t handle);

}  // namespace viaduct::mx
