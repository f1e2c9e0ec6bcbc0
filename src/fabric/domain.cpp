#include "fabric/domain.hpp"

#include <rdma/fi_errno.h>

#include <new>

#include "fabric/addresses.hpp"
#include "fabric/atomics.hpp"
#include "fabric/completion_queue.hpp"
#include "fabric/counter.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/event_queue.hpp"
#include "fabric/none.hpp"
#include "fabric/poll_set.hpp"

namespace viaduct::fabric {

Domain::Domain(void* context) : fid_domain{} {
  fid = {FI_CLASS_DOMAIN, context, &kOps};
  ops = &kDomainOps;
  mr = &kMemoryOps;
}

int Domain::open(fid_fabric*, fi_info*, fid_domain** domain, void* context) {
  *domain = new (std::nothrow) Domain(context);
  return *domain == nullptr ? -FI_ENOMEM : 0;
}

struct DomainCalls {
  static Domain& self(fid_domain* domain) { return static_cast<Domain&>(*domain); }

  static int close(fid_t fid) {
    Domain& domain = Domain::of(fid);
    if (domain.users.load() != 0 || !domain.regions.empty()) return -FI_EBUSY;
    delete &domain;
    return 0;
  }
  static int bind(fid_t fid, fid_t to, std::uint64_t flags) {
    if (to->fclass != FI_CLASS_EQ || (flags & FI_REG_MR) != 0) return -FI_EINVAL;
    Domain::of(fid).events = &EventQueue::of(to);
    return 0;
  }
  static int av_open(fid_domain* domain, fi_av_attr* attributes, fid_av** vector, void* context) {
    const fi_av_attr none{};
    return Addresses::open(self(domain), attributes == nullptr ? none : *attributes, context, vector);
  }
  static int cq_open(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
    const fi_cq_attr none{};
    return CompletionQueue::open(self(domain), attributes == nullptr ? none : *attributes, context, queue);
  }
  static int cntr_open(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context) {
    const fi_cntr_attr none{};
    return Counter::open(self(domain), attributes == nullptr ? none : *attributes, context, counter);
  }
  static int endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
    return Endpoint::open(self(domain), info, endpoint, context);
  }
  static int endpoint2(fid_domain* domain, fi_info* info, fid_ep** made, std::uint64_t flags, void* context) {
    return flags != 0 ? -FI_ENOSYS : endpoint(domain, info, made, context);
  }
  static int poll_open(fid_domain* domain, fi_poll_attr*, fid_poll** set) { return PollSet::open(self(domain), set); }
  static int query_atomic(fid_domain*, fi_datatype type, fi_op op, fi_atomic_attr* attributes, std::uint64_t flags) {
    const RemoteKind kind = (flags & FI_COMPARE_ATOMIC) != 0 ? RemoteKind::compare
                            : (flags & FI_FETCH_ATOMIC) != 0 ? RemoteKind::fetch
                                                             : RemoteKind::atomic;
    if (!is_possible(type, op, kind)) return -FI_EOPNOTSUPP;
    *attributes = {.count = most_elements(type, op), .size = size_of(type)};
    return 0;
  }

  static int regattr(fid_t fid, const fi_mr_attr* attributes, std::uint64_t flags, fid_mr** mr) {
    if (flags != 0 || attributes->iov_count > 1 || attributes->iface != FI_HMEM_SYSTEM) return -FI_ENOSYS;
    auto* const region = new (std::nothrow) Region(Domain::of(fid), *attributes);
    if (region == nullptr) return -FI_ENOMEM;
    if (!Domain::of(fid).regions.add(*region)) {
      delete region;
      return -FI_ENOKEY;
    }
    *mr = region;
    return 0;
  }
  static int regv(fid_t fid, const iovec* pieces, std::size_t count, std::uint64_t access, std::uint64_t offset,
                  std::uint64_t key, std::uint64_t flags, fid_mr** mr, void* context) {
    fi_mr_attr attributes{};
    attributes.mr_iov = pieces;
    attributes.iov_count = count;
    attributes.access = access;
    attributes.offset = offset;
    attributes.requested_key = key;
    attributes.context = context;
    return regattr(fid, &attributes, flags, mr);
  }
  static int reg(fid_t fid, const void* memory, std::size_t length, std::uint64_t access, std::uint64_t offset,
                 std::uint64_t key, std::uint64_t flags, fid_mr** mr, void* context) {
    const iovec piece{const_cast<void*>(memory), length};
    return regv(fid, &piece, 1, access, offset, key, flags, mr, context);
  }
};

fi_ops Domain::kOps = {
    .size = sizeof(fi_ops),
    .close = DomainCalls::close,
    .bind = DomainCalls::bind,
    .control = VIADUCT_NONE(fi_ops, control),
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};
fi_ops_domain Domain::kDomainOps = {
    .size = sizeof(fi_ops_domain),
    .av_open = DomainCalls::av_open,
    .cq_open = DomainCalls::cq_open,
    .endpoint = DomainCalls::endpoint,
    .scalable_ep = VIADUCT_NONE(fi_ops_domain, scalable_ep),
    .cntr_open = DomainCalls::cntr_open,
    .poll_open = DomainCalls::poll_open,
    .stx_ctx = VIADUCT_NONE(fi_ops_domain, stx_ctx),
    .srx_ctx = VIADUCT_NONE(fi_ops_domain, srx_ctx),
    .query_atomic = DomainCalls::query_atomic,
    .query_collective = VIADUCT_NONE(fi_ops_domain, query_collective),
    .endpoint2 = DomainCalls::endpoint2,
};
fi_ops_mr Domain::kMemoryOps = {
    .size = sizeof(fi_ops_mr),
    .reg = DomainCalls::reg,
    .regv = DomainCalls::regv,
    .regattr = DomainCalls::regattr,
};

}  // namespace viaduct::fabric
