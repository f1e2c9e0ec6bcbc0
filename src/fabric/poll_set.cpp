#include "fabric/poll_set.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <new>

#include "fabric/completion_queue.hpp"
#include "fabric/counter.hpp"
#include "fabric/domain.hpp"
#include "fabric/none.hpp"

namespace viaduct::fabric {

PollSet::PollSet(Domain& domain) : fid_poll{}, domain_(domain) {
  fid = {FI_CLASS_POLL, nullptr, &kOps};
  ops = &kPollOps;
  domain_.users.fetch_add(1);
}

int PollSet::open(Domain& domain, fid_poll** set) {
  *set = new (std::nothrow) PollSet(domain);
  return *set == nullptr ? -FI_ENOMEM : 0;
}

struct PollSetCalls {
  static PollSet& self(fid_poll* set) { return static_cast<PollSet&>(*set); }

  static int close(fid_t fid) {
    auto& set = static_cast<PollSet&>(*reinterpret_cast<fid_poll*>(fid));
    set.domain_.users.fetch_sub(1);
    delete &set;
    return 0;
  }
  static int poll(fid_poll* set, void** contexts, int count) {
    int found = 0;
    for (PollSet::Watched& one : self(set).watched_) {
      if (found == count) break;
      bool news = false;
      if (one.fid->fclass == FI_CLASS_CQ) {
        CompletionQueue& queue = CompletionQueue::of(one.fid);
        if (!queue.has_any()) queue.sleeper().progress();
        news = queue.has_any();
      } else {
        Counter& counter = Counter::of(one.fid);
        counter.sleeper().progress();
        news = counter.changes() != one.changes;
        one.changes = counter.changes();
      }
      if (news) contexts[found++] = one.fid->context;
    }
    return found;
  }
  static int add(fid_poll* set, fid_t fid, std::uint64_t) {
    if (fid->fclass != FI_CLASS_CQ && fid->fclass != FI_CLASS_CNTR) return -FI_EINVAL;
    self(set).watched_.push_back({fid, 0});
    return 0;
  }
  static int remove(fid_poll* set, fid_t fid, std::uint64_t) {
    return std::erase_if(self(set).watched_, [&](const PollSet::Watched& one) { return one.fid == fid; }) == 0
               ? -FI_EINVAL
               : 0;
  }
};

fi_ops PollSet::kOps = {
    .size = sizeof(fi_ops),
    .close = PollSetCalls::close,
    .bind = VIADUCT_NONE(fi_ops, bind),
    .control = VIADUCT_NONE(fi_ops, control),
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};
fi_ops_poll PollSet::kPollOps = {
    .size = sizeof(fi_ops_poll),
    .poll = PollSetCalls::poll,
    .poll_add = PollSetCalls::add,
    .poll_del = PollSetCalls::remove,
};

}  // namespace viaduct::fabric
