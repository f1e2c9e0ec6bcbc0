// Connecting and disconnecting.
#include "via/vipl_connect.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <bit>

#include "base/counters.hpp"
#include "base/log.hpp"
#include "via/vipl_fork.hpp"
#include "via/vipl_names.hpp"
#include "via/vipl_nic.hpp"
#include "via/vipl_peer_request.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint64_t kSilenceNs = 5'000'000'000;       // a client that says nothing for so long is let go
constexpr std::uint64_t kConfirmationNs = 5'000'000'000;  // it sits in VipConnectRequest and answers at once
constexpr std::uint64_t kFirstPauseNs = 100'000;
constexpr std::uint64_t kLastPauseNs = 2'000'000;

}  // namespace

VIP_RETURN agree(const Hello& mine, const Hello& theirs) {
  if (mine.reliability != theirs.reliability) return VIP_INVALID_RELIABILITY_LEVEL;
  if (mine.max_transfer != theirs.max_transfer) return VIP_INVALID_MTU;
  return VIP_SUCCESS;
}

via::ChannelOptions channel_for(std::size_t max_transfer) {
  constexpr std::size_t kLeast = std::size_t{16} << 10, kMost = std::size_t{256} << 10;
  const std::size_t bulk = std::clamp(std::bit_ceil(max_transfer) * 4, kLeast, kMost);
  return {.bulk_bytes = bulk, .slots = bulk == kMost ? 128u : 64u};
}

// ---- listeners

Result<std::shared_ptr<Listener>> Listener::make(const std::string& name) {
  VIADUCT_TRY(Fd fd, meeting::listen_at(name, kBacklog));
  close_in_children(fd.get());
  return std::shared_ptr<Listener>(new Listener(std::move(fd)));
}

Listener::~Listener() {
  keep_in_children(fd_.get());
}

void Listener::accept_all() {
  for (;;) {
    auto socket = meeting::accept_at(fd_.get());
    if (!socket) return;
    auto handshake = Handshake::open(std::move(*socket));
    if (handshake)
      silent_.push_back(std::move(*handshake));
    else
      log::fault(handshake.error().because("a connection request").message());
  }
}

std::unique_ptr<Handshake> Listener::take_one_that_spoke() {
  const std::lock_guard lock(mutex_);
  accept_all();
  std::erase_if(silent_, [](const auto& one) { return one->other_has_left(); });
  const std::uint64_t now = Clock::steady().now_ns();
  for (auto one = silent_.begin(); one != silent_.end();) {
    const Handshake::Step step = (*one)->advance();
    if (step == Handshake::Step::heard) {
      std::unique_ptr<Handshake> spoke = std::move(*one);
      silent_.erase(one);
      return spoke;
    }
    const bool keep = step == Handshake::Step::pending && now - (*one)->began_ns < kSilenceNs;
    one = keep ? one + 1 : silent_.erase(one);
  }
  return nullptr;
}

void Listener::wait_for_somebody(Deadline deadline) {
  constexpr std::uint64_t kSliceNs = 100'000'000;  // another thread may have taken over somebody silent
  std::vector<pollfd> entries{{fd_.get(), POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : silent_) entries.push_back({one->descriptor(), POLLIN, 0});
  }
  const timespec left = to_timespec(std::min(deadline.left_ns(Clock::steady().now_ns()), kSliceNs));
  (void)::ppoll(entries.data(), entries.size(), &left, nullptr);
}

std::unique_ptr<Handshake> Listener::next(Deadline deadline) {
  for (;;) {
    if (auto handshake = take_one_that_spoke()) return handshake;
    if (deadline.expired(Clock::steady().now_ns())) return nullptr;
    wait_for_somebody(deadline);
  }
}

// ---- steps of connecting a VI

