// A link between two processes: writes of one side meet reads of the other, in the order they were posted.
//
// One class, one file per phase:
//   link_post.cpp      a buffer gets its number and its half of a slot
//   link_match.cpp     the other half is seen; who can reach whose buffer
//   link_transfer.cpp  chunks are taken and copied: by whoever calls in, or by the engine in the background
//   link_bounce.cpp    bytes of buffers that neither side can reach
//   link_wait.cpp      spinning, sleeping, waking
//   link_close.cpp     the end: the peer's, a fault's, or our own
//
// Ordering edges (the shared words are those of link_format.hpp):
//   P1  post stores its stamp, then loads the other's; P2 does the same on the other side. Both sequentially
//   consistent:
//       at least one of two sides that post at the same time sees the other's half.
//   R1  the stamp of a half, release; pairs with A1, its acquire load in match(): the half's fields are whole.
//   R2  done, release; pairs with A2, its acquire load: the bytes and the result are visible.
//   R3  bounce.filled, release; pairs with A3 in the reader: the piece is whole.
//   R4  bounce.emptied, release; pairs with A4 in the writer: the piece has been read.
//   Every one of these stores is followed by tell_peer(), the waker's side of wait_word.hpp.
//
// The lock guards everything private. It is not held while sleeping nor while copying more than kUnderLock bytes.
//
// Thread safety: everything but close() from any thread; close() while other threads wait ends their waits.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/waiter.hpp"
#include "copy/link_control.hpp"
#include "copy/link_format.hpp"
#include "copy/link_handshake.hpp"
#include "copy/link_regions.hpp"

namespace viaduct::copy {

enum class Direction : std::uint8_t { write = 0, read = 1 };

// How one process gets at the other's buffer.
enum class Reach : std::uint8_t { none, cma, mapped };

// One posted operation.
struct Transfer {
  enum class State : std::uint8_t { queued, posted, matched, finished, reported };

  std::uint64_t sequence = 0;
  std::byte* buffer = nullptr;
  std::size_t length = 0;
  State state = State::queued;
  bool waits = false;           // somebody waits for it here, and the peer was told
  GivenRegions::Place place{};  // of our buffer, while posted

  // Once matched; constant from then on.
  std::size_t moving = 0;  // the shorter length
  std::uint32_t chunks = 1;
  Reach reach = Reach::none;         // ours to the peer's buffer
  Reach peer_reach = Reach::none;    // the peer's to ours
  std::byte* peer_mapped = nullptr;  // reach mapped
  std::uint64_t peer_address = 0;    // reach cma: for process_vm_* only, never followed
  std::shared_ptr<const Segment> peer_segment;

  std::size_t bounced = 0;   // bytes that went through the bounce ring
  std::uint32_t copies = 0;  // under way in this process: the buffer is in use until there are none
  bool pumping = false;      // one of them is the engine's

  // Once finished.
  int error = 0;
  std::size_t moved = 0;

  bool ended() const { return state >= State::finished; }
};

class Link {
 public:
  struct Options {
    bool cma = true;
    bool map_regions = true;      // false: the peer's regions are not mapped, as if there were no memory
    static Options of_process();  // from the settings
  };

  // Takes a connected UNIX stream socket; the other end must do the same.
  static Result<std::unique_ptr<Link>> attach(Fd socket, Deadline deadline, const Options& options);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // A cookie, or minus an errno value. `wait_follows`: nothing needs to be started in the background.
  std::int64_t post(Direction direction, void* buffer, std::size_t length, bool wait_follows = false);

  struct Outcome {
    int error = 0;  // EINVAL also for a cookie that is not known here
    std::size_t moved = 0;
  };
  std::optional<Outcome> check(std::int64_t cookie);  // nothing: not yet
  Outcome wait(std::int64_t cookie);

  void close();  // buffers are not touched after it

  const char* path() const;
  bool of_this_process() const;

  // For tests: the shared memory as the peer may write it.
  link_format::LinkTable& table() const { return *table_; }

 private:
  using MatchSlot = link_format::MatchSlot;
  using PostedHalf = link_format::PostedHalf;
  using Lock = std::unique_lock<std::mutex>;

  // The private half of one direction.
  struct Lane {
    Direction direction = Direction::write;
    link_format::LaneTable* table = nullptr;
    std::byte* bounce = nullptr;
    std::deque<Transfer> transfers;      // numbered from `first`; reported ones leave at the front
    std::uint64_t first = 0;             //
    std::uint64_t next_to_post = 0;      // numbers below have a slot, or had
    std::uint64_t first_unfinished = 0;  // numbers below have ended
    std::uint64_t pieces = 0;            // bounce pieces filled (writing) or emptied (reading) by us

