// Creating and destroying VIs, and their states.
//
//   Idle -> Connect Pending -> Connected -> Error -> Idle
//     ^_________VipDisconnect, or it failed_________|
#include "via/vipl/vi.hpp"

#include <sched.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "via/port/children.hpp"
#include "via/vipl/peer_request.hpp"

namespace viaduct::vipl {

Vi::Vi(std::shared_ptr<Adapter> adapter, const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag, std::uint32_t slot)
    : adapter_(std::move(adapter)),
      registrations_(adapter_->registrations()),
      attributes_(attributes),
      tag_(tag),
      slot_(slot) {}

Vi::~Vi() = default;

// Numbers are odd and never the same for one place in the table: whoever remembers an old one is not mistaken.
std::uint32_t Vi::number_connection() {
  std::atomic<std::uint32_t>& word = registrations_.view().words(slot_).connection;
  const std::uint32_t number = (word.load(std::memory_order_relaxed) + 1) | 1;
  word.store(number, std::memory_order_release);
  return number;
}

void Vi::connected(via::Connection connection, const VIP_VI_ATTRIBUTES& peer) {
  channel_ = std::move(connection.channel);
  reach_ = std::move(connection.reach);
  shared_ = connection.shared;
  far_ = connection.far;
  if (shared_ != nullptr) via::close_in_children(channel_->shared()->descriptor());
  peer_ = peer;
  out_ = {};
  in_ = {};
  refer_ = {};
  taking_ = {};
  offers_ = {};
  offers_seen_ = 0;
  posted_ = {.has_place = posted_.has_place};
  receives_taken_ = 0;
  messages_sent_ = messages_acknowledged_ = messages_placed_ = placed_told_ = 0;
  reads_under_way_ = 0;
  replies_.clear();
  state_ = VIP_STATE_CONNECTED;
  told_when_ = 0;
  receive_.start_again();
  if (shared_ == nullptr) return;
  say_whether_we_can_fetch();
  show_receives();
}

// What is posted is about to go back to the program: the peer touches none of it any more (S2 of memory_table.hpp). No
// copy takes a second; a peer that says so does not hold us up for ever.
void Vi::end_copies() {
  std::atomic<std::uint32_t>& word = registrations_.view().words(slot_).connection;
  const std::uint32_t number = word.load(std::memory_order_relaxed);
  if (number % 2 == 1) word.store(number + 1, std::memory_order_seq_cst);
  if (far_ != nullptr) return give_up_transfers();
  if (!lends_memory()) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  constexpr std::uint64_t kPatienceNs = 1'000'000'000;
  const Deadline deadline = Deadline::after_ns(Clock::steady(), kPatienceNs);
  for (via::ShmReach::Looks looks; peer_copies(looks); ::sched_yield())
    if (deadline.expired(Clock::steady().now_ns()))
      return log::fault("a peer copies from or to memory of a VI that was disconnected: is its process stopped?");
}

via::Connection Vi::disconnected(Effects& effects) {
  if (state_ == VIP_STATE_CONNECTED && !out_.begun) (void)push_control(kDisconnect, {});
  end_copies();
  if (state_ == VIP_STATE_CONNECTED) (void)some_offers_are_there();
  state_ = VIP_STATE_IDLE;
  set_blocked(false);
  flush(false, effects);
  flush(true, effects);
  peer_request.reset();
  if (shared_ != nullptr) via::keep_in_children(channel_->shared()->descriptor());
  shared_ = nullptr;
  far_ = nullptr;
  return {std::move(channel_), std::move(reach_)};
}

}  // namespace viaduct::vipl
