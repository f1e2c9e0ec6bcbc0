#include "memnet/server/worker.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/waiter.hpp"

namespace viaduct::memnet {

namespace {

constexpr std::uint32_t kMostLines = 4096;
constexpr std::size_t kMostLingering = 4096;  // sockets of nobody that still send; beyond, the oldest is cut off
constexpr int kEventsAtOnce = 64;
constexpr int kYields = 12;
constexpr std::size_t kBuffer = 64 << 10;
constexpr std::uint64_t kLoadWindowNs = 100'000'000;
// In an event instead of a socket.
char of_lines, of_inbox;

std::string name_of(unsigned worker, const char* what) {
  return fmt::format("memnet.worker{}_{}", worker, what);
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::make(const WorkerOptions& options, const Policy& policy,
                                             std::function<void(std::uint32_t)> slot_is_free) {
  std::unique_ptr<Worker> worker(new Worker(options, policy, std::move(slot_is_free)));
  worker->epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  worker->bell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!worker->epoll_ || !worker->bell_) return Error::from_errno("a worker");
  std::error_code fault;
  worker->ready_ = via::ReadyQueue::make(kMostLines, fault);
  if (fault) return Error(fault.value(), "a worker's ready queue: " + fault.message());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &of_lines;
  bool added = ::epoll_ctl(worker->epoll_.get(), EPOLL_CTL_ADD, worker->ready_->descriptor(), &event) == 0;
  event.data.ptr = &of_inbox;
  added = added && ::epoll_ctl(worker->epoll_.get(), EPOLL_CTL_ADD, worker->bell_.get(), &event) == 0;
  if (!added) return Error::from_errno("a worker's descriptors");
  return worker;
}

Worker::Worker(const WorkerOptions& options, const Policy& policy, std::function<void(std::uint32_t)> slot_is_free)
    : options_(options),
      policy_(policy),
      slot_is_free_(std::move(slot_is_free)),
      counts_{counter("memnet.accepted"),  counter("memnet.connected"), counter("memnet.bytes_in"),
              counter("memnet.bytes_out"), counter("memnet.jobs"),      counter("memnet.requests"),
              counter("memnet.broken")},
      busy_counter_(counter(name_of(options.number, "busy_permille"))),
      sockets_counter_(counter(name_of(options.number, "sockets"))),
      lines_counter_(counter(name_of(options.number, "clients"))),
      buffer_(kBuffer),
      budget_(Config::process().number("VIADUCT_SPIN_US") * 1000) {}

Worker::~Worker() {
  stop();
}

void Worker::start() {
  thread_ = std::thread([this] {
    (void)::pthread_setname_np(::pthread_self(), fmt::format("memnet-{}", options_.number).c_str());
    if (options_.processor >= 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<unsigned>(options_.processor), &set);
      if (::sched_setaffinity(0, sizeof set, &set) != 0)
        log::fault(
            fmt::format("tcp-server: worker {} cannot run on processor {}", options_.number, options_.processor));
    }
    run();
  });
}

void Worker::give(std::unique_ptr<Line> line) {
  lines_count_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  inbox_.push_back(std::move(line));
  wake_eventfd(bell_.get());
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  wake_eventfd(bell_.get());
  thread_.join();
}

void Worker::count_socket(int by) {
  sockets_here_ = static_cast<std::size_t>(static_cast<long>(sockets_here_) + by);
  sockets_count_.store(sockets_here_, std::memory_order_relaxed);
  sockets_counter_.set(sockets_here_);
}

// ---- sockets that end

void Worker::forget(ServedSocket& socket) {
  std::erase(starved_, &socket);
  std::replace(again_.begin(), again_.end(), &socket, static_cast<ServedSocket*>(nullptr));
}

// Gone after this round: an event of it may be under way. Its descriptor is free at once.
void Worker::bury(std::unique_ptr<ServedSocket> socket) {
  forget(*socket);
  socket->fd.reset();
  socket->closing = true;
  graveyard_.push_back(std::move(socket));
}

void Worker::linger(std::unique_ptr<ServedSocket> socket) {
  forget(*socket);
  lingering_.push_back(std::move(socket));
  if (lingering_.size() <= kMostLingering) return;
  bury(std::move(lingering_.front()));
  lingering_.erase(lingering_.begin());
}

void Worker::remove(Line& line) {
  ready_->remove(line.channel());
  line.let_sockets_go();
  for (auto& socket : lingering_)
    if (socket->line == &line) line.abandon(*socket);
  slot_is_free_(line.slot());
  lines_count_.fetch_sub(1, std::memory_order_relaxed);
  lines_counter_.set(lines_.size() - 1);
}

void Worker::clean_up() {
  for (auto& socket : lingering_)
    if (socket->sends.empty()) bury(std::move(socket));
  std::erase(lingering_, nullptr);
  if (graveyard_.empty()) return;
  graveyard_.clear();
  for (ServedSocket* const listener : std::exchange(starved_, {})) listener->line->accept_more(*listener);
}

// ---- the loop

bool Worker::serve_lines() {
  std::uint64_t tags[32];
  std::size_t count = ready_->take(tags);
  while (count < std::size(tags) && !leftovers_.empty()) {
    tags[count++] = leftovers_.back();
    leftovers_.pop_back();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = lines_.find(tags[i]);
    if (found == lines_.end()) continue;
    Line& line = *found->second;
    if (line.serve()) leftovers_.push_back(tags[i]);
    if (!line.over()) continue;
    remove(line);
    lines_.erase(found);
    std::erase(leftovers_, tags[i]);
  }
  return count > 0;
}

bool Worker::serve_sockets(int timeout_ms) {
  epoll_event events[kEventsAtOnce];
  return handle_events(events, ::epoll_wait(epoll_.get(), events, kEventsAtOnce, timeout_ms));
}

// An event is told once: every one that was taken is handled.
bool Worker::handle_events(const epoll_event* events, int count) {
  bool any = false;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == &of_lines) continue;  // looked at anyway
    any = true;
    if (events[i].data.ptr == &of_inbox) {
      (void)take_inbox();
      continue;
    }
    auto& socket = *static_cast<ServedSocket*>(events[i].data.ptr);
    if (socket.fd.get() < 0) continue;  // gone in this round
    if (socket.closing) {
      pump_lingering(socket);
      continue;
    }
    Line& line = *socket.line;
    line.happened(socket, events[i].events);
  }
  if (!again_.empty()) {
    any = true;
    std::vector<ServedSocket*> again;
    again.swap(again_);
    for (ServedSocket* const socket : again) {
      if (socket == nullptr || socket->fd.get() < 0) continue;
      if (!socket->sends.empty()) Line::pump_sends(*this, *socket);
      if (!socket->closing) socket->line->pump_receives(*socket);
    }
  }
  if (any)
    for (auto& [tag, line] : lines_) line->flush();
  return any;
}

