// A TCP socket of this process, and what this library does with it.
//
//   young      the kernel's connection; operations are counted
//   offering   it has proved long-lived: it listens for the peer, or has called it and waits for the answer
//   attached   the shared memory is there. Each direction goes over TCP or the ring as stream_format.hpp says
//   plain      the kernel's connection, for good; `why` says the reason
//
// The kernel's socket stays the authority on the connection's state: connecting, end of stream, reset, errors and time
// limits are its answers. The ring carries bytes, nothing else; so a peer that dies or never comes is TCP as ever.
//
// Made for each TCP socket when it is born; shared by its descriptors in this process (dup). Never unmapped (slab.hpp).
#pragma once

#include <sys/single_threaded.h>

#include <atomic>
#include <cstdint>

#include "base/spinner.hpp"
#include "sockets/brief_lock.hpp"
#include "sockets/family.hpp"
#include "sockets/judge.hpp"
#include "sockets/meeting_place.hpp"
#include "sockets/registry.hpp"
#include "sockets/settings.hpp"
#include "sockets/stream.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/tiny_stream.hpp"
#include "sockets/why.hpp"
#include "sockets/yielder.hpp"

namespace viaduct::sockets {

struct EpollItem;

struct alignas(kLine) Connection {
  // What most calls need, in three lines.
  std::atomic<Life> life{Life::young};
  std::uint32_t sends_since_clock = 0;
  std::atomic<int> pending_error{0};  // what the kernel said to a doorbell instead of to the program
  std::atomic<int> low_water{1};      // SO_RCVLOWAT
  // attached: where things are in the memory
  End* own_end = nullptr;
  End* peer_end = nullptr;
  Direction* out_direction = nullptr;
  Direction* in_direction = nullptr;
  std::byte* out_slots = nullptr;
  std::byte* in_slots = nullptr;

  alignas(kLine) std::atomic<Why> why{Why::young};
  std::uint32_t record = 0;  // its place in the registry, kept for its next socket; 0: none
  int side = 0;              // attached: of the memory
  StreamMemory memory;
  std::atomic<bool> nonblocking{false};  // as far as this process knows; `shared`: ask the kernel
  std::atomic<bool> shared{false};       // another process has the socket too, or had it
  std::atomic<int> cork{0};              // TCP_CORK, as the program set it
  std::atomic<Opened> opened{Opened::unknown};
  std::atomic<bool> lent{false};              // a program was started that may have it
  std::atomic<bool> look_at_kernel{false};    // it reported something: the next empty look must ask it
  std::atomic<bool> rang{false};              // for the peer, since the last wait
  std::atomic<bool> reset_told{false};        // the peer died with bytes unread: said once
  std::atomic<bool> end_seen{false};          // of a peer that never said so: it was killed
  std::atomic<bool> reads_no_more{false};     // the program has shut its receiving half down
  std::atomic<bool> sends_no_more{false};     // or its sending half
  std::atomic<bool> blocked{false};           // a send found no room; room has not been reported since
  std::atomic<bool> named{false};             // armed with the name of a sleep that has not ended
  std::atomic<bool> bell_shared{false};       // doorbells were taken that others slept on
  std::atomic<std::uint32_t> last_reader{0};  // the thread that last received, or took doorbells that others may need

  alignas(kLine) SlotSeen seen;
  TinyStream tiny_stream;
  std::atomic<std::uint32_t> sent_in_a_row{0};       // small messages since the last receive
  std::atomic<std::uint32_t> sent_mark{0};           // SentMark of what was sent last
  std::atomic<std::uint64_t> tcp_used_then{0};       // and when TCP had been used by then
  std::atomic<const std::byte*> next_bulk{nullptr};  // where the next large one goes, most likely
  std::atomic<const std::byte*> next_line{nullptr};  // where a small one goes, should another connection be used first
  std::atomic<Connection*> follower{nullptr};        // the one that was sent on after this one, the last time

  alignas(kLine) unsigned long inode = 0;  // of the socket: how other processes, and programs after exec, know it again
  unsigned long memory_inode = 0;          // of both ends
  std::size_t memory_bytes = 0;
  std::atomic<std::uint32_t> descriptors{0};  // of this process
  std::atomic<std::uint32_t> generation{0};   // another one after close: sleepers must not go on
  std::atomic<std::uint32_t> resumed{0};      // how often the ring was read again that TCP was to bring

  // before it is attached
  std::atomic<std::uint32_t> operations{0};
  std::uint32_t next_attempt = 0;
  std::atomic<std::uint32_t> raw_receivers{0};  // threads inside the kernel's recv, without the ring in mind
  std::atomic<std::uint32_t> raw_senders{0};
  MeetingPlace place;
  int meeting = -1;  // offering: the socket there
  Family* family = nullptr;
  BriefLock upgrade_lock;

  // What the program set, where the kernel's socket must be set otherwise so that doorbells go out at once.
  std::atomic<int> nodelay{0};
  std::atomic<bool> tells_unread{false};  // TCP_INQ: messages that are received say how much is left

