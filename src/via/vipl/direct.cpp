// Direct placement: a sender that can reach the memory of the receive descriptor its message will take copies the
// message there itself, and sends one word. No copy at the other end, and nobody waits for anybody.
//
// On a reliable VI every message takes exactly one receive descriptor, in the order of posting. So the receiver shows
// its descriptors in order (memory_table.hpp), and the sender, who counts its messages, knows which is its own:
//
//   receiver  shows number n: address, handle, length
//   sender    its n-th message: copies it there, under S1; kDirect
//   receiver  looks at its own descriptor once more, and completes it
//
// A descriptor that is not shown (yet), of several segments, in memory that cannot be reached or too short: the message
// goes the other ways, and says there what is wrong.

#include "base/counters.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

// ---- the receiver

// As many as there is place for; the others when messages have come.
void Vi::show_receives() {
  if (shared_ == nullptr) return;
  for (; receive_.has_waiting() && posted_.shown - posted_.used < kPostedPerConnection; receive_.started()) {
    const WorkItem& item = receive_.first_waiting();
    if (!item.finished) show(item, posted_.shown++);  // one with a fault of its own takes no message
  }
}

void Vi::show(const WorkItem& item, std::uint64_t number) {
  const VIP_DATA_SEGMENT* const segment = item.data();
  const TableView& table = registrations_.view();
  const bool can_be_reached = reliable() && item.segments == 1 && item.usable >= kLeastDirect;
  if (!posted_.has_place) [[likely]] {
    if (!can_be_reached || !registrations_.reserve_posted(slot_)) return;
    posted_.has_place = true;
    table.words(slot_).shows_posted.store(1, std::memory_order_release);
  }
  PostedReceive& posted = table.posted(slot_, number);
  if (!can_be_reached) return posted.stamp.store(0, std::memory_order_relaxed);
  posted.address.store(segment->Data.AddressBits, std::memory_order_relaxed);
  posted.key.store(segment->Handle, std::memory_order_relaxed);
  posted.length.store(item.usable, std::memory_order_relaxed);
  const std::uint32_t connection = table.words(slot_).connection.load(std::memory_order_relaxed);
  posted.stamp.store(posted_stamp(connection, number), std::memory_order_release);  // R2, pairs with A2
  posted_.lent = true;
}

bool Vi::take_direct(const via::Fragment& fragment, Effects& effects) {
  DirectHeader header;
  if (shared_ == nullptr || !reliable() || !read_whole(fragment, header)) return false;
  if (header.number != static_cast<std::uint32_t>(posted_.used) || header.length > kMostTransfer) return false;
  if (find_receive(header.length, effects))
    finish_receive(VIP_STATUS_OP_RECEIVE, fragment.immediate, header.immediate, header.length, effects);
  ++messages_placed_;
  if (!acknowledged()) placed_told_ = messages_placed_;
  return true;
}

// ---- the sender

// A part of a message into the receive with that number.
Vi::Moved Vi::put_there(const WorkItem& item, std::uint64_t number, std::uint32_t offset, std::uint32_t length) {
  iovec pieces[kMostSegments];
  const std::size_t count = gather(item.data(), item.segments, offset, length, pieces);
  return shared_->put_into_posted(number, item.length, offset, {pieces, count}, length);
}

// How a message of kLeastDirect or more goes that nothing of has gone yet.
Vi::Way Vi::way_of(const WorkItem& item) {
  bool mapped = false;
  const bool there = shared_ != nullptr && shared_->finds_posted(receives_taken_, item.length, mapped);
  if (!mapped && !(there && shared_->reaches_by_cma())) return goes_by_reference(item) ? Way::reference : Way::ring;
  // Those that come one by one are sooner there through the ring, unless the sender has to hear that they are.
  const bool in_company = !send_.has_only_one();
  if (!mapped && !acknowledged() && item.length < (in_company ? kLeastByKernel : kLeastByKernelAlone)) return Way::ring;
  if (item.length >= (in_company ? kLeastOffer : kLeastOfferAlone) && may_offer(item)) return Way::offer;
  return Way::direct;
}

Vi::Pushed Vi::push_direct(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const DirectHeader header{static_cast<std::uint32_t>(receives_taken_), item.length, item.descriptor->CS.ImmediateData,
                            0};
  const Pushed pushed = push_control(kDirect | (immediate ? kWithImmediate : 0), bytes_of(header));
  if (pushed != Pushed::all) return pushed;
  static Counter count = counter("via.sends_direct");
  count.add();
  ++receives_taken_;
  if (acknowledged()) ++messages_sent_;  // and it is in the receiver's memory
  finish(item, VIP_STATUS_OP_SEND);
  return pushed;
}

}  // namespace viaduct::vipl
