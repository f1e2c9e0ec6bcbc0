// Partners and the connections to them: made when they are first needed, gone when the partner is.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/counters.hpp"
#include "base/log.hpp"
#include "mx/boards.hpp"
#include "mx/core.hpp"
#include "mx/places.hpp"
#include "via/port/children.hpp"

namespace viaduct::mx {

using Step = via::Handshake::Step;

namespace {

// Another host: what is said while nobody is there is lost, and said again at growing distances.
constexpr std::uint64_t kAskOnceNs = 500'000'000;
constexpr std::uint64_t kAskAgainNs = 20'000'000;
constexpr std::uint64_t kAnswerNs = 5'000'000'000;  // a peer that was accepted joins at once

std::span<const std::byte> bytes_of(const Hello& hello) {
  return std::as_bytes(std::span(&hello, 1));
}

bool read_hello(std::span<const std::byte> words, Hello& hello) {
  if (words.size() != sizeof hello) return false;
  std::memcpy(&hello, words.data(), sizeof hello);
  return hello.magic == kHelloMagic;
}

bool is_possible(const Hello& hello) {
  return is_nic(hello.nic) && hello.endpoint < kMostEndpoints && hello.session != 0;
}

bool nobody_wants(const Partner& partner) {
  return partner.requests.empty() && partner.controls.empty();
}

Status status_of(via::CloseReason why) {
  switch (why) {
    case via::CloseReason::peer_finished:
    case via::CloseReason::closed_here:
      return Status::endpoint_closed;
    default:
      return Status::endpoint_unreachable;
  }
}

}  // namespace

// ---- partners

Partner* Core::add_partner(const Name& name) {
  auto made = std::make_unique<Partner>();
  made->core = this;
  made->name = name;
  made->index = static_cast<std::uint32_t>(partners_.size());
  made->handle = register_partner(made.get());
  if (made->handle == 0) return nullptr;
  if (statistics_ != nullptr) made->shown = statistics_->new_partner(name.nic, name.endpoint);
  Partner* const partner = made.get();
  partners_.push_back(std::move(made));
  by_name_[name] = partner;
  return partner;
}

Partner* Core::partner(const Name& name, std::uint32_t key) {
  const Guard guard(*this);
  const auto found = by_name_.find(name);
  Partner* const partner = found != by_name_.end() ? found->second : add_partner(name);
  if (partner != nullptr && key != 0) partner->key = key;
  return partner;
}

bool Core::is_connected(const Partner* partner) const {
  const Guard guard(*this);
  return partner->is_self || (partner->out != nullptr && !partner->out->over);
}

bool Core::is_local(const Partner* partner) const {
  const Guard guard(*this);
  return partner->is_self || (partner->out != nullptr && partner->out->is_local());
}

Request* Core::connect(Partner* partner, std::uint32_t key, std::uint64_t match, void* context,
                       std::uint64_t within_ns) {
  const Guard guard(*this);
  Request* const request = new_request(Completion::Kind::connect, partner, context);
  if (request == nullptr) return nullptr;
  request->match = request->finished_match = match;
  request->stage = Request::Stage::connecting;
  partner->key = key;
  if (partner->is_self) {
    finish(*request, key == key_ ? Status::success : Status::bad_key);
    return request;
  }
  if (partner->out != nullptr && !partner->out->over) {
    finish(*request, Status::success);
    return request;
  }
  partner->requests.append(*request);
  const std::uint64_t now = Clock::steady().now_ns();
  const std::uint64_t until = within_ns > UINT64_MAX - 1 - now ? UINT64_MAX : now + within_ns;
  if (until != UINT64_MAX) give_time(*request, until);
  begin_to_connect(*partner, until);
  return request;
}

void Core::begin_to_connect(Partner& partner, std::uint64_t until) {
  partner.connect_until = std::max(partner.connect_until, until);
  tell_leader_ = true;
  if (partner.handshake != nullptr || (partner.out != nullptr && !partner.out->over)) return;
  if (std::find(connecting_.begin(), connecting_.end(), &partner) == connecting_.end()) connecting_.push_back(&partner);
}

via::Terms Core::terms(std::uint32_t slot) const {
  return {slot, 1, kConnectionTag, via::kRdmaRead | via::kRdmaWrite, channel_options()};
}

// Few partners have much room each.
via::ChannelOptions Core::channel_options() const {
  if (link_count_ < 16) return {.bulk_bytes = std::size_t{256} << 10, .slots = 256};
  if (link_count_ < 64) return {.bulk_bytes = std::size_t{128} << 10, .slots = 128};
  return {.bulk_bytes = std::size_t{64} << 10, .slots = 64};
}

std::uint32_t Core::take_slot() {
  if (!free_slots_.empty()) {
    const std::uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  return slots_used_ < via::kMostConnections ? slots_used_++ : UINT32_MAX;
}

void Core::give_slot(std::uint32_t slot) {
  free_slots_.push_back(slot);
}

// ---- we ask

void Core::advance_connecting() {
  if (connecting_.empty()) [[likely]]
    return;
  const std::uint64_t now = Clock::steady().now_ns();
  const std::vector<Partner*> all = connecting_;
  for (Partner* const partner : all) {
    if (partner->out != nullptr && !partner->out->over && partner->handshake == nullptr) {  // it was quicker
      std::erase(connecting_, partner);
      continue;
    }
    if (partner->handshake == nullptr && now < partner->ask_again_at) {
      if (now >= partner->connect_until || nobody_wants(*partner))
        connecting_failed(*partner, Status::endpoint_unreachable);
      continue;
    }
    if (partner->handshake == nullptr) {
      partner->handshake_slot = take_slot();
      if (partner->handshake_slot == UINT32_MAX) {
        connecting_failed(*partner, Status::no_resources);
        continue;
      }
      const Hello hello{kHelloMagic, kHelloVersion, name_.nic, name_.endpoint, session_, partner->key, 0};
      const via::Place place = place_of(family_, partner->name);
      const bool far = !place.host.empty() && !net::Engine::is_this_host(place.host);
      const Deadline deadline = far ? Deadline::at_ns(now + kAskOnceNs) : Deadline::never();
      auto joining = port_->join(place, terms(partner->handshake_slot), bytes_of(hello), deadline);
      if (!joining) {
        log::fault(joining.error().because("mx: connect").message());
        give_slot(partner->handshake_slot);
        connecting_failed(*partner, Status::endpoint_unreachable);
        continue;
      }
      partner->handshake = std::move(*joining);
    }
    const Step step = partner->handshake->advance();
    if (step != Step::pending) {
      end_of_handshake(*partner, step);
    } else if (now >= partner->connect_until || nobody_wants(*partner)) {
      const bool nobody = partner->handshake->found_nobody_yet();
      partner->handshake.reset();
      give_slot(partner->handshake_slot);
      connecting_failed(*partner, nobody ? Status::endpoint_closed : Status::endpoint_unreachable);
    }
  }
}

void Core::end_of_handshake(Partner& partner, Step step) {
  const std::unique_ptr<via::Handshake> handshake = std::move(partner.handshake);
  const std::uint32_t slot = partner.handshake_slot;
  std::erase(connecting_, &partner);
  Hello hello{};
  const bool understood = read_hello(handshake->words(), hello);
  if (step == Step::done && understood && is_possible(hello)) {
    via::Connection connection = handshake->take();
    if (connection.channel != nullptr) return adopt(partner, std::move(connection), slot, hello.session);
  }
  give_slot(slot);
  if (step == Step::refused && understood && hello.refused != 0 && hello.refused <= 16) {
    if (hello.version != kHelloVersion)
      log::fault(fmt::format("mx: {} speaks another version; update the older side", handshake->peer()));
    if (hello.refused == static_cast<std::uint32_t>(Status::pending)) {  // it is asking us
      partner.ask_again_at = Clock::steady().now_ns() + kAskAgainNs;
      connecting_.push_back(&partner);
      return;
    }
    return connecting_failed(partner, static_cast<Status>(hello.refused));
  }
  const std::uint64_t now = Clock::steady().now_ns();
  const bool is_far = dynamic_cast<const via::ShmHandshake*>(handshake.get()) == nullptr;
  if (is_far && (step == Step::nobody || step == Step::timed_out) && now < partner.connect_until) {
    partner.ask_again_at = now + kAskAgainNs;
    connecting_.push_back(&partner);
    return;
  }
  if (step == Step::failed || step == Step::done) log::fault(handshake->fault().because("mx: connect").message());
  connecting_failed(partner, step == Step::nobody ? Status::endpoint_closed : Status::endpoint_unreachable);
}

void Core::connecting_failed(Partner& partner, Status why) {
  std::erase(connecting_, &partner);
  partner.connect_until = 0;
  if (partner.out != nullptr && !partner.out->over) return;  // it has connected to us meanwhile
  partner_gone(partner, why);
}

// ---- others ask

void Core::answer_the_door() {
  if (!std::exchange(somebody_knocks_, false)) [[likely]]
    return;
  while (auto handshake = listener_->take_one_that_spoke()) answer(std::move(handshake));
  if (listener_->descriptors().size() > 1) somebody_knocks_ = true;  // who has not spoken yet
}

void Core::answer(std::unique_ptr<via::Handshake> handshake) {
  Hello hello{};
  Hello reply{kHelloMagic, kHelloVersion, name_.nic, name_.endpoint, session_, 0, 0};
  const auto refuse = [&](Status why) {
    reply.refused = static_cast<std::uint32_t>(why);
    handshake->refuse(bytes_of(reply));
  };
  if (!read_hello(handshake->words(), hello)) return refuse(Status::rejected);
  if (hello.version != kHelloVersion) {
    log::fault(fmt::format("mx: {} speaks another version; update the older side", handshake->peer()));
    return refuse(Status::rejected);
  }
  if (!is_possible(hello)) return refuse(Status::rejected);
  if (hello.key != key_) return refuse(Status::bad_key);
  Partner* const from = partner({hello.nic, hello.endpoint}, 0);
  if (from == nullptr || from->is_self) return refuse(Status::no_resources);
  // Both ask at the same time: one connection is enough, that of whose name is less. Between hosts nobody knows whether
  // what this side asks has come there.
  const auto* const ours = dynamic_cast<const via::ShmHandshake*>(from->handshake.get());
  const bool both_ask = ours != nullptr && !ours->found_nobody_yet();
  if (both_ask && std::pair(name_.nic, name_.endpoint) < std::pair(from->name.nic, from->name.endpoint))
    return refuse(Status::pending);
  const std::uint32_t slot = take_slot();
  if (slot == UINT32_MAX) return refuse(Status::no_resources);
  if (!handshake->accept(terms(slot), bytes_of(reply))) return give_slot(slot);
  const std::uint64_t until = Clock::steady().now_ns() + kAnswerNs;
  answered_.push_back({std::move(handshake), from, slot, hello.session, until});
}

void Core::advance_answered() {
  if (answered_.empty()) [[likely]]
    return;
  const std::uint64_t now = Clock::steady().now_ns();
  for (std::size_t i = 0; i < answered_.size();) {
    const Step step = answered_[i].handshake->advance();
    if (step == Step::pending && now < answered_[i].until) {
      ++i;
      continue;
    }
    const Answered one = std::move(answered_[i]);
    answered_.erase(answered_.begin() + static_cast<std::ptrdiff_t>(i));
    via::Connection connection;
    if (step == Step::done) connection = one.handshake->take();
    if (connection.channel != nullptr)
      adopt(*one.partner, std::move(connection), one.slot, one.session);
    else
      give_slot(one.slot);
  }
}

// ---- connections

void Core::adopt(Partner& partner, via::Connection connection, std::uint32_t slot, std::uint32_t session) {
  if (!partner.links.empty() && partner.session != session) partner_gone(partner, Status::bad_session);  // it restarted
  partner.session = session;
  auto made = std::make_unique<Link>();
  Link& link = *made;
  link.partner = &partner;
  link.connection = std::move(connection);
  link.slot = slot;
  port_->registrations().view().words(slot).wants_room.store(0, std::memory_order_relaxed);
  if (link.is_local()) via::close_in_children(link.channel().shared()->descriptor());
  partner.links.push_back(std::move(made));
  ++link_count_;
  make_room_for_descriptors(link_count_);
  attend(link);
  look_again_at(link);
  static Counter made_count = counter("mx.connections");
  made_count.add();
  if (partner.out != nullptr && !partner.out->over) return;
  partner.out = &link;
  if (partner.shown != nullptr)
    Statistics::show(*partner.shown, link.is_local() ? Statistics::Way::memory : Statistics::Way::network);
  for (Request *one = partner.requests.first(), *next = nullptr; one != nullptr; one = next) {
    next = decltype(partner.requests)::next(*one);
    if (one->stage == Request::Stage::connecting) finish(*one, Status::success);
  }
  run_line(partner);
  run_getters(partner);
}

void Core::attend(Link& link) {
  if (link.attended) return;
  if (const std::error_code fault = ready_->add(link.channel(), reinterpret_cast<std::uint64_t>(&link)); fault) {
    log::fault("mx: the ready queue: " + fault.message());
    link.failed = true;
    return;
  }
  link.attended = true;
}

void Core::leave_alone(Link& link) {
  if (link.attended) ready_->remove(link.channel());
  link.attended = false;
}

// Nothing will come from it any more. When that is so of all connections of the partner, it has gone: what it sent by
// another before is received first.
void Core::link_ended(Link& link) {
  link.over = true;
  link.why = link.channel().close_reason();
  leave_alone(link);
  Partner& partner = *link.partner;
  if (!link.failed)
    for (const auto& other : partner.links)
      if (!other->over) return;
  partner_gone(partner, link.failed ? Status::endpoint_unreachable : status_of(link.why));
}

void Core::link_broke(Link& link, const char* why) {
  log::fault(fmt::format("mx: endpoint {} at {} {}: it is cut off", link.partner->name.endpoint,
                         address_text(link.partner->name.nic), why));
  link.failed = true;
  link_ended(link);
}

// By whoever leads.
void Core::drop_links(Partner& partner) {
  set_blocked(partner, false);
  partner.out = nullptr;
  if (partner.shown != nullptr && !partner.is_self) Statistics::show(*partner.shown, Statistics::Way::none);
  partner.in_the_middle = false;
  partner.controls.clear();
  partner.getters.clear();
  std::vector<std::unique_ptr<Link>> links;
  links.swap(partner.links);
  for (const auto& link : links) {
    leave_alone(*link);
    std::erase(leftovers_, link.get());
    std::erase(stalled_, link.get());
    if (link->is_local()) via::keep_in_children(link->channel().shared()->descriptor());
    link->connection.reach.reset();
    give_slot(link->slot);
    --link_count_;
    ++links_dropped_;
  }
}

void Core::partner_gone(Partner& partner, Status why) {
  for (const auto& link : partner.links) link->connection.reach->give_up();
  for (Message *one = partner.messages.first(), *next = nullptr; one != nullptr; one = next) {
    next = decltype(partner.messages)::next(*one);
    if (one->claimed) {
      one->lost = why;
      partner.messages.remove(*one);
    } else {
      forget_room(*one);
      free_message(*one);
    }
  }
  while (Request* const request = partner.requests.first()) {
    if (Chain<Request, &Request::in_line>::holds(*request)) partner.line.remove(*request);
    finish(*request, why);
  }
  // Receives that only it could have matched.
  for (Posted *one = matcher_.posted().first(), *next = nullptr; one != nullptr; one = next) {
    next = Matcher::PostedLine::next(*one);
    if (one->from != &partner) continue;
    matcher_.withdraw(*one);
    auto& request = static_cast<Request&>(*one);
    request.partner = &partner;
    finish(request, why);
  }
  const bool was_there = !partner.links.empty();
  drop_links(partner);
  if (was_there && events_ != nullptr) events_->partner_gone(&partner, why);
}

void Core::disconnect(Partner* partner) {
  if (partner->is_self) return;
  leadership_.lead();
  {
    const Guard guard(*this);
    if (partner->handshake != nullptr) {
      partner->handshake.reset();
      give_slot(partner->handshake_slot);
    }
    std::erase(connecting_, partner);
    partner_gone(*partner, Status::endpoint_closed);
  }
  leadership_.stop();
}

// Many partners need more descriptors than the limit that programs start with; the hard limit allows them.
void make_room_for_descriptors(std::size_t things) {
  constexpr std::size_t kDescriptorsEach = 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || things * kDescriptorsEach < limit.rlim_cur / 2) return;
  if (limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0)
    log::notice(fmt::format("raised the limit of open files to {}", limit.rlim_cur));
}

}  // namespace viaduct::mx
