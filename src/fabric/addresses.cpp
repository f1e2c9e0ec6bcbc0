#include "fabric/addresses.hpp"

#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <cstring>
#include <mutex>
#include <new>

#include "fabric/address.hpp"
#include "fabric/domain.hpp"
#include "fabric/event_queue.hpp"
#include "fabric/none.hpp"

namespace viaduct::fabric {

Addresses::Addresses(Domain& domain, void* context) : fid_av{}, domain_(domain) {
  fid = {FI_CLASS_AV, context, &kOps};
  ops = &kVectorOps;
  domain_.users.fetch_add(1);
}

int Addresses::open(Domain& domain, const fi_av_attr& attributes, void* context, fid_av** vector) {
  if (attributes.name != nullptr || attributes.rx_ctx_bits != 0)
    return -FI_ENOSYS;  // shared vectors, scalable endpoints
  auto* const made = new (std::nothrow) Addresses(domain, context);
  if (made == nullptr) return -FI_ENOMEM;
  if ((attributes.flags & FI_EVENT) != 0) made->events_ = domain.events;
  *vector = made;
  return 0;
}

bool Addresses::find(fi_addr_t address, mx::Name& name) const {
  const std::shared_lock lock(mutex_);
  if (address >= entries_.size() || !entries_[address].there) return false;
  name = entries_[address].name;
  return true;
}

fi_addr_t Addresses::find(const mx::Name& name) const {
  const std::shared_lock lock(mutex_);
  const auto found = by_name_.find({name.nic, name.endpoint});
  return found == by_name_.end() ? FI_ADDR_NOTAVAIL : found->second;
}

fi_addr_t Addresses::insert(const mx::Name& name) {
  const std::unique_lock lock(mutex_);
  entries_.push_back({name, true});
  const fi_addr_t index = entries_.size() - 1;
  by_name_.try_emplace({name.nic, name.endpoint}, index);
  return index;
}

bool Addresses::remove(fi_addr_t index) {
  const std::unique_lock lock(mutex_);
  if (index >= entries_.size() || !entries_[index].there) return false;
  entries_[index].there = false;
  const auto found = by_name_.find({entries_[index].name.nic, entries_[index].name.endpoint});
  if (found != by_name_.end() && found->second == index) by_name_.erase(found);
  return true;
}

int Addresses::insert_one(const void* address, fi_addr_t* index) {
  sockaddr_in from;
  std::memcpy(&from, address, sizeof from);
  const auto name = name_of(from);
  const fi_addr_t made = name ? insert(*name) : FI_ADDR_NOTAVAIL;
  if (index != nullptr) *index = made;
  return name ? 1 : 0;
}

// With FI_EVENT how many were inserted is told by an event.
int Addresses::report(int inserted, std::uint64_t, void* context) {
  if (events_ == nullptr) return inserted;
  const fi_eq_entry entry{&fid, context, static_cast<std::uint64_t>(inserted)};
  events_->write(FI_AV_COMPLETE, &entry, sizeof entry);
  return 0;
}

struct AddressesCalls {
  static Addresses& self(fid_av* vector) { return static_cast<Addresses&>(*vector); }

  static int close(fid_t fid) {
    Addresses& vector = Addresses::of(fid);
    if (vector.users.load() != 0) return -FI_EBUSY;
    vector.domain_.users.fetch_sub(1);
    delete &vector;
    return 0;
  }
  static int bind(fid_t fid, fid_t to, std::uint64_t) {
    if (to->fclass != FI_CLASS_EQ) return -FI_EINVAL;
    Addresses::of(fid).events_ = &EventQueue::of(to);
    return 0;
  }
  static int insert(fid_av* vector, const void* addresses, std::size_t count, fi_addr_t* indices, std::uint64_t flags,
                    void* context) {
    int inserted = 0;
    for (std::size_t i = 0; i < count; ++i) {
      inserted += self(vector).insert_one(static_cast<const sockaddr_in*>(addresses) + i,
                                          indices == nullptr ? nullptr : indices + i);
    }
    return self(vector).report(inserted, flags, context);
  }
  static int insertsvc(fid_av* vector, const char* node, const char* service, fi_addr_t* index, std::uint64_t flags,
                       void* context) {
    if (node == nullptr || service == nullptr) return -FI_EINVAL;
    const auto address = resolve(node, service);
    if (!address) return -FI_ENODATA;
    return self(vector).report(self(vector).insert_one(&*address, index), flags, context);
  }
  static int remove(fid_av* vector, fi_addr_t* indices, std::size_t count, std::uint64_t) {
    int result = 0;
    for (std::size_t i = 0; i < count; ++i)
      if (!self(vector).remove(indices[i])) result = -FI_EINVAL;
    return result;
  }
  static int lookup(fid_av* vector, fi_addr_t index, void* address, std::size_t* length) {
    mx::Name name;
    if (!self(vector).find(index, name)) return -FI_EINVAL;
    const sockaddr_in found = address_of(name);
    std::memcpy(address, &found, std::min(*length, sizeof found));
    *length = sizeof found;
    return 0;
  }
  static const char* straddr(fid_av*, const void* address, char* buffer, std::size_t* length) {
    sockaddr_in from;
    std::memcpy(&from, address, sizeof from);
    const std::string text = text_of(from);
    if (buffer != nullptr && *length != 0) {
      std::strncpy(buffer, text.c_str(), *length - 1);
      buffer[*length - 1] = 0;
    }
    *length = text.size() + 1;
    return buffer;
  }
};

fi_ops Addresses::kOps = {
    .size = sizeof(fi_ops),
    .close = AddressesCalls::close,
    .bind = AddressesCalls::bind,
    .control = VIADUCT_NONE(fi_ops, control),
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};
fi_ops_av Addresses::kVectorOps = {
    .size = sizeof(fi_ops_av),
    .insert = AddressesCalls::insert,
    .insertsvc = AddressesCalls::insertsvc,
    .insertsym = VIADUCT_NONE(fi_ops_av, insertsym),
    .remove = AddressesCalls::remove,
    .lookup = AddressesCalls::lookup,
    .straddr = AddressesCalls::straddr,
    .av_set = VIADUCT_NONE(fi_ops_av, av_set),
};

}  // namespace viaduct::fabric
