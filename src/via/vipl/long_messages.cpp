#include "via/vipl/long_messages.hpp"

namespace viaduct::vipl {

namespace {

// Memory that is not mapped: shorter ones go through the ring. Of messages that come one by one, and of several.
constexpr std::uint32_t kLeastByKernelAlone = 128u << 10;
constexpr std::uint32_t kLeastByKernel = 64u << 10;
// Shorter ones are not worth sharing the work.
constexpr std::uint32_t kLeastOfferAlone = 256u << 10;
constexpr std::uint32_t kLeastOffer = 16u << 10;

}  // namespace

void LongMessages::connected() {
  taking_.connected();
  offers_.connected();
  references_.connected();
}

// How a message of kLeastDirect or more goes that nothing of has gone yet.
LongMessages::Way LongMessages::way_of(const WorkItem& item) {
  bool mapped = false;
  const bool there =
      link_.shared != nullptr && link_.shared->finds_posted(account_.next_receive(), item.length, mapped);
  if (!mapped && !(there && link_.shared->reaches_by_cma()))
    return references_.goes_by_reference(item) ? Way::reference : Way::ring;
  // Those that come one by one are sooner there through the ring, unless the sender has to hear that they are.
  const bool in_company = !queues_.send.has_only_one();
  if (!mapped && !link_.acknowledged() && item.length < (in_company ? kLeastByKernel : kLeastByKernelAlone))
    return Way::ring;
  if (item.length >= (in_company ? kLeastOffer : kLeastOfferAlone) && offers_.may_offer(item)) return Way::offer;
  return Way::direct;
}

Pushed LongMessages::push(WorkItem& item) {
  const Way way = item.moved ? Way::direct : way_of(item);
  if (way == Way::offer) return offers_.push(item);
  if (way == Way::reference) return references_.push(item);
  if (way == Way::direct && !item.moved)
    item.moved = direct_.put_there(item, account_.next_receive(), 0, item.length) == Direct::Moved::all;
  return item.moved ? direct_.push(item) : account_.push_send(item);
}

bool LongMessages::take(const via::Fragment& fragment, Effects& effects) {
  switch (kind_of(fragment.immediate)) {
    case kReference:
      return references_.take(fragment, effects);
    case kTaken:
      return references_.take_taken(fragment, effects);
    case kDeclined:
      return references_.take_declined(fragment);
    case kDirect:
      return direct_.take(fragment, effects);
    case kOffer:
      return offers_.take(fragment, effects);
    case kRest:
      return offers_.take_rest(fragment, effects);
    default:
      return false;
  }
}

// In the order in which it came about.
Pushed LongMessages::push_answers() {
  if (const Pushed pushed = offers_.push_rest(); pushed != Pushed::all) return pushed;
  return references_.push_answer();
}

}  // namespace viaduct::vipl
