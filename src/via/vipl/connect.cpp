// Connecting and disconnecting.
#include "via/vipl/connect.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/counters.hpp"
#include "base/log.hpp"
#include "via/vipl/names.hpp"
#include "via/vipl/nic.hpp"
#include "via/vipl/peer_request.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint64_t kConfirmationNs = 5'000'000'000;  // it sits in VipConnectRequest and answers at once
constexpr std::uint64_t kFirstPauseNs = 100'000;
constexpr std::uint64_t kLastPauseNs = 2'000'000;

}  // namespace

std::optional<Description> read_description(std::span<const std::byte> words) {
  Description description;
  if (words.size() != sizeof description) return std::nullopt;
  std::memcpy(&description, words.data(), sizeof description);
  if (!sane(description.local) || !sane(description.remote)) return std::nullopt;
  return description;
}

VIP_VI_ATTRIBUTES attributes_of(const Description& description) {
  VIP_VI_ATTRIBUTES attributes{};
  attributes.ReliabilityLevel = description.reliability;
  attributes.MaxTransferSize = description.max_transfer;
  attributes.EnableRdmaWrite = description.enable_write != 0;
  attributes.EnableRdmaRead = description.enable_read != 0;
  return attributes;
}

std::span<const std::byte> refusal(const VIP_RETURN& why) {
  return std::as_bytes(std::span(&why, 1));
}

VIP_RETURN read_refusal(std::span<const std::byte> words) {
  std::uint32_t why = 0;
  static_assert(sizeof why == sizeof(VIP_RETURN));
  if (words.size() == sizeof why) std::memcpy(&why, words.data(), sizeof why);
  const bool known = why != VIP_SUCCESS && why <= VIP_ERROR_NOT_SUPPORTED;
  return known ? static_cast<VIP_RETURN>(why) : VIP_REJECT;
}

VIP_RETURN agree(const Description& mine, const Description& theirs) {
  if (mine.reliability != theirs.reliability) return VIP_INVALID_RELIABILITY_LEVEL;
  if (mine.max_transfer != theirs.max_transfer) return VIP_INVALID_MTU;
  return VIP_SUCCESS;
}

via::ChannelOptions channel_for(std::size_t max_transfer) {
  constexpr std::size_t kLeast = std::size_t{16} << 10, kMost = std::size_t{256} << 10;
  const std::size_t bulk = std::clamp(std::bit_ceil(max_transfer) * 4, kLeast, kMost);
  return {.bulk_bytes = bulk, .slots = bulk == kMost ? 128u : 64u};
}

// ---- steps of connecting a VI

