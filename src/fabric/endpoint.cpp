#include "fabric/endpoint.hpp"

#include <rdma/fi_errno.h>

#include <cstring>
#include <mutex>
#include <new>

#include "base/log.hpp"
#include "fabric/address.hpp"
#include "fabric/info.hpp"
#include "fabric/none.hpp"

namespace viaduct::fabric {

Endpoint::Endpoint(Domain& domain, const fi_info& info, void* context)
    : fid_ep{},
      domain_(domain),
      caps_(info.caps),
      send_flags_(info.tx_attr != nullptr ? info.tx_attr->op_flags : 0),
      receive_flags_(info.rx_attr != nullptr ? info.rx_attr->op_flags : 0) {
  fid = {FI_CLASS_EP, context, &kOps};
  ops = &kEndpointOps;
  cm = &kNameOps;
  msg = &kMessageOps;
  rma = &kRemoteOps;
  tagged = &kTaggedOps;
  atomic = &kAtomicOps;
  collective = nullptr;
  domain_.users.fetch_add(1);
}

Endpoint::~Endpoint() {
  leave_all();
  domain_.regions.forget(*this);
  below_.reset();
  domain_.users.fetch_sub(1);
}

int Endpoint::open(Domain& domain, fi_info* info, fid_ep** endpoint, void* context) {
  std::unique_ptr<Endpoint> made(new (std::nothrow) Endpoint(domain, *info, context));
  if (made == nullptr) return -FI_ENOMEM;
  if (const int fault = made->start(*info); fault != 0) return fault;
  *endpoint = made.release();
  return 0;
}

int Endpoint::start(const fi_info& info) {
  mx::Options options{.family = kFamily, .events = this};
  sockaddr_in source{};
  if (info.src_addr != nullptr && info.src_addrlen == sizeof source) {
    std::memcpy(&source, info.src_addr, sizeof source);
    if (source.sin_port != 0) options.number = static_cast<std::uint32_t>(ntohs(source.sin_port) - 1);
    sockaddr_in somewhere = source;
    somewhere.sin_port = htons(1);
    if (source.sin_addr.s_addr != htonl(INADDR_ANY)) options.nic = name_of(somewhere)->nic;
  }
  mx::Failure why;
  below_ = mx::Endpoint::open(options, why);
  if (below_ != nullptr) return 0;
  log::fault("an endpoint of libfabric: " + why.message);
  const int code = why.code.value();
  return code == EADDRINUSE ? -FI_EADDRINUSE : code == EACCES ? -FI_EACCES : -FI_EIO;
}

void Endpoint::progress() {
  (void)below_->progress();
  say_what_waits();
}

// ---- what it is bound to

int Endpoint::bind_queue(CompletionQueue& queue, std::uint64_t flags) {
  const bool selects = (flags & FI_SELECTIVE_COMPLETION) != 0;
  if ((flags & (FI_TRANSMIT | FI_RECV)) == 0) return -FI_EINVAL;
  if ((flags & FI_TRANSMIT) != 0) {
    if (send_queue_ != nullptr) return -FI_EINVAL;
    send_queue_ = &queue;
    send_selects_ = selects;
    queue.users.fetch_add(1);
  }
  if ((flags & FI_RECV) != 0) {
    if (receive_queue_ != nullptr) return -FI_EINVAL;
    receive_queue_ = &queue;
    receive_selects_ = selects;
    queue.users.fetch_add(1);
  }
  queue.sleeper().add(*this);
  return 0;
}

int Endpoint::bind_counter(Counter& counter, std::uint64_t flags) {
  constexpr std::uint64_t kFlags[] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
  bool any = false;
  for (std::size_t i = 0; i < std::size(kFlags); ++i) {
    if ((flags & kFlags[i]) == 0) continue;
    if (counters_[i] != nullptr) return -FI_EINVAL;
    counters_[i] = &counter;
    counter.users.fetch_add(1);
    any = true;
  }
  if (any) counter.sleeper().add(*this);
  return any ? 0 : -FI_EINVAL;
}

int Endpoint::bind(fid_t to, std::uint64_t flags) {
  if (enabled_) return -FI_EOPBADSTATE;
  switch (to->fclass) {
    case FI_CLASS_AV:
      if (addresses_ != nullptr) return -FI_EINVAL;
      addresses_ = &Addresses::of(to);
      addresses_->users.fetch_add(1);
      return 0;
    case FI_CLASS_CQ:
      return bind_queue(CompletionQueue::of(to), flags);
    case FI_CLASS_CNTR:
      return bind_counter(Counter::of(to), flags);
    case FI_CLASS_EQ:
      return 0;  // nothing of an endpoint without connections is told there
    default:
      return -FI_EINVAL;
  }
}

void Endpoint::leave_all() {
  for (CompletionQueue* const queue : {send_queue_, receive_queue_}) {
    if (queue == nullptr) continue;
    queue->sleeper().remove(*this);
    queue->users.fetch_sub(1);
  }
  for (Counter* const counter : counters_) {
    if (counter == nullptr) continue;
    counter->sleeper().remove(*this);
    counter->users.fetch_sub(1);
  }
  if (addresses_ != nullptr) addresses_->users.fetch_sub(1);
}

int Endpoint::control(int command, void* argument) {
  auto* const flags = static_cast<std::uint64_t*>(argument);
  switch (command) {
    case FI_ENABLE:
      if (addresses_ == nullptr) return -FI_ENOAV;
      if (send_queue_ == nullptr && receive_queue_ == nullptr && counters_[kSends] == nullptr &&
          counters_[kReceives] == nullptr)
        return -FI_ENOCQ;
      enabled_ = true;
      return 0;
    case FI_GETOPSFLAG:
      *flags = (*flags & FI_TRANSMIT) != 0 ? send_flags_ : receive_flags_;
      return 0;
    case FI_SETOPSFLAG:
      ((*flags & FI_TRANSMIT) != 0 ? send_flags_ : receive_flags_) = *flags & ~(FI_TRANSMIT | FI_RECV);
      return 0;
    default:
      return -FI_ENOSYS;
  }
}

// ---- addresses

// An index stands for one name for ever, also when it was removed.
mx::Partner* Endpoint::partner_at(fi_addr_t address) {
  mx::Name name;
  if (addresses_ == nullptr || !addresses_->find(address, name)) return nullptr;
  {
    const std::lock_guard lock(lock_);
    if (address < partners_.size() && partners_[address] != nullptr) return partners_[address];
  }
  mx::Partner* const partner = below_->partner(name);
  if (partner == nullptr) return nullptr;
  {
    const std::lock_guard lock(lock_);
    if (partners_.size() <= address) partners_.resize(address + 1);
    partners_[address] = partner;
  }
  tell_rank(partner);
  return partner;
}

fi_addr_t Endpoint::address_at(mx::Partner* partner) {
  if (addresses_ == nullptr || (caps_ & FI_SOURCE) == 0) return FI_ADDR_NOTAVAIL;
  return addresses_->find(below_->name_of(partner));
}

// ---- the exported forms

struct EndpointCalls {
  static int close(fid_t fid) { return delete &Endpoint::of(fid), 0; }
  static int bind(fid_t fid, fid_t to, std::uint64_t flags) { return Endpoint::of(fid).bind(to, flags); }
  static int control(fid_t fid, int command, void* argument) { return Endpoint::of(fid).control(command, argument); }
  static ssize_t cancel(fid_t fid, void* context) { return Endpoint::of(fid).cancel(context); }
  static int getopt(fid_t fid, int level, int name, void* value, std::size_t* length) {
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
    if (*length < sizeof(std::size_t)) return -FI_ETOOSMALL;
    *static_cast<std::size_t*>(value) = Endpoint::of(fid).least_room_;
    *length = sizeof(std::size_t);
    return 0;
  }
  static int setopt(fid_t fid, int level, int name, const void* value, std::size_t length) {
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
    if (length != sizeof(std::size_t)) return -FI_EINVAL;
    Endpoint::of(fid).least_room_ = *static_cast<const std::size_t*>(value);
    return 0;
  }
  static ssize_t size_left(fid_ep* ep) {
    Endpoint& endpoint = Endpoint::of(ep);
    const std::lock_guard lock(endpoint.lock_);
    return static_cast<ssize_t>(kMostUnderWay - endpoint.under_way_);
  }
  static int getname(fid_t fid, void* address, std::size_t* length) {
    const sockaddr_in own = address_of(Endpoint::of(fid).below().name());
    const std::size_t room = *length;
    *length = sizeof own;
    if (room < sizeof own) return -FI_ETOOSMALL;
    std::memcpy(address, &own, sizeof own);
    return 0;
  }
};

fi_ops Endpoint::kOps = {
    .size = sizeof(fi_ops),
    .close = EndpointCalls::close,
    .bind = EndpointCalls::bind,
    .control = EndpointCalls::control,
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};
fi_ops_ep Endpoint::kEndpointOps = {
    .size = sizeof(fi_ops_ep),
    .cancel = EndpointCalls::cancel,
    .getopt = EndpointCalls::getopt,
    .setopt = EndpointCalls::setopt,
    .tx_ctx = VIADUCT_NONE(fi_ops_ep, tx_ctx),
    .rx_ctx = VIADUCT_NONE(fi_ops_ep, rx_ctx),
    .rx_size_left = EndpointCalls::size_left,
    .tx_size_left = EndpointCalls::size_left,
};
fi_ops_cm Endpoint::kNameOps = {
    .size = sizeof(fi_ops_cm),
    .setname = VIADUCT_NONE(fi_ops_cm, setname),
    .getname = EndpointCalls::getname,
    .getpeer = VIADUCT_NONE(fi_ops_cm, getpeer),
    .connect = VIADUCT_NONE(fi_ops_cm, connect),
    .listen = VIADUCT_NONE(fi_ops_cm, listen),
    .accept = VIADUCT_NONE(fi_ops_cm, accept),
    .reject = VIADUCT_NONE(fi_ops_cm, reject),
    .shutdown = VIADUCT_NONE(fi_ops_cm, shutdown),
    .join = VIADUCT_NONE(fi_ops_cm, join),
};

}  // namespace viaduct::fabric
