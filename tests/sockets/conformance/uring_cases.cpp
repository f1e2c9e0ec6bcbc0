// io_uring, by syscall(): members of epoll sets that are put there with it, and sockets that are used with it.
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "sockets/conformance/harness.hpp"

namespace conformance {

namespace {

class Uring {
 public:
  Uring() : fd_(static_cast<int>(::syscall(SYS_io_uring_setup, 8, &made_))) {
    if (fd_ < 0) return;
    control_bytes_ = made_.cq_off.cqes + made_.cq_entries * sizeof(io_uring_cqe);
    control_ = static_cast<std::byte*>(map(IORING_OFF_SQ_RING, control_bytes_));
    entries_ = static_cast<io_uring_sqe*>(map(IORING_OFF_SQES, made_.sq_entries * sizeof(io_uring_sqe)));
  }
  ~Uring() {
    if (fd_ < 0) return;
    ::munmap(control_, control_bytes_);
    ::munmap(entries_, made_.sq_entries * sizeof(io_uring_sqe));
    ::close(fd_);
  }
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // A machine may have none, or forbid it.
  bool is_there() const { return fd_ >= 0 && (made_.features & IORING_FEAT_SINGLE_MMAP) != 0; }

  // All at once; what became of each, in their order.
  std::vector<int> submit(std::initializer_list<io_uring_sqe> asked) {
    const auto count = static_cast<std::uint32_t>(asked.size());
    std::uint32_t tail = word(made_.sq_off.tail).load(std::memory_order_relaxed);
    const std::uint32_t mask = word(made_.sq_off.ring_mask).load();
    std::uint64_t number = 0;
    for (io_uring_sqe one : asked) {
      one.user_data = number++;
      entries_[tail & mask] = one;
      word(made_.sq_off.array + (tail & mask) * sizeof(std::uint32_t)).store(tail & mask);
      ++tail;
    }
    word(made_.sq_off.tail).store(tail, std::memory_order_release);
    call("io_uring_enter", ::syscall(SYS_io_uring_enter, fd_, count, count, IORING_ENTER_GETEVENTS, nullptr, 0));
    std::vector<int> results(count, 1);
    const std::uint32_t end = word(made_.cq_off.tail).load(std::memory_order_acquire);
    const std::uint32_t answers = word(made_.cq_off.ring_mask).load();
    std::uint32_t head = word(made_.cq_off.head).load(std::memory_order_relaxed);
    for (; head != end; ++head) {
      const auto* const all = reinterpret_cast<const io_uring_cqe*>(control_ + made_.cq_off.cqes);
      if (const io_uring_cqe& one = all[head & answers]; one.user_data < count) results[one.user_data] = one.res;
    }
    word(made_.cq_off.head).store(head, std::memory_order_release);
    return results;
  }
  int submit(const io_uring_sqe& asked) { return submit({asked}).front(); }

  void register_files(const std::vector<int>& files) {
    call("io_uring_register", ::syscall(SYS_io_uring_register, fd_, IORING_REGISTER_FILES, files.data(), files.size()));
  }

 private:
  void* map(std::uint64_t offset, std::size_t size) const {
    return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, static_cast<off_t>(offset));
  }
  std::atomic_ref<std::uint32_t> word(std::size_t offset) const {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(control_ + offset));
  }

  io_uring_params made_{};
  int fd_;
  std::size_t control_bytes_ = 0;
  std::byte* control_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
};

io_uring_sqe ask(std::uint8_t what, int fd) {
  io_uring_sqe entry{};
  entry.opcode = what;
  entry.fd = fd;
  return entry;
}

io_uring_sqe control(int set, std::uint32_t operation, int fd, epoll_event* event) {
  io_uring_sqe entry = ask(IORING_OP_EPOLL_CTL, set);
  entry.off = static_cast<std::uint64_t>(fd);
  entry.addr = reinterpret_cast<std::uintptr_t>(event);
  entry.len = operation;
  return entry;
}

io_uring_sqe transfer(std::uint8_t what, int fd, void* bytes, std::size_t size, int flags = 0) {
  io_uring_sqe entry = ask(what, fd);
  entry.addr = reinterpret_cast<std::uintptr_t>(bytes);
  entry.len = static_cast<std::uint32_t>(size);
  entry.msg_flags = static_cast<std::uint32_t>(flags);
  return entry;
}

void wait_for(const char* what, int set, int limit) {
  std::array<epoll_event, 4> events{};
  const int found = ::epoll_wait(set, events.data(), events.size(), limit);
  note("%s: %d", what, found);
  for (int i = 0; i < found; ++i)
    note("  %s of %d", poll_bits(events[static_cast<std::size_t>(i)].events).c_str(),
         events[static_cast<std::size_t>(i)].data.fd);
}