  std::atomic<bool> same_user{false};             // whoever holds the other end
  std::atomic<std::uint32_t> bells_asked_for{0};  // event bells of sleepers there, in vain so far
  std::atomic<std::uint32_t> sleepers_here{0};    // of DataWait::sleepers, those of this process; under the same lock
  std::atomic<std::uint64_t> last_kernel_look{0};
  std::atomic<std::uint64_t> polled_at{0};  // what was unread first when poll last found it readable, plus one
  std::atomic<bool> two_lines{false};       // the last short message took so many: both are looked at
  Spinner receive_spinner{settings().spin_ns};
  Spinner send_spinner{settings().spin_ns};
  Yielder receive_yielder;
  FarReader reader;  // whether the peer shares a cache with us; under the sending half's lock
  std::atomic<std::uint64_t> full_since_ns{0};  // the sender has waited for room, and nobody has read a slot: head
  std::atomic<std::uint64_t> full_head{0};
  std::atomic<std::uint64_t> hand_back_from_ns{0};   // not to be tried before: there was too much unread
  std::atomic<std::uint64_t> hand_back_pause_ns{0};  // nor then, if there is still
  std::uint64_t last_look_tick = 0;  // of the coarse clock, when the kernel was last asked whether the peer lives
  std::atomic<std::uint32_t> vain_asks{0};  // the peer says that it has gone, the kernel does not

  // Its places in epoll sets; more than fit make it plain.
  static constexpr int kMostSets = 4;
  std::atomic<EpollItem*> items[kMostSets] = {};

  std::atomic<bool> sets_know_back{false};  // that sending went back to TCP, which has room to tell of

  std::atomic<bool> waits_for_ever{false};  // the kernel said that SO_RCVTIMEO is not set, and nobody has set it since
  // SO_RCVTIMEO, SO_SNDTIMEO of less than nothing: the kernel does not wait then, and says that they are not set.
  std::atomic<bool> no_time_to_receive{false};
  std::atomic<bool> no_time_to_send{false};

  bool has_left = false;  // its family, to exec or exit; should exec fail, this process holds it still

  Connection* next_free = nullptr;
  std::uint64_t rests_since = 0;

  // Whether it is better off on TCP (rest.hpp).
  std::atomic<std::uint32_t> events_to_weigh{0};
  std::atomic<bool> leaves_rest{false};  // about to receive with the ring in mind again
  BriefLock judge_lock;
  Judge judge;

  void set_life(Life now, std::memory_order order = std::memory_order_release) {
    life.store(now, order);
    if (RegistryRecord* const shown = registry_record(record))
      shown->life.store(static_cast<std::uint32_t>(now), std::memory_order_relaxed);
  }
  void set_why(Why now) {
    why.store(now, std::memory_order_relaxed);
    if (RegistryRecord* const shown = registry_record(record))
      shown->why.store(static_cast<std::uint32_t>(now), std::memory_order_relaxed);
  }

  Opened opened_as_peer_sees_it() const {
    const Opened here = opened.load(std::memory_order_relaxed);
    if (here == Opened::unknown) return here;
    return here == Opened::by_us ? Opened::by_peer : Opened::by_us;
  }

  int out() const { return side; }  // the direction this end sends in
  int in() const { return 1 - side; }
  Direction& outgoing() const { return *out_direction; }
  Direction& incoming() const { return *in_direction; }
  End& own() const { return *own_end; }
  End& peer() const { return *peer_end; }
  void take_side(int mine) {  // of `memory`
    side = mine;
    own_end = &memory.control().end[mine];
    peer_end = &memory.control().end[1 - mine];
    out_direction = &memory.direction(out());
    in_direction = &memory.direction(in());
    out_slots = memory.slots(out());
    in_slots = memory.slots(in());
  }

  // The peer has closed or shut down, in good order; the kernel's word follows at once. A peer that keeps saying so
  // without doing it is not listened to.
  bool peer_says_end() const {
    return (peer().closed.load(std::memory_order_relaxed) | peer().finished.load(std::memory_order_relaxed)) != 0 &&
           vain_asks.load(std::memory_order_relaxed) < 1000;
  }

  // The kernel says so.
  void note_end() {
    if (peer().finished.load() == 0 && !reads_no_more.load()) end_seen.store(true, std::memory_order_relaxed);
  }

  // Of this process with its one thread, and the peer has asked for nothing that it may come to do itself.
  [[gnu::always_inline]] bool alone() const {
    return __libc_single_threaded != 0 && !shared.load(std::memory_order_relaxed) &&
           peer().request.load(std::memory_order_relaxed) == 0;
  }

  // What is sent goes into the ring, and nothing is held back before it.
  [[gnu::always_inline]] bool sends_plainly() const {
    const Path& path = outgoing().path;
    return path.mode.load(std::memory_order_relaxed) == kRing && path.held.load(std::memory_order_relaxed) == 0;
  }

  // Somebody wants something of whoever sends, or the sending has ended: not to be gone on with as usual.
  [[gnu::always_inline]] bool sending_is_odd() const {
    return (own().request.load(std::memory_order_relaxed) | own().finished.load(std::memory_order_relaxed) |
            peer().request.load(std::memory_order_relaxed) | peer().closed.load(std::memory_order_relaxed) |
            static_cast<std::uint32_t>(pending_error.load(std::memory_order_relaxed)) |
            static_cast<std::uint32_t>(cork.load(std::memory_order_relaxed)) |
            static_cast<std::uint32_t>(end_seen.load(std::memory_order_relaxed))) != 0;
  }

  // This end reads no more: whether the other does is the kernel's to say.
  bool has_shut_down() const {
    return reads_no_more.load(std::memory_order_relaxed) || own().closed.load(std::memory_order_relaxed) != 0;
  }

  [[gnu::always_inline]] bool attached() const { return life.load(std::memory_order_acquire) == Life::attached; }
};

}  // namespace viaduct::sockets