namespace {

// Under the VI's lock.
Description describe(const Vi& vi, const WireAddress& local, const WireAddress& remote) {
  Description description{};
  description.max_transfer = vi.attributes().MaxTransferSize;
  description.reliability = vi.attributes().ReliabilityLevel;
  description.enable_write = vi.attributes().EnableRdmaWrite ? 1 : 0;
  description.enable_read = vi.attributes().EnableRdmaRead ? 1 : 0;
  description.local = local;
  description.remote = remote;
  return description;
}

// Under the VI's lock.
via::Terms terms_of(Vi& vi) {
  const std::uint64_t rights =
      (vi.attributes().EnableRdmaWrite ? kRdmaWrite : 0ul) | (vi.attributes().EnableRdmaRead ? kRdmaRead : 0ul);
  return {vi.slot(), vi.number_connection(), vi.tag(), rights, channel_for(vi.attributes().MaxTransferSize)};
}

template <class Object>
std::span<const std::byte> words_of(const Object& object) {
  return std::as_bytes(std::span(&object, 1));
}

// An address without a host is this one's: the other side has to tell them apart.
void name_own_host(WireAddress& address, const Nic& nic) {
  if (address.host_length != 0) return;
  std::memmove(address.bytes + nic.host().size(), address.bytes, address.discriminator_length);
  std::memcpy(address.bytes, nic.host().data(), nic.host().size());
  address.host_length = static_cast<std::uint16_t>(nic.host().size());
}

bool become_pending(Vi& vi) {
  const std::lock_guard lock(vi.lock);
  if (vi.state() != VIP_STATE_IDLE) return false;
  vi.set_state(VIP_STATE_CONNECT_PENDING);
  return true;
}

bool is_pending(Vi& vi) {
  const std::lock_guard lock(vi.lock);
  return vi.state() == VIP_STATE_CONNECT_PENDING;
}

VIP_RETURN give_up(Vi& vi, VIP_RETURN why) {
  const std::lock_guard lock(vi.lock);
  if (vi.state() == VIP_STATE_CONNECT_PENDING) vi.set_state(VIP_STATE_IDLE);
  vi.peer_request.reset();
  return why;
}

// Both ends have the channel: the VI is connected, and attended to if somebody may sleep for it.
VIP_RETURN finish(Vi& vi, via::Handshake& handshake, const Description& theirs) {
  via::Connection connection = handshake.take();
  if (connection.channel == nullptr) return give_up(vi, VIP_ERROR_RESOURCE);
  VIP_RETURN result = VIP_SUCCESS;
  Effects effects;
  vi.nic().leadership().lead();
  {
    const std::lock_guard lock(vi.lock);
    vi.peer_request.reset();
    if (vi.state() == VIP_STATE_CONNECT_PENDING) {
      vi.connected(std::move(connection), attributes_of(theirs));
      const bool attend = vi.wants_attention || vi.queue(false).cq != nullptr || vi.queue(true).cq != nullptr;
      if (attend && vi.nic().attend(vi)) {  // nobody would notice what comes
        connection = vi.disconnected(effects);
        result = VIP_ERROR_RESOURCE;
      }
    } else {
      result = VIP_INVALID_STATE;  // disconnected by another thread meanwhile
    }
  }
  vi.nic().leadership().stop();
  vi.nic().deliver(effects);
  static Counter made = counter("via.connections");
  if (result == VIP_SUCCESS) made.add();
  return result;
}

void pause(std::uint64_t& nanoseconds, Deadline deadline) {
  const timespec nap = to_timespec(std::min(nanoseconds, deadline.left_ns(Clock::steady().now_ns())));
  (void)::nanosleep(&nap, nullptr);
  nanoseconds = std::min(nanoseconds * 2, kLastPauseNs);
}

VIP_RETURN failed(const Error& fault, const char* call) {
  log::fault(fault.because(call).message());
  switch (fault.code()) {
    case EACCES:
      return VIP_REJECT;
    case EPERM:  // VIADUCT_NETWORK=off
    case ENETUNREACH:
    case EHOSTUNREACH:
      return VIP_NO_MATCH;
    default:
      return VIP_ERROR_RESOURCE;
  }
}

VIP_RETURN request(Vi& vi, const Description& mine, const via::Terms& terms, Deadline deadline) {
  auto joining = vi.nic().port()->join(server_place(mine.remote), terms, words_of(mine), deadline);
  if (!joining) return failed(joining.error(), "VipConnectRequest");
  const std::unique_ptr<via::Handshake> handshake = std::move(*joining);
  switch (handshake->run(Deadline::never(), [&] { return !is_pending(vi); })) {
    case via::Handshake::Step::done:
      if (const auto theirs = read_description(handshake->words())) return finish(vi, *handshake, *theirs);
      return VIP_ERROR_RESOURCE;
    case via::Handshake::Step::refused:
      return read_refusal(handshake->words());
    case via::Handshake::Step::nobody:
      if (handshake->fault().code() != 0) log::notice(handshake->fault().because("VipConnectRequest").message());
      return VIP_NO_MATCH;
    case via::Handshake::Step::timed_out:
      return VIP_TIMEOUT;
    case via::Handshake::Step::failed:
      return failed(handshake->fault(), "VipConnectRequest");
    case via::Handshake::Step::pending:
    case via::Handshake::Step::heard:
      break;
  }
  return VIP_INVALID_STATE;  // called off
}

}  // namespace

}  // namespace viaduct::vipl

// ---- the interface

using namespace viaduct;
using namespace viaduct::vipl;

VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS* LocalAddr, VIP_ULONG Timeout,
                          VIP_NET_ADDRESS* RemoteAddr, VIP_VI_ATTRIBUTES* RemoteViAttributes,
                          VIP_CONN_HANDLE* ConnHandle) {
  const std::shared_ptr<Nic> nic = nics().hold(NicHandle);
  WireAddress local;
  if (nic == nullptr || ConnHandle == nullptr || !read_address(LocalAddr, local)) return VIP_INVALID_PARAMETER;
  if (!is_this_host(local, *nic)) return VIP_INVALID_PARAMETER;
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
  if (request == nullptr || vi == nullptr || &vi->nic() != request->nic.get()) return VIP_INVALID_PARAMETER;
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
  return finish(*vi, handshake, request->theirs);
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
  const VIP_RETURN result = request(*vi, mine, terms, deadline);
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
  name_own_host(local, vi->nic());
  const Deadline deadline = deadline_after(Timeout);
  if (!become_pending(*vi)) return VIP_INVALID_STATE;
  const std::lock_guard lock(vi->lock);
  vi->peer_request =
      std::make_unique<PeerRequest>(vi->nic().port(), describe(*vi, local, remote), terms_of(*vi), deadline);
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
  if (result == VIP_SUCCESS) result = finish(*vi, *handshake, theirs);
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
  Effects effects;
  via::Connection connection;  // goes when all locks are free
  VIP_RETURN result = VIP_INVALID_STATE;
  vi->nic().leadership().lead();
  {
    const std::lock_guard lock(vi->lock);
    if (vi->state() != VIP_STATE_IDLE) {
      vi->nic().leave_alone(*vi);
      connection = vi->disconnected(effects);
      result = VIP_SUCCESS;
    }
  }
  vi->nic().leadership().stop();
  vi->nic().deliver(effects);
  return result;
}
