// Address vectors: fi_av_*. An fi_addr_t is an index, for FI_AV_MAP as well as for FI_AV_TABLE.
#pragma once

#include <rdma/fi_domain.h>
#include <viaduct/mx.hpp>

#include <atomic>
#include <map>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace viaduct::fabric {

class Domain;
class EventQueue;

class Addresses final : public fid_av {
 public:
  static int open(Domain& domain, const fi_av_attr& attributes, void* context, fid_av** vector);
  static Addresses& of(fid_t handle) { return static_cast<Addresses&>(*reinterpret_cast<fid_av*>(handle)); }

  bool find(fi_addr_t address, mx::Name& name) const;
  fi_addr_t find(const mx::Name& name) const;  // FI_ADDR_NOTAVAIL: it is not there
  std::atomic<int> users{0};

 private:
  Addresses(Domain& domain, void* context);
  fi_addr_t insert(const mx::Name& name);
  int insert_one(const void* address, fi_addr_t* index);
  int report(int inserted, std::uint64_t flags, void* context);
  bool remove(fi_addr_t index);
  static fi_ops kOps;
  static fi_ops_av kVectorOps;
  friend struct AddressesCalls;

  struct Entry {
    mx::Name name;
    bool there = false;
  };
  Domain& domain_;
  EventQueue* events_ = nullptr;  // for FI_EVENT
  mutable std::shared_mutex mutex_;
  std::vector<Entry> entries_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, fi_addr_t> by_name_;
};

}  // namespace viaduct::fabric
