// A station: one process's end of the network, as a pure state machine. It says hello and answers, keeps the sessions,
// and hands each frame to the one that it belongs to. Like a session it makes no system call and reads no clock:
// frames, time and randomness come from outside. docs/formats/net.md, "Meeting", is what it says on the wire.
//
// One thread at a time. Idle sessions cost nothing: only those that were used, or whose time has come, are looked at.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "net/session.hpp"

namespace viaduct::net {

// Where a peer is, as the adapter below knows it: an Ethernet address.
using Place = std::array<std::uint8_t, 6>;

inline constexpr const char* kNobodyAnswered = "nobody answered";  // the text of a connect() whose time is up

struct StationOptions {
  SessionOptions session;  // of each; what belongs to one is filled in
  std::size_t most_sessions = 4096;
  std::shared_ptr<const Key> key{};  // then only who has it as well is talked to
  std::size_t most_half_open = 64;   // answered, and nothing has come since: the oldest makes room
};

struct StationEvent {
  enum class Kind : std::uint8_t {
    connected,  // connect() has its session
    failed,     // connect() has none: `text` says why
    met,        // a peer has come that said hello
    session,    // `event`
  };
  Kind kind;
  std::uint64_t session = 0;
  Event event{};
  std::string text;
  Reason reason = Reason::timed_out;  // of a failure: timed_out, not_offered, key_differs
};

class Station {
 public:
  // `random`: 64 bits that nobody can guess.
  Station(const StationOptions& options, RegisteredMemory& memory, std::function<std::uint64_t()> random);

  void offer(const std::string& name) { names_.insert(name); }
  void withdraw(const std::string& name) { names_.erase(name); }
  bool offers_any() const { return !names_.empty(); }
  bool offers(const std::string& name) const { return names_.contains(name); }

  // Says hello at `place` until there is an answer or `deadline` is over. The number that its session has, or will
  // have.
  // `frame_size`: what the way there carries.
  std::uint64_t connect(const Place& place, const std::string& name, std::size_t frame_size, std::uint64_t now,
                        std::uint64_t deadline);

  enum class Taken : std::uint8_t {
    yes,
    dropped,
    for_another,  // a hello for a name that is not offered here: whoever offers it on this host should have it
  };
  Taken receive(const Place& from, std::span<const std::byte> bytes, std::uint64_t now, bool marked = false);
  // What a hello says about itself; nothing where it is none.
  struct Hello {
    std::uint64_t number = 0;
    std::uint64_t incarnation = 0;
    std::uint16_t frame_size = 0;
    std::uint16_t answer_port = 0;  // over UDP: where the answer goes, at the address that the hello comes from
    std::string name;
    bool sealed = false;  // its sender has a key
    std::uint8_t ciphers = 0;
    Nonce nonce{};
  };
  static std::optional<Hello> read_hello(std::span<const std::byte> bytes);
  static std::optional<Hello> read_hello(const OpenedFrame& frame);
  void set_answer_port(std::uint16_t port) { answer_port_ = port; }
  // What the way to a peer carries, for those that come.
  void set_way(std::function<std::size_t(const Place&)> way) { way_ = std::move(way); }

  // Of a hello that nobody on this host wants.
  void refuse(const Place& from, std::span<const std::byte> bytes);

  // The next frame and where it goes; 0: none now.
  std::size_t next_frame(std::span<std::byte> room, Place& to, std::uint64_t now);
  // Acknowledgements leave before a sleep: next_frame() until it gives 0 afterwards.
  void about_to_sleep();
  std::uint64_t next_deadline() const { return deadlines_.empty() ? UINT64_MAX : deadlines_.begin()->first; }
  void tick(std::uint64_t now);

  bool take_event(StationEvent& event);

  // For using it; null where it is not there, or not yet. What it has to say is looked at afterwards.
  Session* use(std::uint64_t session);
  const Session* look(std::uint64_t session) const;
  Place place_of(std::uint64_t session) const;
  std::uint64_t peers_incarnation(std::uint64_t session) const;
  // Ends it, or gives up connecting. The peer is told.
  void forget(std::uint64_t session);

