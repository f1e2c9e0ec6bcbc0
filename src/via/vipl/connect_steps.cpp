#include "via/vipl/connect_steps.hpp"

#include <mutex>
#include <utility>

#include "base/counters.hpp"
#include "base/log.hpp"
#include "via/vipl/cq.hpp"
#include "via/vipl/peer_request.hpp"

namespace viaduct::vipl {

namespace {

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

}  // namespace

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

via::Terms terms_of(Vi& vi) {
  const std::uint64_t rights =
      (vi.attributes().EnableRdmaWrite ? kRdmaWrite : 0ul) | (vi.attributes().EnableRdmaRead ? kRdmaRead : 0ul);
  return {vi.slot(), vi.number_connection(), vi.tag(), rights, channel_for(vi.attributes().MaxTransferSize)};
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

VIP_RETURN finish(Progress& progress, Vi& vi, via::Handshake& handshake, const Description& theirs) {
  via::Connection connection = handshake.take();
  if (connection.channel == nullptr) return give_up(vi, VIP_ERROR_RESOURCE);
  VIP_RETURN result = VIP_SUCCESS;
  Effects effects;
  progress.adapter().leadership().lead();
  {
    const std::lock_guard lock(vi.lock);
    vi.peer_request.reset();
    if (vi.state() == VIP_STATE_CONNECT_PENDING) {
      vi.connected(std::move(connection), attributes_of(theirs));
      const bool attend = vi.wants_attention || vi.queue(false).cq != nullptr || vi.queue(true).cq != nullptr;
      if (attend && progress.attend(vi)) {  // nobody would notice what comes
        connection = vi.disconnected(effects);
        result = VIP_ERROR_RESOURCE;
      }
    } else {
      result = VIP_INVALID_STATE;  // disconnected by another thread meanwhile
    }
  }
  progress.adapter().leadership().stop();
  progress.adapter().deliver(effects);
  static Counter made = counter("via.connections");
  if (result == VIP_SUCCESS) made.add();
  return result;
}

VIP_RETURN request(Progress& progress, Vi& vi, const Description& mine, const via::Terms& terms, Deadline deadline) {
  auto joining = progress.adapter().port()->join(server_place(mine.remote), terms, words_of(mine), deadline);
  if (!joining) return failed(joining.error(), "VipConnectRequest");
  const std::unique_ptr<via::Handshake> handshake = std::move(*joining);
  switch (handshake->run(Deadline::never(), [&] { return !is_pending(vi); })) {
    case via::Handshake::Step::done:
      if (const auto theirs = read_description(handshake->words())) return finish(progress, vi, *handshake, *theirs);
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

VIP_RETURN disconnect(Progress& progress, Vi& vi) {
  Effects effects;
  via::Connection connection;  // goes when all locks are free
  VIP_RETURN result = VIP_INVALID_STATE;
  progress.adapter().leadership().lead();
  {
    const std::lock_guard lock(vi.lock);
    if (vi.state() != VIP_STATE_IDLE) {
      progress.leave_alone(vi);
      connection = vi.disconnected(effects);
      result = VIP_SUCCESS;
    }
  }
  progress.adapter().leadership().stop();
  progress.adapter().deliver(effects);
  return result;
}

}  // namespace viaduct::vipl
