#include "via/vipl/account.hpp"

namespace viaduct::vipl {

void Account::connected() {
  receives_taken_ = 0;
  sent_ = acknowledged_ = placed_ = placed_told_ = 0;
  told_when_ = 0;
}

Pushed Account::push_send(WorkItem& item) {
  const Pushed pushed = outgoing_.push_send(item);
  if (pushed == Pushed::all) sent(item);
  return pushed;
}

Pushed Account::tell() {
  const PlacedHeader header{placed_};
  const Pushed pushed = outgoing_.push_control(kPlaced, bytes_of(header));
  if (pushed == Pushed::all) placed_told_ = placed_;
  return pushed;
}

// Everything up to a count is in the peer's memory.
bool Account::take_placed(const via::Fragment& fragment, Effects& effects) {
  PlacedHeader header;
  if (!link_.acknowledged() || !fragment.last || !read_header(fragment, header)) return false;
  if (header.messages > sent_ || header.messages < acknowledged_) return false;
  acknowledged_ = header.messages;
  queues_.send.for_each_started([&](WorkItem& item) {
    if (item.finished || item.read_under_way || item.by_reference || item.under_way) return true;
    if (item.sequence > header.messages) return false;
    item.finish(item.send_operation());
    return true;
  });
  queues_.complete(false, effects);
  return true;
}

// ---- reliable delivery between hosts: a send is complete when the peer's side has it

void Account::sent_afar(WorkItem& item) {
  if (item.under_way) return;  // complete when its transfer has ended
  if (!link_.reliable()) return item.finish(item.send_operation());
  item.delivering = true;
  item.sequence = link_.channel->taken();
  if (told_when_ != 0) return;
  told_when_ = item.sequence;
  link_.channel->tell_when_delivered(told_when_);
}

void Account::finish_what_is_delivered(Effects& effects) {
  const std::uint64_t delivered = link_.channel->delivered();
  if (delivered < told_when_) return;
  told_when_ = 0;
  queues_.send.for_each_started([&](WorkItem& item) {
    if (!item.delivering || item.finished) return true;
    if (item.sequence > delivered) {
      told_when_ = item.sequence;
      return false;
    }
    item.finish(item.send_operation());
    return true;
  });
  queues_.complete(false, effects);
  if (told_when_ != 0) link_.channel->tell_when_delivered(told_when_);
}

}  // namespace viaduct::vipl
