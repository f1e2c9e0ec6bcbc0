#include "fabric/info.hpp"

#include <netinet/in.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fabric/address.hpp"

namespace viaduct::fabric {

namespace {

constexpr std::uint64_t kSending = FI_SEND | FI_READ | FI_WRITE;
constexpr std::uint64_t kReceiving =
    FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
constexpr std::uint64_t kKinds = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
constexpr std::uint64_t kWhere = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr std::uint64_t kCaps = kKinds | kSending | kReceiving | kWhere;
constexpr std::uint64_t kSendFlags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
                                     FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_MORE;
constexpr std::uint64_t kReceiveFlags = FI_COMPLETION | FI_MULTI_RECV | FI_MORE;
constexpr std::uint32_t kProtocol = FI_PROV_SPECIFIC | 0x56u;
constexpr std::size_t kMostObjects = 1024;

// What comes with what was asked for: both directions where none was named, and where the peer is never matters.
std::uint64_t caps_for(const fi_info* hints) {
  if (hints == nullptr || hints->caps == 0) return kCaps;
  std::uint64_t caps = hints->caps;
  if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & (FI_SEND | FI_RECV)) == 0) caps |= FI_SEND | FI_RECV;
  constexpr std::uint64_t kRemote = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kRemote) == 0) caps |= kRemote;
  return caps | kWhere;
}

bool is(const char* wanted, const char* name) {
  return wanted == nullptr || std::strcmp(wanted, name) == 0;
}

bool fits(const fi_tx_attr& wanted) {
  return (wanted.caps & ~kCaps) == 0 && (wanted.op_flags & ~kSendFlags) == 0 && (wanted.msg_order & ~kOrder) == 0 &&
         wanted.comp_order == FI_ORDER_NONE && wanted.inject_size <= kInjectSize && wanted.size <= kMostUnderWay &&
         wanted.iov_limit <= kMostPieces && wanted.rma_iov_limit <= 1;
}

bool fits(const fi_rx_attr& wanted) {
  return (wanted.caps & ~kCaps) == 0 && (wanted.op_flags & ~kReceiveFlags) == 0 && (wanted.msg_order & ~kOrder) == 0 &&
         wanted.comp_order == FI_ORDER_NONE && wanted.size <= kMostUnderWay && wanted.iov_limit <= kMostPieces;
}

bool fits(const fi_ep_attr& wanted) {
  return (wanted.type == FI_EP_UNSPEC || wanted.type == FI_EP_RDM) &&
         (wanted.protocol == FI_PROTO_UNSPEC || wanted.protocol == kProtocol) && wanted.protocol_version <= 1 &&
         wanted.max_msg_size <= kMostMessage && wanted.msg_prefix_size == 0 && wanted.tx_ctx_cnt <= 1 &&
         wanted.rx_ctx_cnt <= 1 && wanted.auth_key_size == 0 && wanted.max_order_raw_size == 0 &&
         wanted.max_order_war_size == 0 && wanted.max_order_waw_size == 0;
}

bool fits(const fi_domain_attr& wanted, std::uint32_t version) {
  // Before 1.5 mr_mode was one of three; later ones say what a program is ready for, and we need nothing of it.
  if (FI_VERSION_LT(version, FI_VERSION(1, 5)) && wanted.mr_mode == FI_MR_BASIC) return false;
  return is(wanted.name, kProvider) && wanted.data_progress != FI_PROGRESS_AUTO && wanted.mr_key_size <= 8 &&
         wanted.cq_data_size <= 8 && wanted.cq_cnt <= kMostObjects && wanted.ep_cnt <= kMostObjects &&
         wanted.tx_ctx_cnt <= kMostObjects && wanted.rx_ctx_cnt <= kMostObjects && wanted.max_ep_tx_ctx <= 1 &&
         wanted.max_ep_rx_ctx <= 1 && wanted.max_ep_stx_ctx == 0 && wanted.max_ep_srx_ctx == 0 &&
         wanted.mr_iov_limit <= 1 && (wanted.caps & ~kWhere) == 0 && wanted.auth_key_size == 0;
}

bool fits(const fi_info* hints, std::uint32_t version) {
  if (hints == nullptr) return true;
  if ((hints->caps & ~kCaps) != 0) return false;
  if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != FI_SOCKADDR &&
      hints->addr_format != FI_SOCKADDR_IN)
    return false;
  if (hints->fabric_attr != nullptr && !is(hints->fabric_attr->name, kProvider)) return false;
  return (hints->ep_attr == nullptr || fits(*hints->ep_attr)) && (hints->tx_attr == nullptr || fits(*hints->tx_attr)) &&
         (hints->rx_attr == nullptr || fits(*hints->rx_attr)) &&
         (hints->domain_attr == nullptr || fits(*hints->domain_attr, version));
}