bool lacks(const Uring& uring) {
  if (uring.is_there()) return false;
  return note("no io_uring here"), true;
}

}  // namespace

CASE(epoll, by_io_uring, "members put into a set, changed and taken out by io_uring, and those refused") {
  Uring uring;
  if (lacks(uring)) return;
  Link link = run.warm();
  Link other = run.warm();
  const int set = ::epoll_create1(0);
  epoll_event in{EPOLLIN, {.fd = 1}}, in_too{EPOLLIN, {.fd = 2}}, out{EPOLLOUT | EPOLLONESHOT, {.fd = 3}};
  for (const int result :
       uring.submit({control(set, EPOLL_CTL_ADD, link.fd, &in), control(set, EPOLL_CTL_ADD, other.fd, &in_too),
                     control(set, EPOLL_CTL_ADD, link.fd, &in), control(set, EPOLL_CTL_MOD, set, &in)}))
    note("result %d", result);
  wait_for("idle", set, 20);
  run.peer_sends(link, 5);
  wait_for("sent", set, 1000);
  note("received %d", link.receive(5));
  run.agent.begin(Order::send, other.number, 100'000);
  wait_for("sent to the other", set, 3000);
  note("received %d", other.receive(100'000));
  note("agent sent %lld", static_cast<long long>(run.agent.end().result));
  note("MOD %d", uring.submit(control(set, EPOLL_CTL_MOD, link.fd, &out)));
  wait_for("room", set, 1000);
  wait_for("told once", set, 20);
  note("DEL %d", uring.submit(control(set, EPOLL_CTL_DEL, other.fd, nullptr)));
  note("DEL again %d", uring.submit(control(set, EPOLL_CTL_DEL, other.fd, nullptr)));
  run.peer_sends(other, 5);
  wait_for("taken out", set, 20);
  call("epoll_ctl ADD", ::epoll_ctl(set, EPOLL_CTL_ADD, other.fd, &in_too));
  wait_for("put back", set, 1000);
  for (const int fd : {set, link.fd, other.fd}) ::close(fd);
}

CASE(data, by_io_uring, "bytes unread, then recv, send, poll and shutdown by io_uring, and calls in between") {
  Uring uring;
  if (lacks(uring)) return;
  for (const std::size_t unread : {5u, 5000u, 100'000u}) {
    Link link = run.warm();
    run.peer_sends(link, unread);
    std::vector<char> bytes(unread + 10);
    const int got = uring.submit(transfer(IORING_OP_RECV, link.fd, bytes.data(), unread, MSG_WAITALL));
    note("received %d, right %d", got, matches(bytes.data(), unread, link.received));
    link.received += unread;
    fill(bytes.data(), 10, link.sent);
    note("sent %d", uring.submit(transfer(IORING_OP_SEND, link.fd, bytes.data(), 10)));
    link.sent += 10;
    run.peer_says("the peer receives", Order::receive, link, 10);
    note("sent %d", link.send(7));
    run.peer_says("the peer receives", Order::receive, link, 7);
    run.peer_sends(link, 20);
    io_uring_sqe readable = ask(IORING_OP_POLL_ADD, link.fd);
    readable.poll32_events = POLLIN;
    note("poll %s", poll_bits(static_cast<unsigned>(uring.submit(readable))).c_str());
    note("received %d", link.receive(20));
    io_uring_sqe end = ask(IORING_OP_SHUTDOWN, link.fd);
    end.len = SHUT_WR;
    note("shutdown %d", uring.submit(end));
    run.peer_says("the peer receives", Order::receive_to_end, link);
    note("close %d", uring.submit(ask(IORING_OP_CLOSE, link.fd)));
    call("send", ::send(link.fd, "x", 1, MSG_NOSIGNAL));
  }
}

CASE(data, registered_with_io_uring,
     "bytes unread, then the socket is registered with io_uring and read by its place") {
  Uring uring;
  if (lacks(uring)) return;
  Link link = run.warm();
  run.peer_sends(link, 3000);
  uring.register_files({link.fd});
  std::vector<char> bytes(3000);
  io_uring_sqe entry = transfer(IORING_OP_RECV, 0, bytes.data(), bytes.size(), MSG_WAITALL);
  entry.flags = IOSQE_FIXED_FILE;
  const int got = uring.submit(entry);
  note("received %d, right %d", got, matches(bytes.data(), bytes.size(), link.received));
  ::close(link.fd);
}

}  // namespace conformance
