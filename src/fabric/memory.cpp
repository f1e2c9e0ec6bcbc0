#include "fabric/memory.hpp"

#include <rdma/fi_errno.h>

#include "fabric/domain.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/none.hpp"

namespace viaduct::fabric {

Region::Region(Domain& of, const fi_mr_attr& attributes)
    : fid_mr{},
      domain(of),
      base(attributes.iov_count == 0 ? nullptr : static_cast<std::byte*>(attributes.mr_iov[0].iov_base)),
      length(attributes.iov_count == 0 ? 0 : attributes.mr_iov[0].iov_len),
      access(attributes.access) {
  fid = {FI_CLASS_MR, attributes.context, &kOps};
  mem_desc = nullptr;
  key = attributes.requested_key;
}

// When this returns no peer reaches the memory.
Region::~Region() {
  domain.regions.remove(*this);
  for (const auto& [endpoint, memory] : exposed) endpoint->below().withdraw(memory, base);
}

bool Regions::add(Region& region) {
  const std::lock_guard lock(mutex_);
  return by_key_.try_emplace(region.key, &region).second;
}

void Regions::remove(Region& region) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(region.key);
  if (found != by_key_.end() && found->second == &region) by_key_.erase(found);
}

void Regions::forget(Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, region] : by_key_) region->exposed.erase(&endpoint);
}

bool Regions::empty() {
  const std::lock_guard lock(mutex_);
  return by_key_.empty();
}

namespace {

int close(fid_t fid) {
  return delete &Region::of(fid), 0;
}

}  // namespace

fi_ops Region::kOps = {
    .size = sizeof(fi_ops),
    .close = close,
    .bind = VIADUCT_NONE(fi_ops, bind),
    .control = VIADUCT_NONE(fi_ops, control),
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};

}  // namespace viaduct::fabric
