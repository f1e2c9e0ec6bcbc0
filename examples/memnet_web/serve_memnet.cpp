// Sockets of MemNet: plain (send and recv), direct (send_direct and recv_direct), async (async_send and async_recv, and
// accepted by jobs). One thread, which waits in one place.
#include <adma.h>
#include <arpa/inet.h>
#include <memnet.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "server.hpp"

namespace memnet_web {

namespace {

constexpr std::size_t kSlot = 2048;  // for what comes, and for heads that go
constexpr std::size_t kSlotsAtOnce = 512;
constexpr int kLookForEndMs = 1000;  // a signal may come just before a sleep

// Registered memory in pieces of one size.
class Slots {
 public:
  struct Slot {
    memnet_mem_t memory = 0;
    std::size_t offset = 0;
    char* bytes = nullptr;
  };
  Slot take() {
    if (free_.empty()) grow();
    if (free_.empty()) return {};
    const Slot slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give(const Slot& slot) { free_.push_back(slot); }

 private:
  void grow() {
    auto* const bytes = static_cast<char*>(adma_alloc(kSlot * kSlotsAtOnce));
    memnet_mem_t memory;
    if (bytes == nullptr || memnet_register_mem(bytes, kSlot * kSlotsAtOnce, &memory) != 0) return;
    for (std::size_t i = 0; i < kSlotsAtOnce; ++i) free_.push_back({memory, i * kSlot, bytes + i * kSlot});
  }
  std::vector<Slot> free_;
};

struct Connection {
  int socket = -1;
  std::string in;
  std::deque<Answer> out;
  std::size_t sent = 0;  // of the first
  bool over = false;     // nothing more is read
  bool failed = false;
  // Jobs.
  Slots::Slot input;
  memnet_job_t receiving = 0;
  struct Sending {
    memnet_job_t job;
    Slots::Slot head;
    bool close;
  };
  std::deque<Sending> sending;
};

class Server {
 public:
  Server(const Site& site, Way way, memnet_mem_t files) : site_(site), way_(way), files_(files) {}

  void add(int socket) {
    const int on = 1, off = 0;
    (void)on;
    auto made = std::make_unique<Connection>();
    Connection& connection = *made;
    connection.socket = socket;
    connections_[socket] = std::move(made);
    if (way_ == Way::async) {
      (void)memnet_setsockopt(socket, SOL_MEMNET, MEMNET_PUSH, &off, sizeof off);
      connection.input = slots_.take();
      receive(connection);
      settle(connection);
      return;
    }
    (void)memnet_set_nonblocking(socket, 1);
    if (way_ == Way::direct) connection.input = slots_.take();
    (void)memnet_watch(socket, &connection);
  }

  // ---- plain and direct: told by events

  void happened(Connection& connection) {
    if (read(connection) && write(connection)) return;
    end(connection);
  }

  // ---- async: told by ends of jobs

  void ended(const memnet_result& result, Connection& connection) {
    if (result.job == connection.receiving) {
      connection.receiving = 0;
      if (result.bytes <= 0) {
        connection.over = true;
        connection.failed = result.bytes < 0;
      } else {
        connection.in.append(connection.input.bytes, static_cast<std::size_t>(result.bytes));
        take_requests(connection);
        send_all(connection);
        if (!connection.over) receive(connection);
      }
    } else if (!connection.sending.empty() && connection.sending.front().job == result.job) {
      const Connection::Sending sent = connection.sending.front();
      connection.sending.pop_front();
      if (sent.head.bytes != nullptr) slots_.give(sent.head);
      if (result.bytes < 0) connection.failed = true;
      send_all(connection);
    }
    settle(connection);
  }

 private:
  // It ends when nothing is under way any more.
  void settle(Connection& connection) {
    const bool last = connection.over && connection.out.empty();
    if (connection.failed && connection.receiving != 0) (void)memnet_job_cancel(connection.receiving);
    if (!last && !connection.failed) return;
    if (connection.receiving == 0 && connection.sending.empty()) end(connection);
  }

