// Connecting and disconnecting.
#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "via/calls/calls.hpp"
#include "via/vipl/connect_steps.hpp"
#include "via/vipl/names.hpp"
#include "via/vipl/peer_request.hpp"

using namespace viaduct;
using namespace viaduct::vipl;

namespace {

constexpr std::uint64_t kConfirmationNs = 5'000'000'000;  // it sits in VipConnectRequest and answers at once
constexpr std::uint64_t kFirstPauseNs = 100'000;
constexpr std::uint64_t kLastPauseNs = 2'000'000;

// An address without a host is this one's: the other side has to tell them apart.
void name_own_host(WireAddress& address, const HostAddress& own) {
  if (address.host_length != 0) return;
  std::memmove(address.bytes + own.size(), address.bytes, address.discriminator_length);
  std::memcpy(address.bytes, own.data(), own.size());
  address.host_length = static_cast<std::uint16_t>(own.size());
}

void pause(std::uint64_t& nanoseconds, Deadline deadline) {
  const timespec nap = to_timespec(std::min(nanoseconds, deadline.left_ns(Clock::steady().now_ns())));
  (void)::nanosleep(&nap, nullptr);
  nanoseconds = std::min(nanoseconds * 2, kLastPauseNs);
}

}  // namespace

VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS* LocalAddr, VIP_ULONG Timeout,
                          VIP_NET_ADDRESS* RemoteAddr, VIP_VI_ATTRIBUTES* RemoteViAttributes,
                          VIP_CONN_HANDLE* ConnHandle) {
  const std::shared_ptr<Nic> nic = nics().hold(NicHandle);
  WireAddress local;
  if (nic == nullptr || ConnHandle == nullptr || !read_address(LocalAddr, local)) return VIP_INVALID_PARAMETER;
  if (!is_this_host(local, nic->host())) return VIP_INVALID_PARAMETER;
  const Deadline deadline = deadline_after(Timeout);
  auto listener = nic->port()->listener(server_place(local));
  for (std::uint64_t nap = kFirstPauseNs; !listener; listener = nic->port()->listener(server_place(local))) {
    // Another process waits there: it may be about to end.
    if (listener.error().code() != EADDRINUSE || deadline.expired(Clock::steady().now_ns())) {
      log::fault(listener.error().because("VipConnectWait").message());
      return VIP_ERROR_RESOURCE;
    }
    pause(nap, deadline);
  }
  for (;;) {
    std::unique_ptr<via::Handshake> handshake = (*listener)->next(deadline);
    if (handshake == nullptr) return VIP_TIMEOUT;
    const auto theirs = read_description(handshake->words());
    if (!theirs) continue;  // it makes no sense
    write_address(theirs->local, RemoteAddr);
    if (RemoteViAttributes != nullptr) *RemoteViAttributes = attributes_of(*theirs);
    *ConnHandle = requests().add(std::make_shared<Request>(Request{nic, std::move(handshake), *theirs}));
    return *ConnHandle == nullptr ? VIP_ERROR_RESOURCE : VIP_SUCCESS;
  }
}

VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle) {
  const std::shared_ptr<Request> request = requests().hold(ConnHandle);
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  if (request == nullptr || vi == nullptr || &vi->adapter() != request->adapter.get()) return VIP_INVALID_PARAMETER;
  via::Handshake& handshake = *request->handshake;
  Description mine;
  via::Terms terms;
  {
    const std::lock_guard lock(vi->lock);
    if (vi->state() != VIP_STATE_IDLE) return VIP_INVALID_STATE;
    mine = describe(*vi, request->theirs.remote, request->theirs.local);
    // The program may change the VI and try again: the other end is not told.
    if (const VIP_RETURN agreed = agree(mine, request->theirs); agreed != VIP_SUCCESS) return agreed;
    terms = terms_of(*vi);
    vi->set_state(VIP_STATE_CONNECT_PENDING);
  }
  if (requests().remove(ConnHandle) == nullptr) return give_up(*vi, VIP_INVALID_PARAMETER);
  if (!handshake.accept(terms, words_of(mine))) return give_up(*vi, VIP_TIMEOUT);
  const Deadline deadline = Deadline::after_ns(Clock::steady(), kConfirmationNs);
  if (handshake.run(deadline, [&] { return !is_pending(*vi); }) != via::Handshake::Step::done)
    return give_up(*vi, VIP_TIMEOUT);
  return finish(nic_of(*vi).progress(), *vi, handshake, request->theirs);
}

VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle) {
  const std::shared_ptr<Request> request = requests().remove(ConnHandle);
  if (request == nullptr) return VIP_INVALID_PARAMETER;
  request->handshake->refuse(refusal(VIP_REJECT));
  return VIP_SUCCESS;
}

VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS* LocalAddr, VIP_NET_ADDRESS* RemoteAddr,
                             VIP_ULONG Timeout, VIP_VI_ATTRIBUTES* RemoteViAttributes) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  WireAddress local, remote;
  if (vi == nullptr || Timeout == 0 || !read_address(LocalAddr, local) || !read_address(RemoteAddr, remote))
    return VIP_INVALID_PARAMETER;
  const Deadline deadline = deadline_after(Timeout);
  if (!become_pending(*vi)) return VIP_INVALID_STATE;
  Description mine;
  via::Terms terms;
  {
    const std::lock_guard lock(vi->lock);
    mine = describe(*vi, local, remote);
    terms = terms_of(*vi);
  }
  const VIP_RETURN result = request(nic_of(*vi).progress(), *vi, mine, terms, deadline);
  if (result != VIP_SUCCESS) return give_up(*vi, result);
  if (RemoteViAttributes != nullptr) {
    const std::lock_guard lock(vi->lock);
    *RemoteViAttributes = vi->peer();
  }
  return VIP_SUCCESS;
}

VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS* LocalAddr, VIP_NET_ADDRESS* RemoteAddr,
                                 VIP_ULONG Timeout) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  WireAddress local, remote;
  if (vi == nullptr || Timeout == 0 || !read_address(LocalAddr, local) || !read_address(RemoteAddr, remote))
    return VIP_INVALID_PARAMETER;
  name_own_host(local, nic_of(*vi).host());
  const Deadline deadline = deadline_after(Timeout);
  if (!become_pending(*vi)) return VIP_INVALID_STATE;
  const std::lock_guard lock(vi->lock);
  vi->peer_request =
      std::make_unique<PeerRequest>(vi->adapter().port(), describe(*vi, local, remote), terms_of(*vi), deadline);
  (void)vi->peer_request->advance();
  return VIP_SUCCESS;
}

VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES* RemoteViAttributes) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  if (vi == nullptr) return VIP_INVALID_PARAMETER;
  std::unique_ptr<via::Handshake> handshake;
  Description theirs;
  VIP_RETURN result;
  {
    const std::lock_guard lock(vi->lock);
    if (!vi->peer_request) return VIP_INVALID_STATE;
    result = vi->peer_request->advance();
    theirs = vi->peer_request->theirs();
    if (result == VIP_SUCCESS) handshake = vi->peer_request->take_handshake();
  }
  if (result == VIP_NOT_DONE) return result;
  if (result == VIP_SUCCESS) result = finish(nic_of(*vi).progress(), *vi, *handshake, theirs);
  if (result != VIP_SUCCESS) return give_up(*vi, result);
  if (RemoteViAttributes != nullptr) {
    const std::lock_guard lock(vi->lock);
    *RemoteViAttributes = vi->peer();
  }
  return VIP_SUCCESS;
}

VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES* RemoteViAttributes) {
  for (;;) {
    const VIP_RETURN result = VipConnectPeerDone(ViHandle, RemoteViAttributes);
    if (result != VIP_NOT_DONE) return result;
    constexpr timespec kNap{0, 200'000};
    (void)::nanosleep(&kNap, nullptr);
  }
}

VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  if (vi == nullptr) return VIP_INVALID_PARAMETER;
  return disconnect(nic_of(*vi).progress(), *vi);
}