    std::uint64_t end() const { return first + transfers.size(); }
    Transfer& at(std::uint64_t sequence) { return transfers[sequence - first]; }
    MatchSlot& slot(const Transfer& transfer) { return table->slots[transfer.sequence % link_format::kSlots]; }
    PostedHalf& ours(MatchSlot& slot) { return direction == Direction::write ? slot.writer : slot.reader; }
    PostedHalf& theirs(MatchSlot& slot) { return direction == Direction::write ? slot.reader : slot.writer; }
  };

  // How far a call goes for a transfer of many chunks, or of one that the peer could do more cheaply.
  enum class Effort { post, post_and_wait, check, wait, last_resort };

  // What a thread that waits has seen last: any change is a reason to look again.
  class View;
  class SocketSleeper;
  class Call;

  Link(std::unique_ptr<ControlSocket> control, Agreement agreement, const Options& options, Fd local_wake);

  // Posting.
  std::int64_t cookie_of(const Lane& lane, std::uint64_t sequence) const;
  Transfer* find(std::int64_t cookie, Lane*& lane);
  bool admit(Lane& lane);
  void fill_half(Lane& lane, const Transfer& transfer);
  void report(Lane& lane, Transfer& transfer);

  // One round over everything posted. True: something changed, and a further round may bring more.
  bool progress(Lock& lock, Effort effort);
  bool progress(Lane& lane, Lock& lock, Effort effort);
  bool match(Lane& lane, Transfer& transfer);
  bool resolve(Lane& lane, Transfer& transfer, std::uint64_t region, std::uint64_t offset);
  bool finish_if_done(Lane& lane, Transfer& transfer);
  void finish(Lane& lane, Transfer& transfer, int error, std::size_t moved);

  // Transferring.
  bool advance(Lane& lane, Transfer& transfer, Lock& lock, Effort effort);
  bool may_take(Lane& lane, const Transfer& transfer, Effort effort);
  bool peer_does_it(Lane& lane, const Transfer& transfer) const;
  std::optional<std::uint32_t> take_chunk(MatchSlot& slot, const Transfer& transfer);
  bool do_at_once(Lane& lane, Transfer& transfer);
  bool copy_one_chunk(Lane& lane, Transfer& transfer, Lock& lock);
  int copy_chunk(const Lane& lane, const Transfer& transfer, std::uint32_t chunk);
  void chunk_done(MatchSlot& slot, const Transfer& transfer, int error);
  struct Pump;
  Pump pump(Lane& lane, Transfer& transfer);
  void start_pumps(Lock& lock);

  bool choose_bounce(Lane& lane, Transfer& transfer, std::uint64_t seen);
  bool bounce_out(Lane& lane, Transfer& transfer);
  bool bounce_in(Lane& lane);

  // Waking: the peer's threads, and ours.
  void tell_peer();
  void tell_local();

  bool drain_control();
  void look_for_peer();
  void fail(int error);
  void corrupt();
  bool end_everything(Lane& lane);
  std::uint32_t withdraw(Lane& lane, Transfer& transfer);
  void wait_for_peers_copies(Lock& lock);

  link_format::SideTable& own_side() const { return table_->sides[side_]; }
  link_format::SideTable& peer_side() const { return table_->sides[1 - side_]; }

  static constexpr std::size_t kUnderLock = 16 << 10;

  const Options options_;
  const std::uint32_t process_;     // process_generation() of the owner
  const std::uint64_t generation_;  // of this link among the process's links: part of its cookies
  const std::unique_ptr<ControlSocket> control_;
  const Segment segment_;
  link_format::LinkTable* const table_;
  const int side_;
  const std::unique_ptr<PeerMemory> peer_;
  const bool peer_reaches_;
  const Fd local_wake_;  // an eventfd: our own threads wake the one that sleeps on the socket

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Lane, 2> lanes_;  // by Direction
  GivenRegions given_;
  PeerRegions peer_regions_;
  std::vector<std::pair<Lane*, Transfer*>> to_pump_;
  std::atomic<std::uint64_t> events_{0};  // moves with everything that happened in this process
  std::atomic<link_format::Path> last_path_{link_format::Path::none};
  int error_ = 0;                 // once set, everything ends with it
  bool closing_ = false;          //
  bool left_to_peer_ = false;     // the last round left something to a peer that is waiting
  bool somebody_sleeps_ = false;  // one thread sleeps on the socket, the others on changed_
  std::uint32_t callers_ = 0;     // threads inside post(), check() or wait()
  std::uint32_t copies_ = 0;      // of all transfers
  std::uint32_t fruitless_ = 0;   // checks in a row that found nothing
};

// A thread inside the link: close() waits for it. Made and destroyed under the lock.
class Link::Call {
 public:
  explicit Call(Link& link) : link_(link) { ++link_.callers_; }
  ~Call() {
    if (--link_.callers_ == 0 && link_.closing_) link_.changed_.notify_all();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Link& link_;
};

}  // namespace viaduct::copy