  void receive(Connection& connection) {
    memnet_request request{MEMNET_RECV, connection.socket, 0, 0, connection.input.memory, connection.input.offset,
                           kSlot,       &connection,       0};
    if (connection.input.bytes == nullptr || memnet_submit(&request, 1) != 1) {
      connection.over = connection.failed = true;
      return;
    }
    connection.receiving = request.job;
  }

  // The head from a slot, the body from where the file is.
  void send_all(Connection& connection) {
    while (!connection.out.empty() && !connection.failed) {
      Answer& first = connection.out.front();
      Slots::Slot slot{};
      if (first.head.size() <= kSlot) slot = slots_.take();
      if (slot.bytes == nullptr) return fail(connection);
      std::memcpy(slot.bytes, first.head.data(), first.head.size());
      memnet_request requests[2];
      const int more = MSG_MORE;
      const bool body = first.length > 0;
      requests[0] = {MEMNET_SEND,
                     connection.socket,
                     body || connection.out.size() > 1 ? more : 0,
                     0,
                     slot.memory,
                     slot.offset,
                     first.head.size(),
                     &connection,
                     0};
      if (body)
        requests[1] = {MEMNET_SEND,
                       connection.socket,
                       connection.out.size() > 1 ? more : 0,
                       0,
                       files_,
                       static_cast<std::size_t>(first.body - site_.memory()),
                       first.length,
                       &connection,
                       0};
      const int wanted = body ? 2 : 1;
      const int submitted = memnet_submit(requests, wanted);
      if (submitted < 0) {
        slots_.give(slot);
        if (errno == EAGAIN && !connection.sending.empty()) return;  // again when one has ended
        return fail(connection);
      }
      connection.sending.push_back({requests[0].job, slot, first.close});
      if (submitted == 2) connection.sending.push_back({requests[1].job, {}, first.close});
      if (submitted < wanted) return fail(connection);
      connection.out.pop_front();
    }
  }
  static void fail(Connection& connection) { connection.failed = true; }

  bool read(Connection& connection) {
    char bytes[16384];
    while (!connection.over) {
      ssize_t got;
      if (way_ == Way::plain) {
        got = memnet_recv(connection.socket, bytes, sizeof bytes, MSG_DONTWAIT);
      } else {
        got = memnet_recv_direct(connection.socket, connection.input.memory, connection.input.offset, kSlot,
                                 MSG_DONTWAIT);
      }
      if (got < 0 && errno == EAGAIN) break;
      if (got < 0) return false;
      if (got == 0) connection.over = true;
      connection.in.append(way_ == Way::plain ? bytes : connection.input.bytes, static_cast<std::size_t>(got));
      take_requests(connection);
      if (way_ == Way::direct && got > 0 && static_cast<std::size_t>(got) < kSlot) break;
    }
    return true;
  }

  void take_requests(Connection& connection) {
    std::size_t at = 0;
    for (bool more = true; more;) {
      std::size_t used = 0;
      Answer answer;
      switch (answer_first(std::string_view(connection.in).substr(at), site_, used, answer)) {
        case Parsed::more:
          more = false;
          break;
        case Parsed::nonsense:
          used = connection.in.size() - at;
          [[fallthrough]];
        case Parsed::answer:
          at += used;
          more = !answer.close;
          connection.over = connection.over || answer.close;
          connection.out.push_back(std::move(answer));
      }
    }
    connection.in.erase(0, at);
  }

