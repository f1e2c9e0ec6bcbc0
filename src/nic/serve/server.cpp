// The server: a thread that accepts users, opens and closes their endpoints, and looks at the MAC's counters now and
// then. Frames pass it by: they are the adapter's processors' business.
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/meeting.hpp"
#include "base/socket_message.hpp"
#include "base/waiter.hpp"
#include "nic/live_adapter.hpp"
#include "nic/serve/protocol.hpp"

namespace viaduct::nic {

namespace {

constexpr std::size_t kMostUsers = EndpointSwitch::kMostEndpoints + 64;  // some have not said yet what they want
constexpr int kLookEveryMs = 250;

struct User {
  Fd socket;
  std::array<std::byte, sizeof(ServeHello)> hello{};
  MessageReader reader;
  Fd bell;
  Port* port = nullptr;
};

class LiveServer final : public Server {
 public:
  static Result<std::unique_ptr<LiveServer>> create(std::string name, Config config, std::unique_ptr<Mac> mac);
  ~LiveServer() override;

  Adapter& adapter() override { return *adapter_; }
  Counters counters() const override {
    return {open_.load(std::memory_order_relaxed), opened_.load(std::memory_order_relaxed),
            refused_.load(std::memory_order_relaxed)};
  }

 private:
  void run();
  void accept_users();
  bool serve(User& user);  // false: it has gone, or has to
  bool open(User& user);
  void answer(const User& user, ServeAnswer& answer, const Error* why);
  void close(User& user);

