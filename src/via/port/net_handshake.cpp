#include "via/port/net_handshake.hpp"

#include <algorithm>
#include <utility>

#include "via/port/net_channel.hpp"
#include "via/port/net_reach.hpp"

namespace viaduct::via {

namespace {

constexpr std::uint64_t kFirstNapNs = 1'000'000;
constexpr std::uint64_t kLastNapNs = 50'000'000;

Error error_of(const net::Failure& why) {
  return Error(why.code.value(), why.message);
}

}  // namespace

NetHandshake::NetHandshake(std::shared_ptr<Network> network, net::Incoming incoming)
    : network_(std::move(network)),
      stage_(Stage::asked),
      flow_(incoming.flow),
      name_(std::move(incoming.name)),
      peer_(std::move(incoming.peer)),
      words_(std::move(incoming.request)) {}

NetHandshake::NetHandshake(std::shared_ptr<Network> network, std::string host, std::string name, const Terms& mine,
                           std::span<const std::byte> words, Deadline deadline)
    : network_(std::move(network)),
      stage_(Stage::between),
      host_(std::move(host)),
      name_(std::move(name)),
      peer_(host_),
      mine_(mine),
      request_(words.begin(), words.end()),
      deadline_(deadline) {}

NetHandshake::~NetHandshake() {
  let_go();
}

void NetHandshake::let_go() {
  if (flow_ == 0) return;
  if (stage_ == Stage::asked)
    network_->engine().refuse(flow_, net::Reason::not_wanted, {});
  else
    network_->engine().close(flow_, false);
  flow_ = 0;
  network_->dismiss(user_);
}

NetHandshake::Step NetHandshake::over(Step step) {
  let_go();
  stage_ = Stage::over;
  return end_ = step;
}

NetHandshake::Step NetHandshake::advance() {
  network_->engine().progress();
  switch (stage_) {
    case Stage::asked:
      return Step::heard;
    case Stage::open:
      return Step::done;
    case Stage::between:
      return Clock::steady().now_ns() < again_at_ ? Step::pending : ask();
    case Stage::asking:
      return look();
    case Stage::over:
      break;
  }
  return end_;
}

NetHandshake::Step NetHandshake::ask() {
  if (user_ == 0) user_ = network_->new_user();
  network_->admit(user_, {mine_.tag, mine_.rights});
  const std::uint64_t now = Clock::steady().now_ns();
  net::Failure why;
  flow_ = network_->engine().connect(host_, name_,
                                     {.user = user_,
                                      .request = request_,
                                      .limits = flow_limits(mine_.options),
                                      .within_ns = std::max<std::uint64_t>(deadline_.left_ns(now), 1)},
                                     why);
  if (flow_ == 0) {
    fault_ = error_of(why).because("connect");
    return over(Step::failed);
  }
  stage_ = Stage::asking;
  return look();
}

NetHandshake::Step NetHandshake::look() {
  net::FlowEvent event;
  while (network_->engine().take_event(flow_, event)) {
    switch (event.kind) {
      case net::FlowEvent::Kind::accepted:
        words_ = std::move(event.bytes);
        peer_ = network_->engine().path(flow_).peer;
        stage_ = Stage::open;
        return Step::done;
      case net::FlowEvent::Kind::refused:
        if (event.reason == net::Reason::not_offered) return again(Step::nobody);
        words_ = std::move(event.bytes);
        return over(Step::refused);
      case net::FlowEvent::Kind::failed:
        if (event.reason == net::Reason::key_differs) {
          fault_ = Error(EACCES, event.text);
          return over(Step::failed);
        }
        fault_ = Error(EHOSTUNREACH, event.text);
        return again(Step::nobody);
      case net::FlowEvent::Kind::closed:
        fault_ = Error(ECONNRESET, event.text);
        return again(Step::timed_out);
      default:
        break;
    }
  }
  return Step::pending;
}

// It may be offered a little later.
NetHandshake::Step NetHandshake::again(Step if_late) {
  let_go();
  const std::uint64_t now = Clock::steady().now_ns();
  if (deadline_.expired(now)) return over(if_late);
  nap_ns_ = nap_ns_ == 0 ? kFirstNapNs : std::min(2 * nap_ns_, kLastNapNs);
  again_at_ = now + nap_ns_;
  stage_ = Stage::between;
  return Step::pending;
}

void NetHandshake::wait(std::uint64_t most_ns) {
  const std::uint64_t now = Clock::steady().now_ns();
  if (stage_ == Stage::between) most_ns = std::min(most_ns, again_at_ > now ? again_at_ - now : 0);
  network_->wait(most_ns);
}

bool NetHandshake::accept(const Terms& mine, std::span<const std::byte> words) {
  mine_ = mine;
  user_ = network_->new_user();
  network_->admit(user_, {mine.tag, mine.rights});
  if (!network_->engine().accept(flow_, user_, flow_limits(mine.options), words)) {
    fault_ = Error(ECONNRESET, "the peer has gone");
    (void)over(Step::failed);
    return false;
  }
  stage_ = Stage::open;
  return true;
}

void NetHandshake::refuse(std::span<const std::byte> words) {
  network_->engine().refuse(std::exchange(flow_, 0), net::Reason::not_wanted, words);
  stage_ = Stage::over;
}

Connection NetHandshake::take() {
  auto channel = std::make_unique<NetChannel>(network_, std::exchange(flow_, 0), user_);
  auto reach = std::make_unique<NetReach>(*channel);
  NetReach* const far = reach.get();
  stage_ = Stage::over;
  return {std::move(channel), std::move(reach), nullptr, far};
}

}  // namespace viaduct::via
