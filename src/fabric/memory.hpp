// Registered memory: fi_mr_*. The program chooses the key, and peers name bytes by their offset in the region
// (scalable registration). An endpoint exposes a region when a peer first asks it for the key.
#pragma once

#include <rdma/fi_domain.h>
#include <viaduct/mx.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace viaduct::fabric {

class Domain;
class Endpoint;

class Region final : public fid_mr {
 public:
  Region(Domain& domain, const fi_mr_attr& attributes);
  ~Region();
  static Region& of(fid_t handle) { return static_cast<Region&>(*reinterpret_cast<fid_mr*>(handle)); }

  bool covers(std::uint64_t offset, std::uint64_t size) const { return size <= length && offset <= length - size; }
  bool allows(std::uint64_t wanted) const { return (access & wanted) == wanted; }

  Domain& domain;
  std::byte* const base;
  const std::uint64_t length;
  const std::uint64_t access;
  std::map<Endpoint*, mx::Memory> exposed;  // under the domain's regions lock
 private:
  static fi_ops kOps;
};

// The regions of a domain, by key.
class Regions {
 public:
  // Calls use(region) under the lock; false: there is none.
  template <class Use>
  bool with(std::uint64_t key, Use use) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return false;
    use(*found->second);
    return true;
  }
  bool add(Region& region);  // false: the key is taken
  void remove(Region& region);
  void forget(Endpoint& endpoint);
  bool empty();

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Region*> by_key_;
};

}  // namespace viaduct::fabric
