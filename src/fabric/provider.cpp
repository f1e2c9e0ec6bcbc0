// The provider `viaduct` of libfabric: what fi_getinfo() and fi_fabric() reach. libfabric loads libviaduct-fi.so from
// the folders of FI_PROVIDER_PATH, or from its own.
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

#include <new>

#include "fabric/domain.hpp"
#include "fabric/event_queue.hpp"
#include "fabric/info.hpp"
#include "fabric/none.hpp"

namespace viaduct::fabric {

namespace {

struct Fabric final : fid_fabric {};

int close(fid_t fid) {
  return delete static_cast<Fabric*>(reinterpret_cast<fid_fabric*>(fid)), 0;
}

int open_events(fid_fabric*, fi_eq_attr* attributes, fid_eq** queue, void* context) {
  const fi_eq_attr none{};
  return EventQueue::open(attributes == nullptr ? none : *attributes, context, queue);
}

// Nothing has a descriptor to sleep on: fi_cq_sread() and fi_cntr_wait() sleep by themselves.
int try_to_wait(fid_fabric*, fid_t*, int) {
  return -FI_ENOSYS;
}

fi_ops fabric_ops = {
    .size = sizeof(fi_ops),
    .close = close,
    .bind = VIADUCT_NONE(fi_ops, bind),
    .control = VIADUCT_NONE(fi_ops, control),
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};
int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, std::uint64_t flags, void* context) {
  return flags != 0 ? -FI_ENOSYS : Domain::open(fabric, info, domain, context);
}
fi_ops_fabric opening_ops = {
    .size = sizeof(fi_ops_fabric),
    .domain = Domain::open,
    .passive_ep = VIADUCT_NONE(fi_ops_fabric, passive_ep),
    .eq_open = open_events,
    .wait_open = VIADUCT_NONE(fi_ops_fabric, wait_open),
    .trywait = try_to_wait,
    .domain2 = open_domain,
};

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  auto* const made = new (std::nothrow) Fabric{};
  if (made == nullptr) return -FI_ENOMEM;
  made->fid = {FI_CLASS_FABRIC, context, &fabric_ops};
  made->ops = &opening_ops;
  made->api_version = attributes->api_version;
  *fabric = made;
  return 0;
}

void clean_up() {}

fi_provider provider = {
    .version = kProviderVersion,
    .fi_version = kApiVersion,
    .context = {},
    .name = kProvider,
    .getinfo = get_info,
    .fabric = open_fabric,
    .cleanup = clean_up,
};

}  // namespace

}  // namespace viaduct::fabric

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini(void) {
  return &viaduct::fabric::provider;
}
