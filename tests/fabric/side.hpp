// A program of libfabric for tests: a domain, an endpoint with its queue and addresses, and the calls that every such
// program makes. Sides of one process are driven by whoever looks at their queues.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/child.hpp"
#include "base/fd.hpp"

namespace viaduct::fabric::testing {

using viaduct::testing::Child;
using viaduct::testing::HangGuard;

#define FI_OK(call)                                                                                              \
  do {                                                                                                           \
    const long said_ = static_cast<long>(call);                                                                  \
    if (said_ != 0) {                                                                                            \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, fi_strerror(-static_cast<int>(said_))); \
      std::abort();                                                                                              \
    }                                                                                                            \
  } while (false)

// libfabric looks for providers once, at its first call.
inline void use_own_provider() {
  ::setenv("FI_PROVIDER_PATH", FABRIC_PROVIDER_PATH, 1);
  ::setenv("FI_PROVIDER", "viaduct", 1);
}

struct Wanted {
  std::uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE | FI_DIRECTED_RECV | FI_MULTI_RECV;
  std::uint64_t bind_flags = FI_TRANSMIT | FI_RECV;
  fi_wait_obj wait = FI_WAIT_NONE;
  const char* node = nullptr;  // with FI_SOURCE
  const char* service = nullptr;
};

class Side {
 public:
  explicit Side(const Wanted& wanted = {}) {
    use_own_provider();
    fi_info* const hints = fi_allocinfo();
    hints->caps = wanted.caps;
    hints->ep_attr->type = FI_EP_RDM;
    FI_OK(fi_getinfo(FI_VERSION(1, 14), wanted.node, wanted.service, wanted.node != nullptr ? FI_SOURCE : 0, hints,
                     &info));
    fi_freeinfo(hints);
    FI_OK(fi_fabric(info->fabric_attr, &fabric, nullptr));
    FI_OK(fi_domain(fabric, info, &domain, nullptr));
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    FI_OK(fi_av_open(domain, &av_attr, &av, nullptr));
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.wait_obj = wanted.wait;
    FI_OK(fi_cq_open(domain, &cq_attr, &cq, nullptr));
    fi_cntr_attr cntr_attr{};
    FI_OK(fi_cntr_open(domain, &cntr_attr, &sends, nullptr));
    FI_OK(fi_cntr_open(domain, &cntr_attr, &receives, nullptr));
    FI_OK(fi_endpoint(domain, info, &ep, nullptr));
    FI_OK(fi_ep_bind(ep, &av->fid, 0));
    FI_OK(fi_ep_bind(ep, &cq->fid, wanted.bind_flags));
    FI_OK(fi_ep_bind(ep, &sends->fid, FI_SEND));
    FI_OK(fi_ep_bind(ep, &receives->fid, FI_RECV));
    FI_OK(fi_enable(ep));
  }
  ~Side() {
    FI_OK(fi_close(&ep->fid));
    for (fid_mr* const one : regions_) FI_OK(fi_close(&one->fid));
    FI_OK(fi_close(&sends->fid));
    FI_OK(fi_close(&receives->fid));
    FI_OK(fi_close(&cq->fid));
    FI_OK(fi_close(&av->fid));
    FI_OK(fi_close(&domain->fid));
    FI_OK(fi_close(&fabric->fid));
    fi_freeinfo(info);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  std::vector<char> name() const {
    std::vector<char> bytes(64);
    std::size_t length = bytes.size();
    FI_OK(fi_getname(&ep->fid, bytes.data(), &length));
    bytes.resize(length);
    return bytes;
  }
  fi_addr_t know(const std::vector<char>& name) const {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(av, name.data(), 1, &address, 0, nullptr) != 1) std::abort();
    return address;
  }
  fi_addr_t know(const Side& other) const { return know(other.name()); }

  fid_mr* open_memory(void* memory, std::size_t length, std::uint64_t key, std::uint64_t access) {
    fid_mr* region = nullptr;
    FI_OK(fi_mr_reg(domain, memory, length, access, 0, key, 0, &region, nullptr));
    regions_.push_back(region);
    return region;
  }
  void close_memory(fid_mr* region) {
    std::erase(regions_, region);
    FI_OK(fi_close(&region->fid));
  }

  // The next completion, driving `other` as well.
  fi_cq_tagged_entry next(Side* other = nullptr, fi_addr_t* source = nullptr) {
    fi_cq_tagged_entry entry{};
    for (;;) {
      fi_addr_t from = FI_ADDR_NOTAVAIL;
      const ssize_t got = fi_cq_readfrom(cq, &entry, 1, &from);
      if (got == 1) {
        if (source != nullptr) *source = from;
        return entry;
      }
      if (got != -FI_EAGAIN) {
        ADD_FAILURE() << "fi_cq_read: " << fi_strerror(static_cast<int>(-got));
        return entry;
      }
      if (other != nullptr) (void)fi_cq_read(other->cq, nullptr, 0);
    }
  }
  fi_cq_err_entry next_error(Side* other = nullptr) {
    fi_cq_err_entry error{};
    fi_cq_tagged_entry entry{};
    for (;;) {
      const ssize_t got = fi_cq_read(cq, &entry, 1);
      if (got == -FI_EAVAIL) {
        EXPECT_EQ(fi_cq_readerr(cq, &error, 0), 1);
        return error;
      }
      if (got == 1) {
        ADD_FAILURE() << "a completion instead of an error";
        return error;
      }
      if (other != nullptr) (void)fi_cq_read(other->cq, nullptr, 0);
    }
  }

  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_cntr* sends = nullptr;
  fid_cntr* receives = nullptr;
  fid_ep* ep = nullptr;

 private:
  std::vector<fid_mr*> regions_;
};

inline std::vector<char> pattern(std::size_t length, unsigned seed) {
  std::vector<char> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>(i * 131 + seed * 7919 + (i >> 8));
  return bytes;
}

}  // namespace viaduct::fabric::testing