void Worker::pump_lingering(ServedSocket& socket) {
  socket.writable = true;
  if (!socket.sends.empty()) Line::pump_sends(*this, socket);
}

bool Worker::take_inbox() {
  std::uint64_t tokens;
  (void)!::read(bell_.get(), &tokens, sizeof tokens);
  std::vector<std::unique_ptr<Line>> inbox;
  {
    const std::lock_guard lock(mutex_);
    inbox.swap(inbox_);
  }
  for (auto& line : inbox) {
    const std::uint64_t tag = next_tag_++;
    line->attach(*this);
    if (const auto fault = ready_->add(line->channel(), tag)) {
      log::fault(fmt::format("tcp-server: {} cannot be served: {}", line->peer(), fault.message()));
      slot_is_free_(line->slot());
      lines_count_.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    lines_.emplace(tag, std::move(line));
  }
  lines_counter_.set(lines_.size());
  return !inbox.empty();
}

bool Worker::turn() {
  const bool lines = serve_lines();
  const bool sockets = serve_sockets(0);
  if (lines || sockets) clean_up();
  return lines || sockets;
}

// Its share of the last while, for those who give it work.
void Worker::note_load(std::uint64_t now, bool worked) {
  if (worked) worked_ns_ += now - turn_began_;
  if (now - window_began_ < kLoadWindowNs) return;
  const auto share = static_cast<unsigned>(worked_ns_ * 1000 / (now - window_began_));
  busy_.store(share, std::memory_order_relaxed);
  busy_counter_.set(share);
  window_began_ = now;
  worked_ns_ = 0;
}

void Worker::sleep(std::uint64_t idle_since) {
  for (auto& [tag, line] : lines_)
    if (line->wants_room()) line->flush();
  if (!ready_->prepare_to_sleep()) return;
  constexpr int kNapMs = 1;  // see ReadyQueue::prepare_to_sleep()
  const int timeout = napped_ ? -1 : kNapMs;
  epoll_event events[kEventsAtOnce];
  const int count = ::epoll_wait(epoll_.get(), events, kEventsAtOnce, timeout);
  ready_->woke();
  napped_ = count == 0;
  const std::uint64_t now = Clock::steady().now_ns();
  budget_.learn(now - idle_since, true);
  turn_began_ = now;
  (void)handle_events(events, count);
  clean_up();
}

void Worker::run() {
  const Clock& clock = Clock::steady();
  std::uint64_t idle_since = 0, next_probe = 0;
  int yields = 0;
  window_began_ = turn_began_ = clock.now_ns();
  while (!stopping()) {
    const bool worked = turn();
    const std::uint64_t now = clock.now_ns();
    note_load(now, worked);
    turn_began_ = now;
    if (worked) {
      if (idle_since != 0) budget_.learn(now - idle_since, false);
      idle_since = 0;
      yields = 0;
      napped_ = false;
      continue;
    }
    if (idle_since == 0) idle_since = now, next_probe = now + 10'000;
    if (processors_online() > 1 && now - idle_since < budget_.budget_ns(now)) {
      if (now < next_probe) {
        cpu_relax();
        continue;
      }
      next_probe = now + 10'000;
      if (!CoreProbe::machine().core_is_wanted()) {
        budget_.core_free();
        continue;
      }
      budget_.core_contended(clock.now_ns());
    }
    // Lying down and being woken costs many times what a look does: those who want the processor get it first.
    if (!napped_ && yields < kYields) {
      ++yields;
      ::sched_yield();
      continue;
    }
    sleep(idle_since);
    if (napped_) continue;
    yields = 0;
    idle_since = 0;
  }
  finish();
}

// Listeners accept no more, clients are told by the end of their lines, and what is queued is sent, for as long as its
// receivers take it.
void Worker::finish() {
  (void)take_inbox();
  for (auto& [tag, line] : lines_) {
    (void)line->serve();
    remove(*line);
  }
  lines_.clear();
  constexpr std::uint64_t kDrainNs = 5'000'000'000;
  const Deadline deadline = Deadline::after_ns(Clock::steady(), kDrainNs);
  for (;;) {
    clean_up();
    const std::uint64_t now = Clock::steady().now_ns();
    if (lingering_.empty() || deadline.expired(now)) break;
    (void)serve_sockets(static_cast<int>(std::min<std::uint64_t>(deadline.left_ns(now) / 1'000'000 + 1, 100)));
  }
  lingering_.clear();
  graveyard_.clear();
}

}  // namespace viaduct::memnet
