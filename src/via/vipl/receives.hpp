// Messages into the receive descriptors of a VI: each takes the next one. Where memory can be shared the peer is shown
// those to come, and puts messages there itself (direct.hpp).
//
// On a reliable VI every message takes exactly one descriptor, in the order of posting, and both sides count them.
//
// Owns the count, and what the table shows of them. Under the VI's lock.
#pragma once

#include <span>

#include "via/vipl/queues.hpp"

namespace viaduct::vipl {

class Receives {
 public:
  Receives(Link& link, Queues& queues) : link_(link), queues_(queues) {}
  void connected();

  // Whether there is a next one and it takes so many bytes. If not, a reliable connection breaks, and on an unreliable
  // one the message is dropped.
  bool find(std::size_t length, Effects& effects);
  WorkItem& next() { return queues_.receive.first_open(); }
  bool next_is_still_allowed() { return queues_.still_allowed(next(), true); }
  void next_cannot_take(std::uint32_t status, Effects& effects);
  // `word`: of the message, for whether `data` is immediate data.
  void finish_next(std::uint32_t operation, std::uint32_t word, std::uint32_t data, std::uint32_t length,
                   Effects& effects);

  static void place(const WorkItem& item, std::size_t offset, std::span<const std::byte> bytes);
  static void place_small(const WorkItem& item, std::span<const std::byte> bytes);

  // Of this connection, without those that had a fault of their own.
  std::uint64_t used() const { return used_; }
  void show();  // as many as there is place for; the others when messages have come
  bool shows_any() const { return has_place_; }
  bool lends_memory() const { return lent_; }

 private:
  void show_one(const WorkItem& item, std::uint64_t number);

  Link& link_;
  Queues& queues_;
  std::uint64_t shown_ = 0;  // that the peer may know of
  std::uint64_t used_ = 0;   // by messages
  bool has_place_ = false;   // in the table, from the first that can be mapped
  bool lent_ = false;        // one was shown
};

}  // namespace viaduct::vipl
