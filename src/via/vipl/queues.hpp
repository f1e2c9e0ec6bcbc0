// The work queues of a VI: what a program posts is checked, and handed back in the order of posting once it is
// finished.
//
// Owns both queues. Under the VI's lock.
#pragma once

#include "via/vipl/cq.hpp"
#include "via/vipl/effects.hpp"
#include "via/vipl/link.hpp"
#include "via/vipl/work_queue.hpp"

namespace viaduct::vipl {

class Queues {
 public:
  explicit Queues(Link& link) : link_(link) {}

  WorkQueue send;
  WorkQueue receive;
  WorkQueue& of(bool receives) { return receives ? receive : send; }

  VIP_RETURN post(bool receives, VIP_DESCRIPTOR* descriptor, VIP_MEM_HANDLE memory, Effects& effects);
  VIP_RETURN take(bool receives, VIP_DESCRIPTOR** descriptor);  // VIP_NOT_DONE: nothing has completed

  // Memory may be deregistered, or change its attributes, while a descriptor is posted.
  bool still_allowed(WorkItem& item, bool receives) const {
    return item.version == link_.registrations.version() || still_allowed_now(item, receives);
  }
  bool descriptor_is_there(const WorkItem& item) const;

  // Hands over what has finished.
  void complete(bool receives, Effects& effects);
  // Everything that is posted; `partial` is for the first that has not finished.
  void flush(bool receives, std::uint32_t partial, Effects& effects);

  // To the program, by its error callback.
  void report(VIP_ERROR_CODE code, Effects& effects, VIP_DESCRIPTOR* descriptor, std::uint32_t operation) const;

 private:
  std::uint32_t check(WorkItem& item, bool receives) const;
  bool still_allowed_now(WorkItem& item, bool receives) const;

  Link& link_;
};

}  // namespace viaduct::vipl
