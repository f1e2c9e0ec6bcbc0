// RDMA: the initiator looks at the peer's registrations, and then writes or reads the peer's memory itself. Only where
// there is no way into that memory does it ask the library there, which answers from its program's next call.
//
// Owns the reads under way, and those of the peer that are to be answered. Under the VI's lock.
#pragma once

#include <deque>
#include <span>

#include "via/vipl/account.hpp"
#include "via/vipl/partial_message.hpp"
#include "via/vipl/receives.hpp"

namespace viaduct::vipl {

class Rdma {
 public:
  Rdma(Link& link, Queues& queues, Outgoing& outgoing, Account& account)
      : link_(link), queues_(queues), outgoing_(outgoing), account_(account) {}
  void connected() { reads_under_way_ = 0, replies_.clear(); }

  // ---- the initiator

  Pushed push(WorkItem& item);
  bool reads_are_under_way() const { return reads_under_way_ != 0; }
  // True: what waits behind it may go on.
  bool transfer_ended(const via::Reach::End& end, Effects& effects);
  bool start_reply(const via::Fragment& fragment, PartialMessage& in, std::size_t& header);
  void place_reply(std::span<const std::byte> bytes, const PartialMessage& in);
  void end_of_reply(Effects& effects);

  // ---- the library whose memory it is

  static bool start_write(const via::Fragment& fragment, PartialMessage& in, std::size_t& header);
  void place_write(std::span<const std::byte> bytes, const PartialMessage& in);
  bool take_read(const via::Fragment& fragment);
  bool has_to_reply() const { return !replies_.empty(); }
  Pushed push_reply();

 private:
  Pushed push_done(WorkItem& item);
  Pushed push_write(WorkItem& item);
  Pushed push_read(WorkItem& item);
  void refused(WorkItem& item);
  void failed(WorkItem& item);
  WorkItem* oldest_read();
  bool own_memory_allows(std::uint32_t memory, std::uint64_t address, std::uint64_t length, Enable enable) const;

  Link& link_;
  Queues& queues_;
  Outgoing& outgoing_;
  Account& account_;
  std::uint32_t reads_under_way_ = 0;  // by message, or between hosts
  std::deque<ReadHeader> replies_;     // reads of the peer that we are to answer
};

}  // namespace viaduct::vipl
