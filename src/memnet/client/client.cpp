// Opening, lines, descriptors and memory.
#include "memnet/client/client.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "base/config.hpp"
#include "base/log.hpp"

namespace viaduct::memnet {

namespace {

constexpr std::uint32_t kMostLines = 64;  // as many workers are used
constexpr std::uint64_t kLookForServerNs = 100'000'000;
constexpr std::uint64_t kPatienceNs = 5'000'000'000;
constexpr int kMostDescriptors = 1 << 20;

std::atomic<Client*> the_client{nullptr};
std::mutex open_mutex;

void before_fork() {
  open_mutex.lock();
}
void in_parent() {
  open_mutex.unlock();
}
// The child's own copy is left alone: its locks may be held for ever. The parent's lines end with the parent.
void in_child() {
  if (Client* const client = the_client.exchange(nullptr)) client->close_descriptors_in_child();
  open_mutex.unlock();
}

std::string program_name() {
  char path[256] = "";
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string whole(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return whole.substr(whole.find_last_of('/') + 1);
}

Client* open_client(const std::string& server) {
  static const int hooked = ::pthread_atfork(before_fork, in_parent, in_child);
  (void)hooked;
  const std::lock_guard lock(open_mutex);
  if (Client* const client = the_client.load()) return client;
  auto opened = Client::open(server);
  if (!opened) {
    log::notice(opened.error().because("memnet").message());
    errno = opened.error().code();
    return nullptr;
  }
  the_client = opened->release();
  return the_client;
}

}  // namespace

Client* process_client_if_any() {
  return the_client.load(std::memory_order_acquire);
}

Client* process_client() {
  if (Client* const client = process_client_if_any()) return client;
  return open_client(std::string(Config::process().text("VIADUCT_MEMNET_SERVER")));
}

// ---- opening

Result<std::unique_ptr<Client>> Client::open(const std::string& server) {
  std::unique_ptr<Client> client(new Client);
  VIADUCT_CHECK(client->start(server));
  return client;
}

Status Client::start(const std::string& server) {
  server_ = server;
  std::uint64_t random[2];
  if (::getrandom(random, sizeof random, 0) != sizeof random) return Error::from_errno("memnet");
  number_ = random[0];
  tag_ = (random[1] >> 4) | 1;
  VIADUCT_TRY(port_, via::Port::open(meeting::Peers::by_setting, Config::process().flag("VIADUCT_COPY_CMA")));
  std::error_code fault = leadership_.start();
  if (!fault) ready_ = via::ReadyQueue::make(kMostLines + 1, fault);
  if (!fault) fault = ready_->add(leadership_.alarm(), 0);
  if (fault) return Error(fault.value(), "ready queue: " + fault.message());
  if (const int error = connect_lines(); error != 0)
    return Error::from_code(error, fmt::format("the TCP server '{}'", server_));
  return {};
}

Client::~Client() {
  ready_.reset();
}

Result<std::unique_ptr<ClientLine>> Client::connect(std::uint32_t worker, std::uint32_t& workers) {
  const ServerPlace where = parse_server(server_);
  const bool any = meeting::any_user_may(meeting::Peers::by_setting);
  const via::Place place{where.host, meeting_name(where.name, any), network_name(where.name)};
  const auto slot = static_cast<std::uint32_t>(lines_.size());
  if (slot >= via::kMostConnections) return Error(EMFILE, "memnet: the server was connected to too often");
  Hello hello;
  hello.worker = worker;
  hello.client = number_;
  program_name().copy(hello.program, sizeof hello.program - 1);
  std::atomic<std::uint32_t>& word = port_->registrations().view().words(slot).connection;
  word.store(1, std::memory_order_release);
  const via::Terms terms{.slot = slot, .number = 1, .tag = tag_, .rights = via::kRdmaRead | via::kRdmaWrite};
  const Clock& clock = Clock::steady();
  const std::uint64_t began = clock.now_ns();
  auto joining = port_->join(place, terms, std::as_bytes(std::span(&hello, 1)), Deadline::at_ns(began + kPatienceNs));
  if (!joining) return joining.error();
  via::Handshake& handshake = **joining;
  const auto too_long = [&] {
    return handshake.found_nobody_yet() && clock.now_ns() - began > kLookForServerNs && where.host.empty();
  };
  const auto step = handshake.run(Deadline::at_ns(began + kPatienceNs), too_long);
  Welcome welcome;
  if (handshake.words().size() == sizeof welcome) std::memcpy(&welcome, handshake.words().data(), sizeof welcome);
  switch (step) {
    case via::Handshake::Step::done:
      break;
    case via::Handshake::Step::refused:
      return Error(welcome.error > 0 ? welcome.error : ECONNREFUSED, "the server refuses");
    case via::Handshake::Step::failed:
      return handshake.fault();
    case via::Handshake::Step::timed_out:
      return Error(ETIMEDOUT, "the server does not answer");
    default:
      return Error(ECONNREFUSED, "no such server runs");
  }
  if (welcome.magic != kMagic || welcome.version != kVersion) return Error(EPROTO, "the server speaks another version");
  workers = std::clamp(welcome.workers, 1u, kMostLines);
  via::Connection connection = handshake.take();
  if (connection.channel == nullptr) return Error(ENOMEM, "memnet: no channel");
  return std::make_unique<ClientLine>(*this, std::move(connection), slot);
}

// One to each worker. Those that are rejected are done without, unless all are.
int Client::connect_lines() {
  std::uint32_t workers = 1;
  int error = ECONNREFUSED;
  bool any = false;
  for (std::uint32_t worker = 1; worker <= workers; ++worker) {
    auto line = connect(worker, workers);
    if (!line) {
      const int why = line.error().code();
      if (why != EINVAL || error != EBUSY) error = why;
      log::detail(line.error().because("memnet").message());
      if (why != EBUSY) break;
      if (worker == 1) workers = kMostLines;  // others may have room; the first that is not there ends it
      continue;
    }
    leadership_.lead();
    std::error_code fault;
    {
      const std::lock_guard held(lock);
      lines_.push_back(std::move(*line));
      fault = ready_->add(lines_.back()->channel(), lines_.size());
    }
    leadership_.stop();
    if (!fault) any = true;
    if (lines_.back()->far()) break;  // they are all with one worker
  }
  return any ? 0 : error;
}

int Client::ensure_line() {
  {
    const std::lock_guard held(lock);
    if (line_for_new_socket() != nullptr) return 0;
  }
  const std::lock_guard one(connect_mutex_);
  {
    const std::lock_guard held(lock);
    if (line_for_new_socket() != nullptr) return 0;
  }
  return connect_lines();
}

ClientLine* Client::line_for_new_socket() {
  ClientLine* best = nullptr;
  for (const auto& line : lines_)
    if (!line->over() && (best == nullptr || line->sockets() < best->sockets())) best = line.get();
  return best;
}

void Client::close_descriptors_in_child() {
  for (const auto& line : lines_)
    if (!line->over() && line->channel().shared() != nullptr) ::close(line->channel().shared()->descriptor());
}

// ---- descriptors

int Client::give_descriptor(const std::shared_ptr<ClientSocket>& socket) {
  if (free_descriptors_.empty()) {
    if (sockets_.size() >= kMostDescriptors) return -1;
    free_descriptors_.push_back(static_cast<int>(sockets_.size()));
    sockets_.emplace_back();
  }
  socket->descriptor = free_descriptors_.back();
  free_descriptors_.pop_back();
  sockets_[static_cast<std::size_t>(socket->descriptor)] = socket;
  return socket->descriptor;
}

void Client::take_descriptor(ClientSocket& socket) {
  if (socket.descriptor < 0) return;
  const int descriptor = std::exchange(socket.descriptor, -1);
  free_descriptors_.push_back(descriptor);
  sockets_[static_cast<std::size_t>(descriptor)].reset();  // the caller holds it
}

// ---- memory

Client::Memory* Client::find_memory(memnet_mem_t memory) {
  const auto place = static_cast<std::uint32_t>(memory);
  if (place == 0 || place > memory_.size()) return nullptr;
  Memory& found = memory_[place - 1];
  return found.key != 0 && found.uses == memory >> 32 ? &found : nullptr;
}

int Client::register_memory(void* buffer, std::size_t length, memnet_mem_t& memory) {
  if (buffer == nullptr || length == 0) return EINVAL;
  const via::MemoryKey key = port_->registrations().add(buffer, length, tag_, via::kRdmaRead | via::kRdmaWrite);
  if (key == 0) return ENOMEM;
  const std::lock_guard held(lock);
  if (free_memory_.empty()) {
    memory_.emplace_back();
    free_memory_.push_back(static_cast<std::uint32_t>(memory_.size()));
  }
  const std::uint32_t place = free_memory_.back();
  free_memory_.pop_back();
  Memory& made = memory_[place - 1];
  made = {static_cast<std::byte*>(buffer), length, key, 0, made.uses + 1};
  memory = std::uint64_t{made.uses} << 32 | place;
  return 0;
}

// No job uses it, so the server does not touch it any more: it tells a job's end when it is done with the memory.
int Client::deregister_memory(memnet_mem_t memory) {
  via::MemoryKey key;
  const void* address;
  {
    const std::lock_guard held(lock);
    Memory* const found = find_memory(memory);
    if (found == nullptr) return EINVAL;
    if (found->users > 0) return EBUSY;
    key = std::exchange(found->key, 0);
    address = found->address;
    free_memory_.push_back(static_cast<std::uint32_t>(memory));
  }
  (void)port_->registrations().remove(key, address);
  port_->settle();
  return 0;
}

int shut_process_client() {
  const std::lock_guard lock(open_mutex);
  delete the_client.exchange(nullptr);
  return 0;
}

bool open_process_client(const char* server) {
  const std::string name = server != nullptr ? server : std::string(Config::process().text("VIADUCT_MEMNET_SERVER"));
  return open_client(name) != nullptr;
}

}  // namespace viaduct::memnet
