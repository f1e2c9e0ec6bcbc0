// The driver's sending half.
#include <cstring>

#include "nic/driver.hpp"

namespace viaduct::nic {

namespace {
void add(std::atomic<std::uint64_t>& count, std::uint64_t by) {  // one writer
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}
}  // namespace

std::uint32_t Driver::send_consumer() const {
  if (options_.direct_send_consumer)
    return registers_.send_consumer.load(std::memory_order_acquire);  // A2 in registers.hpp
  return std::atomic_ref(rings_->send_consumer.value).load(std::memory_order_acquire);
}

std::uint32_t Driver::send_space() {
  return kSendRing - (send_producer_ - send_reclaimed_);
}

void Driver::put(HostAddress address, std::uint32_t length, bool end, std::uint64_t cookie, bool silent) {
  const std::uint32_t slot = send_producer_++ % kSendRing;
  rings_->send[slot] = {address, length, end ? SendDescriptor::kEnd : std::uint16_t{0}, 0};
  sent_[slot] = {cookie, end, silent};
}

bool Driver::send(std::span<const Fragment> fragments, std::uint64_t cookie) {
  if (fragments.empty() || fragments.size() > kMostFragments || fragments.size() > send_space()) return false;
  for (std::size_t i = 0; i < fragments.size(); ++i)
    put(fragments[i].address, fragments[i].length, i + 1 == fragments.size(), cookie, false);
  add(packets_sent_, 1);
  return true;
}

bool Driver::send_copy(std::span<const std::byte> frame) {
  if (frame.size() > options_.max_frame) return false;
  if (send_space() == 0) {
    (void)reclaim({});
    if (send_space() == 0) return false;
  }
  const std::size_t offset = std::size_t{send_stride_} * (send_producer_ % kSendRing);
  std::memcpy(send_buffers_ + offset, frame.data(), frame.size());
  put(send_buffers_at_ + offset, static_cast<std::uint32_t>(frame.size()), true, 0, true);
  add(packets_sent_, 1);
  return true;
}

void Driver::ring() {
  if (send_rung_ == send_producer_) return;
  send_rung_ = send_producer_;
  registers_.write_mailbox(Mailbox::send_producer, send_producer_);
  if (doorbell_) doorbell_();
}

// Gives cookies out only as far as there is room for them; packets without one are passed over.
std::size_t Driver::reclaim(std::span<std::uint64_t> cookies) {
  const std::uint32_t consumer = send_consumer();
  send_known_ = consumer;
  std::size_t given = 0;
  std::uint64_t packets = 0;
  while (send_reclaimed_ != consumer && send_producer_ != send_reclaimed_) {
    const Sent& sent = sent_[send_reclaimed_ % kSendRing];
    if (sent.end) {
      if (!sent.silent) {
        if (given == cookies.size()) break;
        cookies[given++] = sent.cookie;
      }
      ++packets;
    }
    ++send_reclaimed_;
  }
  add(packets_reclaimed_, packets);
  return given;
}

}  // namespace viaduct::nic