namespace {

// Under the VI's lock.
Hello hello_of(Vi& vi, const WireAddress& local, const WireAddress& remote) {
  Hello hello{};
  hello.slot = vi.slot();
  hello.max_transfer = vi.attributes().MaxTransferSize;
  hello.tag = vi.tag();
  hello.token = vi.nic().token().value;
  hello.token_address = vi.nic().token().address;
  hello.reliability = vi.attributes().ReliabilityLevel;
  hello.enable_write = vi.attributes().EnableRdmaWrite ? 1 : 0;
  hello.enable_read = vi.attributes().EnableRdmaRead ? 1 : 0;
  hello.local = local;
  hello.remote = remote;
  hello.connection = vi.number_connection();
  return hello;
}

// What a program is told of the other VI: its protection tag means nothing here.
VIP_VI_ATTRIBUTES attributes_of(const Hello& hello) {
  VIP_VI_ATTRIBUTES attributes{};
  attributes.ReliabilityLevel = hello.reliability;
  attributes.MaxTransferSize = hello.max_transfer;
  attributes.EnableRdmaWrite = hello.enable_write != 0;
  attributes.EnableRdmaRead = hello.enable_read != 0;
  return attributes;
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
VIP_RETURN finish(Vi& vi, Handshake& handshake) {
  const Hello& theirs = handshake.theirs();
  auto remote = vi.nic().remote(handshake.take_table(), handshake.peer(), {theirs.token, theirs.token_address});
  if (!remote) {
    log::fault(remote.error().because("connect").message());
    return give_up(vi, VIP_ERROR_RESOURCE);
  }
  std::unique_ptr<via::Channel> channel = handshake.take_channel();
  VIP_RETURN result = VIP_SUCCESS;
  Effects effects;
  vi.nic().leadership().lead();
  {
    const std::lock_guard lock(vi.lock);
    vi.peer_request.reset();
    if (vi.state() == VIP_STATE_CONNECT_PENDING) {
      vi.connected(std::move(channel), std::move(*remote),
                   {attributes_of(theirs), theirs.tag, theirs.slot, theirs.connection});
      const bool attend = vi.wants_attention || vi.queue(false).cq != nullptr || vi.queue(true).cq != nullptr;
      if (attend && vi.nic().attend(vi)) {  // nobody would notice what comes
        channel = vi.disconnected(effects);
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

VIP_RETURN request(Vi& vi, const Hello& hello, Deadline deadline) {
  const std::string name = server_name(hello.remote);
  const int table = vi.nic().registrations().segment().fd();
  bool found = false;
  for (std::uint64_t nap = kFirstPauseNs;; pause(nap, deadline)) {
    if (!is_pending(vi)) return VIP_INVALID_STATE;
    auto socket = meeting::connect_at(name);
    if (socket) {
      auto handshake = Handshake::join(std::move(*socket), hello, table);
      if (!handshake && handshake.error().code() == EACCES) {
        log::fault(handshake.error().because("VipConnectRequest").message());
        return VIP_REJECT;
      }
      if (handshake) {
        found = true;
        switch ((*handshake)->run(deadline, [&] { return !is_pending(vi); })) {
          case Handshake::Step::done:
            return finish(vi, **handshake);
          case Handshake::Step::refused:
            return (*handshake)->verdict();
          case Handshake::Step::pending:
            return is_pending(vi) ? VIP_TIMEOUT : VIP_INVALID_STATE;
          case Handshake::Step::heard:
          case Handshake::Step::gone:
            break;  // it closed without a word: perhaps another waits there soon
        }
      }
    } else if (socket.error().code() == EMFILE || socket.error().code() == ENFILE) {
      log::fault(socket.error().because("VipConnectRequest").message());
      return VIP_ERROR_RESOURCE;
    }
    if (deadline.expired(Clock::steady().now_ns())) return found ? VIP_TIMEOUT : VIP_NO_MATCH;
  }
}

}  // namespace

std::shared_ptr<Listener> Nic::listener(const std::string& name, Error* fault) {
  const std::lock_guard lock(mutex_);
  auto& listener = listeners_[name];
  if (!listener) {
    auto made = Listener::make(name);
    if (made)
      listener = std::move(*made);
    else
      *fault = made.error();
  }
  return listener;
}

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
  Error fault(0, "");
  std::shared_ptr<Listener> listener = nic->listener(server_name(local), &fault);
  for (std::uint64_t nap = kFirstPauseNs; !listener; listener = nic->listener(server_name(local), &fault)) {
    // Another process waits there: it may be about to end.
    if (fault.code() != EADDRINUSE || deadline.expired(Clock::steady().now_ns())) {
      log::fault(fault.because("VipConnectWait").message());
      return VIP_ERROR_RESOURCE;
    }
    pause(nap, deadline);
  }
  std::unique_ptr<Handshake> handshake = listener->next(deadline);
  if (handshake == nullptr) return VIP_TIMEOUT;
  write_address(handshake->theirs().local, RemoteAddr);
  if (RemoteViAttributes != nullptr) *RemoteViAttributes = attributes_of(handshake->theirs());
  *ConnHandle = connections().add(std::make_shared<Connection>(nic, std::move(handshake)));
  return *ConnHandle == nullptr ? VIP_ERROR_RESOURCE : VIP_SUCCESS;
}

VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle) {
  const std::shared_ptr<Connection> connection = connections().hold(ConnHandle);
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  if (connection == nullptr || vi == nullptr || &vi->nic() != connection->nic.get()) return VIP_INVALID_PARAMETER;
  Handshake& handshake = *connection->handshake;
  Hello mine;
  {
    const std::lock_guard lock(vi->lock);
    if (vi->state() != VIP_STATE_IDLE) return VIP_INVALID_STATE;
    mine = hello_of(*vi, handshake.theirs().remote, handshake.theirs().local);
    // The program may change the VI and try again: the other end is not told.
    if (const VIP_RETURN agreed = agree(mine, handshake.theirs()); agreed != VIP_SUCCESS) return agreed;
    vi->set_state(VIP_STATE_CONNECT_PENDING);
  }
  if (connections().remove(ConnHandle) == nullptr) return give_up(*vi, VIP_INVALID_PARAMETER);
  const int table = vi->nic().registrations().segment().fd();
  if (!handshake.accept(mine, table, channel_for(mine.max_transfer))) return give_up(*vi, VIP_TIMEOUT);
  const Deadline deadline = Deadline::after_ns(Clock::steady(), kConfirmationNs);
  if (handshake.run(deadline, [&] { return !is_pending(*vi); }) != Handshake::Step::done)
    return give_up(*vi, VIP_TIMEOUT);
  return finish(*vi, handshake);
}

VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle) {
  const std::shared_ptr<Connection> connection = connections().remove(ConnHandle);
  if (connection == nullptr) return VIP_INVALID_PARAMETER;
  connection->handshake->refuse(VIP_REJECT);
  return VIP_SUCCESS;
}

VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS* LocalAddr, VIP_NET_ADDRESS* RemoteAddr,
                             VIP_ULONG Timeout, VIP_VI_ATTRIBUTES* RemoteViAttributes) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  WireAddress local, remote;
  if (vi == nullptr || Timeout == 0 || !read_address(LocalAddr, local) || !read_address(RemoteAddr, remote))
    return VIP_INVALID_PARAMETER;
  if (!is_this_host(remote, vi->nic())) return VIP_NO_MATCH;
  const Deadline deadline = deadline_after(Timeout);
  if (!become_pending(*vi)) return VIP_INVALID_STATE;
  Hello hello;
  {
    const std::lock_guard lock(vi->lock);
    hello = hello_of(*vi, local, remote);
  }
  const VIP_RETURN result = request(*vi, hello, deadline);
  if (result != VIP_SUCCESS) return give_up(*vi, result);
  if (RemoteViAttributes != nullptr) {
    const std::lock_guard lock(vi->lock);
    *RemoteViAttributes = vi->peer().attributes;
  }
  return VIP_SUCCESS;
}

VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS* LocalAddr, VIP_NET_ADDRESS* RemoteAddr,
                                 VIP_ULONG Timeout) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  WireAddress local, remote;
  if (vi == nullptr || Timeout == 0 || !read_address(LocalAddr, local) || !read_address(RemoteAddr, remote))
    return VIP_INVALID_PARAMETER;
  if (!is_this_host(remote, vi->nic())) return VIP_NO_MATCH;
  const Deadline deadline = deadline_after(Timeout);
  if (!become_pending(*vi)) return VIP_INVALID_STATE;
  const std::lock_guard lock(vi->lock);
  vi->peer_request =
      std::make_unique<PeerRequest>(hello_of(*vi, local, remote), vi->nic().registrations().segment().fd(),
                                    channel_for(vi->attributes().MaxTransferSize), deadline);
  (void)vi->peer_request->advance();
  return VIP_SUCCESS;
}

VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES* RemoteViAttributes) {
  const std::shared_ptr<Vi> vi = vis().hold(ViHandle);
  if (vi == nullptr) return VIP_INVALID_PARAMETER;
  std::unique_ptr<Handshake> handshake;
  VIP_RETURN result;
  {
    const std::lock_guard lock(vi->lock);
    if (!vi->peer_request) return VIP_INVALID_STATE;
    result = vi->peer_request->advance();
    if (result == VIP_SUCCESS) handshake = vi->peer_request->take_handshake();
  }
  if (result == VIP_NOT_DONE) return result;
  if (result == VIP_SUCCESS) result = finish(*vi, *handshake);
  if (result != VIP_SUCCESS) return give_up(*vi, result);
  if (RemoteViAttributes != nullptr) {
    const std::lock_guard lock(vi->lock);
    *RemoteViAttributes = vi->peer().attributes;
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
  std::unique_ptr<via::Channel> channel;
  VIP_RETURN result = VIP_INVALID_STATE;
  vi->nic().leadership().lead();
  {
    const std::lock_guard lock(vi->lock);
    if (vi->state() != VIP_STATE_IDLE) {
      vi->nic().leave_alone(*vi);
      channel = vi->disconnected(effects);
      result = VIP_SUCCESS;
    }
  }
  vi->nic().leadership().stop();
  vi->nic().deliver(effects);
  return result;
}