  std::size_t sessions() const { return entries_.size(); }
  bool quiet() const;
  std::uint64_t incarnation() const { return incarnation_; }
  const StationCounters& counters() const { return *counters_; }
  // Before anything else; it outlives the station.
  void set_ledger(Ledger& ledger) {
    ledger_ = &ledger;
    counters_ = ledger.station();
  }

 private:
  struct Entry {
    std::uint64_t number = 0;
    Place place{};
    std::unique_ptr<Session> session;  // none yet: hello is being said
    std::uint64_t peers_number = 0;
    std::uint64_t peers_incarnation = 0;
    bool half_open = false;
    bool waiting = false;    // stands in used_
    bool awake = false;      // stands in awake_
    bool forgotten = false;  // goes when it has said its last
    std::uint64_t deadline = UINT64_MAX;
    // Connecting.
    std::string name;
    std::size_t frame_size = 0;
    std::uint64_t give_up_at = 0;
    std::uint64_t hello_at = 0;
    std::uint64_t pause = 0;
    std::uint64_t unproven_at = 0;  // when somebody first refused who has not shown that he has the key
    std::string unproven;           // what he said
    Reason unproven_reason = Reason::timed_out;
    // With a key.
    Nonce hello_nonce{}, answer_nonce{};
    std::uint8_t ciphers = 0;  // that the peer of this entry has
  };
  struct Letter {
    Place to;
    std::vector<std::byte> bytes;
  };
  Taken take_hello(const Place& from, const OpenedFrame& frame, std::uint64_t now);
  std::optional<Refusal> fault_of(const Hello& hello, const OpenedFrame& frame) const;
  Taken take_answer(const Place& from, const OpenedFrame& frame, std::uint64_t now);
  Taken take_refusal(const OpenedFrame& frame, std::uint64_t now);
  Taken take_unknown(const Place& from, const OpenedFrame& frame, std::uint64_t now);
  void post_refusal(const Place& to, const Hello& hello, Refusal reason, const std::string& text = {});
  bool is_proven(const OpenedFrame& frame, std::span<const std::byte> context = {}) const;
  Nonce fresh_nonce() const;
  std::shared_ptr<Seal> seal_of(const Entry& entry, bool connecting) const;
  Taken take_session_frame(const Place& from, const OpenedFrame& frame, std::uint64_t now, bool marked);
  void say_hello(Entry& entry, std::uint64_t now);
  void send_answer(const Entry& entry);
  void post(const Place& to, FrameKind kind, std::uint64_t session, std::vector<std::byte> body,
            std::span<const std::byte> context = {});
  void make_session(Entry& entry, bool connecting, std::uint16_t peers_frame_size, std::uint64_t now);
  void make_room_for_half_open();
  void fail(std::uint64_t number, std::string why, Reason reason = Reason::timed_out);
  void touch(Entry& entry);
  void collect(Entry& entry);
  void set_deadline(Entry& entry, std::uint64_t deadline);
  void erase(std::uint64_t number);
  Entry* find(std::uint64_t number);
  std::uint64_t fresh_number();

  const StationOptions options_;
  RegisteredMemory& memory_;
  std::function<std::uint64_t()> random_;
  const std::uint64_t incarnation_;
  std::uint16_t answer_port_ = 0;
  std::function<std::size_t(const Place&)> way_;
  std::set<std::string> names_;
  std::unordered_map<std::uint64_t, Entry> entries_;                  // by our number
  std::unordered_map<std::uint64_t, std::uint64_t> by_peers_number_;  // ours by the peer's
  std::deque<std::uint64_t> half_open_;                               // oldest first
  std::deque<std::uint64_t> used_;                                    // may have frames or events
  std::vector<std::uint64_t> awake_;                                  // used since the last sleep
  std::set<std::pair<std::uint64_t, std::uint64_t>> deadlines_;       // when, who
  std::deque<Letter> letters_;                                        // frames outside of sessions
  std::deque<StationEvent> events_;
  StationCounters own_counters_;
  StationCounters* counters_ = &own_counters_;
  Ledger* ledger_ = nullptr;
};

}  // namespace viaduct::net