void set_address(void*& address, std::size_t& length, const sockaddr_in& from) {
  std::free(address);
  address = std::malloc(sizeof from);
  length = address == nullptr ? 0 : sizeof from;
  if (address != nullptr) std::memcpy(address, &from, sizeof from);
}

// False: no such host.
bool set_addresses(fi_info& info, const char* node, const char* service, std::uint64_t flags, const fi_info* hints) {
  if (node != nullptr || service != nullptr) {
    const auto found = resolve(node, service);
    if (!found) return false;
    if ((flags & FI_SOURCE) != 0)
      set_address(info.src_addr, info.src_addrlen, *found);
    else
      set_address(info.dest_addr, info.dest_addrlen, *found);
  }
  const auto copy = [](void*& to, std::size_t& length, const void* from, std::size_t size) {
    sockaddr_in address;
    if (to != nullptr || from == nullptr || size != sizeof address) return;
    std::memcpy(&address, from, sizeof address);
    set_address(to, length, address);
  };
  if (hints != nullptr) {
    copy(info.src_addr, info.src_addrlen, hints->src_addr, hints->src_addrlen);
    copy(info.dest_addr, info.dest_addrlen, hints->dest_addr, hints->dest_addrlen);
  }
  return true;
}

void fill(fi_info& info, std::uint32_t version, const fi_info* hints) {
  const std::uint64_t caps = caps_for(hints);
  info.caps = caps;
  info.mode = 0;
  info.addr_format = FI_SOCKADDR_IN;

  fi_tx_attr& tx = *info.tx_attr;
  const bool wants_tx = hints != nullptr && hints->tx_attr != nullptr;
  tx.caps = caps & (kKinds | kSending);
  tx.op_flags = wants_tx ? hints->tx_attr->op_flags : 0;
  tx.msg_order = kOrder;
  tx.inject_size = kInjectSize;
  tx.size = 1024;
  if (wants_tx) tx.size = std::max(tx.size, hints->tx_attr->size);
  tx.iov_limit = kMostPieces;
  tx.rma_iov_limit = 1;

  fi_rx_attr& rx = *info.rx_attr;
  const bool wants_rx = hints != nullptr && hints->rx_attr != nullptr;
  rx.caps = caps & (kKinds | kReceiving);
  rx.op_flags = wants_rx ? hints->rx_attr->op_flags : 0;
  rx.msg_order = kOrder;
  rx.size = 1024;
  if (wants_rx) rx.size = std::max(rx.size, hints->rx_attr->size);
  rx.iov_limit = kMostPieces;

  fi_ep_attr& ep = *info.ep_attr;
  ep.type = FI_EP_RDM;
  ep.protocol = kProtocol;
  ep.protocol_version = 1;
  ep.max_msg_size = kMostMessage;
  ep.mem_tag_format = 0xaaaaaaaaaaaaaaaaULL;
  ep.tx_ctx_cnt = ep.rx_ctx_cnt = 1;

  fi_domain_attr& domain = *info.domain_attr;
  const fi_domain_attr* const wanted = hints != nullptr ? hints->domain_attr : nullptr;
  domain.name = ::strdup(kProvider);
  domain.threading = wanted != nullptr && wanted->threading != FI_THREAD_UNSPEC ? wanted->threading : FI_THREAD_SAFE;
  domain.control_progress = FI_PROGRESS_AUTO;
  if (wanted != nullptr && wanted->control_progress != FI_PROGRESS_UNSPEC)
    domain.control_progress = wanted->control_progress;
  domain.data_progress = FI_PROGRESS_MANUAL;
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.av_type = wanted != nullptr ? wanted->av_type : FI_AV_UNSPEC;
  domain.mr_mode = FI_VERSION_LT(version, FI_VERSION(1, 5)) ? static_cast<int>(FI_MR_SCALABLE) : 0;
  domain.mr_key_size = 8;
  domain.cq_data_size = 8;
  domain.cq_cnt = domain.ep_cnt = domain.tx_ctx_cnt = domain.rx_ctx_cnt = domain.cntr_cnt = kMostObjects;
  domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = 1;
  domain.mr_iov_limit = 1;
  domain.mr_cnt = 65536;
  domain.caps = kWhere;

  info.fabric_attr->name = ::strdup(kProvider);
  info.fabric_attr->prov_version = kProviderVersion;
}

}  // namespace

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info) {
  if (!fits(hints, version)) return -FI_ENODATA;
  fi_info* const made = ::fi_allocinfo();
  if (made == nullptr) return -FI_ENOMEM;
  fill(*made, version, hints);
  if (!set_addresses(*made, node, service, flags, hints)) {
    ::fi_freeinfo(made);
    return -FI_ENODATA;
  }
  *info = made;
  return 0;
}

}  // namespace viaduct::fabric
