// Creating and destroying VIs, and their states.
//
//   Idle -> Connect Pending -> Connected -> Error -> Idle
//     ^_________VipDisconnect, or it failed_________|
#include "via/vipl/vi.hpp"

#include <sched.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "via/port/children.hpp"
#include "via/vipl/nic.hpp"
#include "via/vipl/notify.hpp"
#include "via/vipl/peer_request.hpp"

namespace viaduct::vipl {

Vi::Vi(std::shared_ptr<Nic> nic, const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag, std::uint32_t slot)
    : nic_(std::move(nic)), registrations_(nic_->registrations()), attributes_(attributes), tag_(tag), slot_(slot) {}

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

namespace {

// VIP_SUCCESS: a VI may have these.
VIP_RETURN check_attributes(const Nic& nic, const VIP_VI_ATTRIBUTES& attributes, std::uint64_t& tag) {
  switch (attributes.ReliabilityLevel) {
    case VIP_SERVICE_UNRELIABLE:
      if (attributes.EnableRdmaRead) return VIP_INVALID_RDMAREAD;
      break;
    case VIP_SERVICE_RELIABLE_DELIVERY:
    case VIP_SERVICE_RELIABLE_RECEPTION:
      break;
    default:
      return VIP_INVALID_RELIABILITY_LEVEL;
  }
  if (attributes.MaxTransferSize == 0 || attributes.MaxTransferSize > kMostTransfer) return VIP_INVALID_MTU;
  return nic.tag_number(attributes.Ptag, tag) ? VIP_SUCCESS : VIP_INVALID_PTAG;
}

// A handle that is not null must be a queue of this adapter.
bool find_cq(const Nic& nic, VIP_CQ_HANDLE handle, std::shared_ptr<Cq>& cq) {
  if (handle == nullptr) return true;
  cq = cqs().hold(handle);
  return cq != nullptr && &cq->nic() == &nic;
}

}  // namespace

}  // namespace viaduct::vipl

// ---- the interface

using namespace viaduct::vipl;

VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES* ViAttributes, VIP_CQ_HANDLE SendCQHandle,
                       VIP_CQ_HANDLE RecvCQHandle, VIP_VI_HANDLE* ViHandle) {
  Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr || ViAttributes == nullptr || ViHandle == nullptr) return VIP_INVALID_PARAMETER;
  std::shared_ptr<Cq> send, receive;
  if (!find_cq(*nic, SendCQHandle, send) || !find_cq(*nic, RecvCQHandle, receive)) return VIP_INVALID_PARAMETER;
  std::uint64_t tag = 0;
  if (const VIP_RETURN checked = check_attributes(*nic, *ViAttributes, tag); checked != VIP_SUCCESS) return checked;
  const std::shared_ptr<Vi> vi = nic->create_vi(*ViAttributes, tag);
  if (vi == nullptr) return VIP_ERROR_RESOURCE;
  vi->queue(false).cq = send.get();
  vi->queue(true).cq = receive.get();
  if (send) send->users.fetch_add(1);
  if (receive) receive->users.fetch_add(1);
  *ViHandle = vi->handle;
  return VIP_SUCCESS;
}

VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  if (vi == nullptr) return VIP_INVALID_PARAMETER;
  {
    const std::lock_guard lock(vi->lock);
    if (vi->state() != VIP_STATE_IDLE) return VIP_INVALID_STATE;
  }
  if (vis().remove(ViHandle) == nullptr) return VIP_INVALID_PARAMETER;
  vi->nic().notifier().cancel(*vi);
  for (const bool receive : {false, true}) {
    Cq* const cq = vi->queue(receive).cq;
    if (cq == nullptr) continue;
    cq->forget(ViHandle);
    cq->users.fetch_sub(1);
  }
  vi->nic().destroy_vi(*vi);
  return VIP_SUCCESS;
}

VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle, VIP_VI_STATE* State, VIP_VI_ATTRIBUTES* ViAttributes,
                      VIP_BOOLEAN* SendQueueEmpty, VIP_BOOLEAN* RecvQueueEmpty) {
  Vi* const vi = vis().find(ViHandle);
  if (vi == nullptr) return VIP_INVALID_PARAMETER;
  Effects effects;
  vi->lock.lock();
  vi->look_for_news(effects);
  if (State != nullptr) *State = vi->state();
  if (ViAttributes != nullptr) *ViAttributes = vi->attributes();
  if (SendQueueEmpty != nullptr) *SendQueueEmpty = vi->queue(false).empty();
  if (RecvQueueEmpty != nullptr) *RecvQueueEmpty = vi->queue(true).empty();
  vi->unlock_and_deliver(effects);
  return VIP_SUCCESS;
}

VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES* ViAttributes) {
  Vi* const vi = vis().find(ViHandle);
  if (vi == nullptr || ViAttributes == nullptr) return VIP_INVALID_PARAMETER;
  std::uint64_t tag = 0;
  if (const VIP_RETURN checked = check_attributes(vi->nic(), *ViAttributes, tag); checked != VIP_SUCCESS)
    return checked;
  const std::lock_guard lock(vi->lock);
  if (vi->state() != VIP_STATE_IDLE) return VIP_INVALID_STATE;
  if (vi->tag() != tag) vi->nic().registrations().changed();  // what is posted was checked under the tag before
  vi->set_attributes(*ViAttributes, tag);
  return VIP_SUCCESS;
}
