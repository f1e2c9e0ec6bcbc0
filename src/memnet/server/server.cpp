#include "memnet/server/server.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/config.hpp"
#include "base/log.hpp"

namespace viaduct::memnet {

namespace {

constexpr std::uint64_t kPatienceNs = 2'000'000'000;  // for a client to confirm what it has asked for
constexpr std::uint64_t kGlanceNs = 500'000;          // between looks at clients that are about to confirm
constexpr via::ChannelOptions kLine{.bulk_bytes = std::size_t{512} << 10, .slots = 1024};

// A socket of a client is a descriptor here: as many as the hard limit allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<std::unique_ptr<Server>> Server::open(ServerOptions options) {
  std::unique_ptr<Server> server(new Server(std::move(options)));
  const ServerOptions& how = server->options_;
  raise_descriptor_limit();
  if (::getrandom(&server->number_, sizeof server->number_, 0) != sizeof server->number_)
    return Error::from_errno("tcp-server");
  VIADUCT_TRY(server->port_, via::Port::open(meeting::Peers::by_setting, Config::process().flag("VIADUCT_COPY_CMA")));
  for (unsigned i = 0; i < std::max(1u, how.workers); ++i) {
    const int processor = how.processors.empty() ? -1 : how.processors[i % how.processors.size()];
    VIADUCT_TRY(auto worker,
                Worker::make({.number = i + 1, .processor = processor, .most_sockets = how.most_sockets}, how.policy,
                             [&server = *server](std::uint32_t slot) { server.free_slot(slot); }));
    server->workers_.push_back(std::move(worker));
  }
  const bool any = meeting::any_user_may(meeting::Peers::by_setting);
  if (any && how.policy.empty()) log::notice("tcp-server: any user may use any address; --policy or --allow says less");
  const via::Place place{"", meeting_name(how.name, any), how.on_network ? network_name(how.name) : ""};
  auto listener = server->port_->listener(place);
  if (!listener && listener.error().code() == EADDRINUSE)
    return Error(EADDRINUSE,
                 fmt::format("a tcp-server '{}' runs already; --name gives this one another name", how.name));
  if (!listener) return listener.error().because("tcp-server");
  server->listener_ = std::move(*listener);
  for (auto& worker : server->workers_) worker->start();
  return server;
}

Server::~Server() {
  stop();
}

void Server::stop() {
  meetings_.clear();
  if (listener_ != nullptr) port_->forget_listeners();
  listener_.reset();
  for (auto& worker : workers_) worker->stop();
}

std::size_t Server::lines() const {
  std::size_t sum = 0;
  for (const auto& worker : workers_) sum += worker->lines();
  return sum;
}

std::size_t Server::sockets() const {
  std::size_t sum = 0;
  for (const auto& worker : workers_) sum += worker->sockets();
  return sum;
}

std::uint32_t Server::take_slot() {
  const std::lock_guard lock(slots_mutex_);
  if (free_slots_.empty()) return next_slot_ < via::kMostConnections ? next_slot_++ : via::kMostConnections;
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void Server::free_slot(std::uint32_t slot) {
  const std::lock_guard lock(slots_mutex_);
  free_slots_.push_back(slot);
}

// 0, or why not. The client may want a worker; else it gets the one with most room. Lines of other hosts are all with
// one worker, which looks at the network.
int Server::choose(const Hello& hello, bool far, std::size_t& worker) const {
  if (hello.magic != kMagic || hello.version != kVersion) return EPROTO;
  if (hello.worker > workers_.size()) return EINVAL;
  worker = 0;
  if (!far && hello.worker != 0) {
    worker = hello.worker - 1;
  } else if (!far) {
    for (std::size_t i = 1; i < workers_.size(); ++i)
      if (workers_[i]->busy() + workers_[i]->lines() < workers_[worker]->busy() + workers_[worker]->lines()) worker = i;
  }
  const Worker& chosen = *workers_[worker];
  const auto coming = static_cast<std::size_t>(
      std::count_if(meetings_.begin(), meetings_.end(), [&](const Meeting& one) { return one.worker == worker; }));
  if (chosen.lines() + coming >= options_.most_lines || chosen.busy() > options_.busy_permille) return EBUSY;
  return 0;
}

void Server::meet(std::unique_ptr<via::Handshake> handshake) {
  Meeting meeting;
  Welcome welcome;
  welcome.workers = static_cast<std::uint32_t>(workers_.size());
  welcome.server = number_;
  const auto bytes = std::as_bytes(std::span(&welcome, 1));
  if (handshake->words().size() != sizeof(Hello)) {
    welcome.error = EPROTO;
    return handshake->refuse(bytes);
  }
  std::memcpy(&meeting.hello, handshake->words().data(), sizeof(Hello));
  meeting.far = dynamic_cast<via::ShmHandshake*>(handshake.get()) == nullptr;
  welcome.error = choose(meeting.hello, meeting.far, meeting.worker);
  welcome.worker = static_cast<std::uint32_t>(meeting.worker) + 1;
  if (welcome.error != 0) {
    static Counter rejected = counter("memnet.rejected");
    rejected.add();
    return handshake->refuse(bytes);
  }
  meeting.slot = take_slot();
  if (meeting.slot >= via::kMostConnections) {
    welcome.error = EBUSY;
    return handshake->refuse(bytes);
  }
  // Nothing of this side's memory is for clients.
  const via::Terms terms{.slot = meeting.slot, .number = 1, .tag = UINT64_MAX >> 3, .rights = 0, .options = kLine};
  if (!handshake->accept(terms, bytes)) return free_slot(meeting.slot);
  meeting.handshake = std::move(handshake);
  meeting.began_ns = Clock::steady().now_ns();
  meetings_.push_back(std::move(meeting));
}

// False: it is over, one way or the other.
bool Server::go_on(Meeting& meeting) {
  switch (meeting.handshake->advance()) {
    case via::Handshake::Step::pending:
      if (Clock::steady().now_ns() - meeting.began_ns < kPatienceNs) return true;
      break;
    case via::Handshake::Step::done: {
      via::Connection connection = meeting.handshake->take();
      if (connection.channel == nullptr) break;
      const std::string peer = meeting.handshake->peer();
      workers_[meeting.worker]->give(std::make_unique<Line>(std::move(connection), meeting.slot, meeting.hello, peer));
      static Counter made = counter("memnet.clients");
      made.add();
      return false;
    }
    default:
      break;
  }
  free_slot(meeting.slot);
  return false;
}

void Server::turn(std::uint64_t most_ns) {
  const std::uint64_t wait = meetings_.empty() ? most_ns : std::min(most_ns, kGlanceNs);
  if (auto handshake = listener_->next(Deadline::after_ns(Clock::steady(), wait))) meet(std::move(handshake));
  std::erase_if(meetings_, [this](Meeting& one) { return !go_on(one); });
}

void Server::run(const std::function<bool()>& stopped, std::uint64_t slice_ns) {
  while (!stopped()) turn(slice_ns);
}

}  // namespace viaduct::memnet
