// How a shared-memory channel sleeps, wakes its peer, and notices that it has gone.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/socket_message.hpp"
#include "via/channel/ready_format.hpp"
#include "via/channel/ready_source.hpp"
#include "via/channel/shm_channel.hpp"

namespace viaduct::via {

namespace {

constexpr char kDoorbell = '!';
constexpr char kQueue = 'Q';  // travels with the descriptor of a ready queue

constexpr std::size_t kMostDoorbells = 512;  // read at once; a socket buffer holds fewer
constexpr int kReadsPerDrain = 16;           // a peer that writes without end does not hold us
constexpr std::uint64_t kLookForEndNs = 50'000'000;

Deadline deadline_of(int timeout_ms, const Clock& clock) {
  if (timeout_ms < 0) return Deadline::never();
  return Deadline::after_ns(clock, static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
}

std::error_code code(WaitResult result) {
  switch (result) {
    case WaitResult::timeout:
      return std::make_error_code(std::errc::timed_out);
    case WaitResult::interrupted:
      return std::make_error_code(std::errc::interrupted);
    case WaitResult::ready:
      break;
  }
  return {};
}

}  // namespace

// ---- waking the peer

// The peer's consumer is armed: it sleeps on the socket, or its ready queue wants to hear of us.
void ShmChannel::wake_receiver() {
  data_wakes_.add(1);
  const std::uint64_t place = theirs().place.load(std::memory_order_acquire);  // A5, pairs with R5 in join_queue()
  if (place == 0 || !give_hint(QueuePlace::of(place))) ring_doorbell();
}

// True: that was enough, the queue's owner is awake.
bool ShmChannel::give_hint(QueuePlace place) {
  const std::lock_guard lock(socket_mutex_);
  if (peer_queue_taken_ != place.queue) find_peer_queue(place.queue);
  if (peer_queue_taken_ != place.queue || !peer_queue_) return false;
  if (place.number == 0 || place.number > peer_queue_->capacity()) return false;
  peer_queue_->put(place.number - 1);
  return !peer_queue_->ready().must_wake();
}

// A full socket buffer is as good: the peer has something to read.
void ShmChannel::ring_doorbell() {
  (void)::send(socket_.get(), &kDoorbell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// ---- reading the socket

// Under the mutex. False: there is nothing more. The kernel ends a read behind the first descriptor, so one read sees
// one announcement at most.
bool ShmChannel::read_socket(std::size_t most, int flags) {
  char bytes[kMostDoorbells];
  Attached with;
  const ssize_t got =
      receive_part(socket_.get(), std::as_writable_bytes(std::span(bytes)).first(std::min(most, sizeof bytes)),
                   flags | MSG_DONTWAIT, with);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    note_peer_gone();
    return false;
  }
  if (std::memchr(bytes, kQueue, static_cast<std::size_t>(got)) == nullptr) return true;
  const std::uint32_t announced = peer_queues_read_ + 1;
  if ((flags & MSG_PEEK) == 0) peer_queues_read_ = announced;
  if (announced > peer_queue_taken_) take_peer_queue(with.last_fd(), announced);
  return true;
}

void ShmChannel::drain_socket() {
  const std::lock_guard lock(socket_mutex_);
  for (int i = 0; i < kReadsPerDrain && read_socket(kMostDoorbells, 0); ++i) {
  }
}

// By the sending thread: doorbells are not its own and stay where they are, so an announcement behind one is looked at
// without taking it. Where that is not the one asked for, the doorbell will have to do until the receiver has drained.
void ShmChannel::find_peer_queue(std::uint32_t queue) {
  while (peer_queue_taken_ < queue) {
    char first;
    const bool first_in_line = ::recv(socket_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first == kQueue;
    if (!first_in_line) return (void)read_socket(kMostDoorbells, MSG_PEEK);
    if (!read_socket(1, 0)) return;
  }
}

// The sending side's end of it, under the mutex: the descriptor comes from the peer and is checked like any segment.
// Whatever is wrong with it, the peer is woken by the doorbell then.
void ShmChannel::take_peer_queue(Fd fd, std::uint32_t queue) {
  peer_queue_.reset();
  peer_queue_segment_ = {};
  peer_queue_taken_ = queue;
  if (!fd) return;  // no room in our table of descriptors
  auto segment = Segment::adopt(std::move(fd), kReadyQueueLayout);
  auto hints = segment ? peer_hints_of(*segment) : Result<HintQueue>(segment.error());
  if (hints) {
    peer_queue_segment_ = std::move(*segment);
    peer_queue_ = std::make_unique<HintQueue>(std::move(*hints));
  } else if (!std::exchange(peer_queue_fault_logged_, true)) {
    log::fault(hints.error().because("the peer's ready queue is not used").message());
  }
}

// Whether the peer has gone, leaving the doorbells alone.
void ShmChannel::look_for_end() {
  if (peer_gone()) return;
  pollfd entry{socket_.get(), POLLRDHUP, 0};
  if (theirs().closed.load(std::memory_order_acquire) != 0 ||  // A4, pairs with R4 in the destructor
      ::poll(&entry, 1, 0) > 0)
    note_peer_gone();
}

// ---- sleeping

// For data: until the doorbell.
class ShmChannel::SocketSleeper final : public Sleeper {
 public:
  explicit SocketSleeper(ShmChannel& channel) : channel_(channel) {}
  SleepResult sleep(WaitWord& word, std::uint32_t armed, Deadline deadline, const Clock& clock) override {
    FdSleeper socket(channel_.socket_.get(), FdSleeper::Drain::none);
    const SleepResult result = socket.sleep(word, armed, deadline, clock);
    if (result == SleepResult::woken) channel_.drain_socket();
    return result;
  }

 private:
  ShmChannel& channel_;
};

// For space: on the futex, which a peer that dies does not wake. So the socket is looked at now and then.
class ShmChannel::SpaceSleeper final : public Sleeper {
 public:
  explicit SpaceSleeper(ShmChannel& channel) : channel_(channel) {}
  SleepResult sleep(WaitWord& word, std::uint32_t armed, Deadline deadline, const Clock& clock) override {
    for (;;) {
      channel_.look_for_end();
      if (channel_.peer_gone()) return SleepResult::woken;
      const std::uint64_t now = clock.now_ns();
      const std::uint64_t nap = std::min(deadline.left_ns(now), kLookForEndNs);
      const SleepResult result = word.sleep(armed, Deadline::at_ns(now + nap), clock);
      if (result != SleepResult::timeout || deadline.expired(clock.now_ns())) return result;
    }
  }

 private:
  ShmChannel& channel_;
};

std::error_code ShmChannel::wait_to_receive(int timeout_ms) {
  if (has_news()) return {};
  SocketSleeper sleeper(*this);
  step_out_of_queue();
  const WaitResult result = receive_waiter_.wait(in_.shared().data, sleeper, deadline_of(timeout_ms, Clock::steady()),
                                                 [this] { return has_news(); });
  step_back_into_queue();
  return code(result);
}

std::error_code ShmChannel::wait_to_send(std::size_t length, int timeout_ms) {
  if (length > largest_fragment()) return std::make_error_code(std::errc::message_size);
  SpaceSleeper sleeper(*this);
  return code(send_waiter_.wait(out_.shared().space, sleeper, deadline_of(timeout_ms, Clock::steady()),
                                [this, length] { return credits(length) > 0 || sending_is_over(); }));
}

bool ShmChannel::arm_to_receive() {
  step_out_of_queue();
  return arm_for_queue();
}

void ShmChannel::disarm() {
  drain_socket();
  step_back_into_queue();
}

// ---- ready queues

bool ShmChannel::arm_for_queue() {
  (void)in_.shared().data.arm();
  return !has_news();
}

Status ShmChannel::join_queue(const Segment& queue, HintQueue& hints, std::uint32_t number) {
  const std::byte byte{kQueue};
  const int fd = queue.fd();
  const Status announced = send_with_fds(socket_.get(), {&byte, 1}, {&fd, 1});
  // A peer that has gone gives no hints: the queue's owner sees it by the socket.
  const bool gone = !announced && (announced.error().code() == EPIPE || announced.error().code() == ECONNRESET);
  if (!announced && !gone) return announced.error().because("ready queue");
  own_queue_ = &hints;
  own_place_ = {++queues_announced_, number + 1};
  mine().place.store(own_place_.word(), std::memory_order_release);  // R5: the announcement is on the socket
  return {};
}

void ShmChannel::leave_queue() {
  mine().place.store(0, std::memory_order_release);
  own_queue_ = nullptr;
}

// While a channel that is in a queue is waited for by itself, its peer must ring instead of giving a hint. It finds the
// word armed either by the arming that follows here, and then sees this store, or by an earlier one of the queue, and
// then what it published is seen by the look that follows ours.
void ShmChannel::step_out_of_queue() {
  if (own_queue_ != nullptr) mine().place.store(0, std::memory_order_seq_cst);
}

// The queue may believe that the channel is still armed for it: a hint of our own makes it look.
void ShmChannel::step_back_into_queue() {
  if (own_queue_ == nullptr) return;
  mine().place.store(own_place_.word(), std::memory_order_release);
  own_queue_->put(own_place_.number - 1);
}

std::error_code ShmChannel::enter(ReadyEntrance& entrance, std::uint64_t tag) {
  return entrance.add_shm(*this, tag);
}

void ShmChannel::leave(ReadyEntrance& entrance) {
  entrance.remove_shm(*this);
}

}  // namespace viaduct::via
