// Poll sets: fi_poll_*: which of some completion queues and counters have news.
#pragma once

#include <rdma/fi_eq.h>

#include <cstdint>
#include <vector>

namespace viaduct::fabric {

class Domain;

class PollSet final : public fid_poll {
 public:
  static int open(Domain& domain, fid_poll** set);

 private:
  explicit PollSet(Domain& domain);
  static fi_ops kOps;
  static fi_ops_poll kPollOps;
  friend struct PollSetCalls;

  struct Watched {
    fid_t fid;
    std::uint64_t changes;  // of a counter, when it was last reported
  };
  Domain& domain_;
  std::vector<Watched> watched_;
};

}  // namespace viaduct::fabric