  // False: the connection is over.
  bool write(Connection& connection) {
    while (!connection.out.empty()) {
      Answer& first = connection.out.front();
      const std::size_t in_head = std::min(connection.sent, first.head.size());
      const std::size_t in_body = connection.sent - in_head;
      const int more = connection.out.size() > 1 ? MSG_MORE : 0;
      ssize_t put;
      if (way_ == Way::direct && in_head == first.head.size() && in_body < first.length) {
        const auto offset = static_cast<std::size_t>(first.body - site_.memory());
        put = memnet_send_direct(connection.socket, files_, offset + in_body, first.length - in_body,
                                 more | MSG_DONTWAIT | MSG_NOSIGNAL);
      } else if (way_ == Way::direct) {
        put = memnet_send(connection.socket, first.head.data() + in_head, first.head.size() - in_head,
                          MSG_DONTWAIT | MSG_NOSIGNAL | (first.length > 0 ? MSG_MORE : more));
      } else {
        iovec pieces[2];
        std::size_t count = 0;
        if (in_head < first.head.size()) pieces[count++] = {first.head.data() + in_head, first.head.size() - in_head};
        if (in_body < first.length) pieces[count++] = {const_cast<char*>(first.body) + in_body, first.length - in_body};
        msghdr message{};
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        put = memnet_sendmsg(connection.socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL | more);
      }
      if (put < 0) return errno == EAGAIN;
      connection.sent += static_cast<std::size_t>(put);
      if (connection.sent < first.head.size() + first.length) continue;
      if (first.close) return false;
      connection.out.pop_front();
      connection.sent = 0;
    }
    return !connection.over;
  }

  void end(Connection& connection) {
    if (connection.input.bytes != nullptr) slots_.give(connection.input);
    memnet_close(connection.socket);
    connections_.erase(connection.socket);
  }

  const Site& site_;
  const Way way_;
  const memnet_mem_t files_;
  Slots slots_;
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
};

void run_by_events(Server& server, int listener, const bool& stopped) {
  while (!stopped) {
    memnet_event events[64];
    const int count = memnet_events(events, 64, kLookForEndMs);
    for (int i = 0; i < count; ++i) {
      if (events[i].socket != listener) {
        server.happened(*static_cast<Connection*>(events[i].context));
        continue;
      }
      for (int made; (made = memnet_accept(listener, nullptr, nullptr)) >= 0;) server.add(made);
    }
  }
}

void run_by_jobs(Server& server, int listener, const bool& stopped) {
  constexpr int kAccepts = 64;
  std::vector<memnet_request> accepts(kAccepts, {MEMNET_ACCEPT, listener, 0, 0, 0, 0, 0, nullptr, 0});
  (void)memnet_submit(accepts.data(), kAccepts);
  while (!stopped) {
    memnet_result results[64];
    const int count = memnet_reap(results, 64, kLookForEndMs);
    int accepted = 0;
    for (int i = 0; i < count; ++i) {
      if (results[i].context != nullptr) {
        server.ended(results[i], *static_cast<Connection*>(results[i].context));
        continue;
      }
      if (results[i].bytes < 0) return;  // the listener has gone
      server.add(static_cast<int>(results[i].bytes));
      ++accepted;
    }
    if (accepted > 0) (void)memnet_submit(accepts.data(), accepted);
  }
}

}  // namespace

std::string serve_memnet(const Options& options, const Site& site, const bool& stopped,
                         const std::function<void(std::uint16_t)>& ready) {
  if (memnet_open(options.server.empty() ? nullptr : options.server.c_str()) != 0)
    return std::string("no TCP server: ") + std::strerror(errno);
  const int listener = memnet_socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  const int push = options.way == Way::plain ? 1 : 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (::inet_pton(AF_INET, options.address.c_str(), &address.sin_addr) != 1) return "the address is no IPv4 address";
  socklen_t length = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  (void)memnet_setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  (void)memnet_setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // what is accepted has it too
  (void)memnet_setsockopt(listener, SOL_MEMNET, MEMNET_PUSH, &push, sizeof push);
  if (memnet_bind(listener, name, length) != 0 || memnet_listen(listener, 1024) != 0 ||
      memnet_getsockname(listener, name, &length) != 0)
    return std::strerror(errno);
  memnet_mem_t files = 0;
  if (options.way != Way::plain && memnet_register_mem(site.memory(), site.length(), &files) != 0)
    return std::strerror(errno);
  (void)memnet_set_nonblocking(listener, 1);
  (void)memnet_watch(listener, nullptr);
  ready(ntohs(address.sin_port));
  Server server(site, options.way, files);
  options.way == Way::async ? run_by_jobs(server, listener, stopped) : run_by_events(server, listener, stopped);
  return memnet_shut() == 0 ? "" : std::strerror(errno);
}

}  // namespace memnet_web