  std::string name_;
  std::unique_ptr<LiveAdapter> adapter_;
  Fd listener_, stop_;
  std::vector<std::unique_ptr<User>> users_;
  std::atomic<std::uint64_t> open_{0}, opened_{0}, refused_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

Result<std::unique_ptr<LiveServer>> LiveServer::create(std::string name, Config config, std::unique_ptr<Mac> mac) {
  if (config.partition == Partition::inlined)
    return Error(EINVAL, "a server's firmware runs on processors of its own: partition release, parallel or dynamic");
  if (!config.endpoint_at) config.endpoint_at = kServedPlace;
  auto server = std::make_unique<LiveServer>();
  server->name_ = std::move(name);
  // The name first: who comes second must not disturb the interface.
  VIADUCT_TRY(server->listener_, meeting::listen_at(meeting::fit_name(serve_name(server->name_)), 128));
  server->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stop_) return Error::from_errno("make an eventfd");
  VIADUCT_TRY(server->adapter_, LiveAdapter::create(std::move(config), std::move(mac)));
  server->thread_ = std::thread([it = server.get()] { it->run(); });
  return server;
}

LiveServer::~LiveServer() {
  stopping_.store(true);
  if (stop_) wake_eventfd(stop_.get());
  if (thread_.joinable()) thread_.join();
  for (auto& user : users_) close(*user);
}

void LiveServer::run() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), "nic-serve");
  std::vector<pollfd> watched;
  while (!stopping_.load()) {
    watched.assign({{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
    for (const auto& user : users_) watched.push_back({user->socket.get(), POLLIN, 0});
    (void)::poll(watched.data(), watched.size(), kLookEveryMs);
    for (std::size_t i = 0; i < users_.size(); ++i)
      if (watched[2 + i].revents != 0 && !serve(*users_[i])) {
        close(*users_[i]);
        users_[i].reset();
      }
    std::erase(users_, nullptr);
    if ((watched[1].revents & POLLIN) != 0) accept_users();
    adapter_->endpoints()->publish(adapter_->mac());
  }
}

void LiveServer::accept_users() {
  while (auto socket = meeting::accept_at(listener_.get())) {
    if (auto peer = meeting::check_peer(socket->get(), meeting::Peers::by_setting); !peer) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      log::fault(peer.error().because("an endpoint was asked of " + name_).message());
      continue;
    }
    // Whoever has said nothing for longest makes room.
    if (users_.size() >= kMostUsers)
      if (const auto silent = std::ranges::find_if(users_, [](const auto& user) { return user->port == nullptr; });
          silent != users_.end())
        users_.erase(silent);
    auto user = std::make_unique<User>();
    user->socket = std::move(*socket);
    users_.push_back(std::move(user));
  }
}

bool LiveServer::serve(User& user) {
  if (user.port != nullptr) return false;  // nothing more is to be said: it has gone, or does not keep to that
  switch (user.reader.read(user.socket.get(), user.hello)) {
    case MessageReader::Step::pending:
      return true;
    case MessageReader::Step::whole:
      return open(user);
    default:
      return false;
  }
}

void LiveServer::answer(const User& user, ServeAnswer& answer, const Error* why) {
  answer.magic = kServeMagic, answer.version = kServeVersion;
  if (why != nullptr) {
    answer.fault = why->code() != 0 ? why->code() : EPROTO;
    std::strncpy(answer.message, why->message().c_str(), sizeof answer.message - 1);
    refused_.fetch_add(1, std::memory_order_relaxed);
  }
  const auto bytes = std::as_bytes(std::span(&answer, 1));
  (void)send_part(user.socket.get(), bytes, {}, MSG_DONTWAIT);
}

bool LiveServer::open(User& user) {
  ServeHello hello;
  std::memcpy(&hello, user.hello.data(), sizeof hello);
  ServeAnswer said{};
  const auto refuse = [&](const Error& why) {
    answer(user, said, &why);
    return false;
  };
  if (hello.magic != kServeMagic || hello.version != kServeVersion)
    return refuse(
        Error(EPROTO, fmt::format("the server speaks version {}, its user {}", kServeVersion, hello.version)));
  auto bell = make_socket_pair(SOCK_STREAM);
  if (!bell) return refuse(bell.error());
  Port::Opening opening{.bell = bell->first.get(), .is_socket = true};
  const EndpointOptions options{.id = hello.id,
                                .queue = hello.queue,
                                .core = hello.core,
                                .hold_limit = hello.hold_limit,
                                .send_ring = hello.send_ring,
                                .listens = hello.listens != 0,
                                .message_end = {.offset = hello.end_offset, .mask = hello.end_mask}};
  int memory = -1;
  auto port = adapter_->open_port(options, opening, &memory);
  if (!port) return refuse(port.error());
  user.port = *port;
  user.bell = std::move(bell->first);
  adapter_->doorbells().add(user.bell.get());
  open_.fetch_add(1, std::memory_order_relaxed), opened_.fetch_add(1, std::memory_order_relaxed);

  const Mac& mac = adapter_->mac();
  const Capabilities can = mac.capabilities();
  const MacAddress address = mac.address();
  said.magic = kServeMagic, said.version = kServeVersion;
  said.buffers = options.hold_limit, said.sends = options.send_ring, said.max_frame = mac.max_frame();
  said.core = adapter_->core_of(opening.id), said.id = opening.id;
  std::copy(address.begin(), address.end(), said.address);
  said.segments = can.segments, said.longest_now = can.max_frame;
  said.gathered_arrivals = can.gathered_arrivals, said.checked_arrivals = can.checked_arrivals;
  said.congestion_marks = can.congestion_marks, said.probes_path_mtu = can.probes_path_mtu;
  std::strncpy(said.mac, mac.name().c_str(), sizeof said.mac - 1);
  const int fds[] = {memory, bell->second.get()};
  const auto bytes = std::as_bytes(std::span(&said, 1));
  return send_part(user.socket.get(), bytes, fds, MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

void LiveServer::close(User& user) {
  if (user.port == nullptr) return;
  adapter_->endpoints()->close(*user.port);
  open_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

std::unique_ptr<Server> Server::create(std::string name, Config config, std::unique_ptr<Mac> mac, Failure& why) {
  const std::string what = "serve the endpoints of " + mac->name() + " as " + name;
  auto server = LiveServer::create(std::move(name), std::move(config), std::move(mac));
  if (server) return std::move(*server);
  const Error error = server.error().because(what);
  why = {std::error_code(error.code(), std::generic_category()), error.message()};
  return nullptr;
}

}  // namespace viaduct::nic
