#include "sockets/rendezvous.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "sockets/address.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/internal_fd.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/settings.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::uint32_t kMostTimes = 64;  // as many operations as the setting says, where connections ended too soon
// What makes up for the memory.
constexpr std::uint64_t kMessagesWorthIt = 64, kBytesWorthIt = 1 << 20;
constexpr std::size_t kBytesPerOperation = std::size_t{16} << 10;
constexpr std::uint32_t kMostForOneCall = 320;  // unless more are wanted
// Operations between looks: a share of those so far, so that a peer that never comes costs next to nothing and one that
// comes late is found soon. Listening is cheaper than calling.
constexpr std::uint32_t kRarestLook = 512;
constexpr std::uint32_t kRarestCall = 16384;
constexpr int kHelloWaitMs = 20;  // once the peer has connected: it says so in the same breath

std::atomic<std::uint32_t> proof_times{1};  // what this process asks for by now

std::uint32_t operations_wanted() {
  const std::uint32_t after = settings().after;
  return after == 1 ? 1 : after * proof_times.load(std::memory_order_relaxed);
}

// Whether the peer of the connection that ended last came, as far as it was looked for.
enum class Peers { unknown, come, stay_away };
std::atomic<Peers> peers{Peers::unknown};

struct ErrnoKeeper {
  int kept = errno;
  ~ErrnoKeeper() { errno = kept; }
};

// ---- names

bool addresses(int fd, Address& own, Address& peer) {
  own = own_address(fd);
  peer = peer_address(fd);
  return own.ok && peer.ok;
}

// Whether the address is one of this host: only then it can be bound to.
bool is_local(const Address& address) {
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  std::memcpy(&name.sin6_addr, address.bytes.data(), 16);
  const int probe = kernel::libc().socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  const int off = 0;
  kernel::libc().setsockopt(probe, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const bool local = ::bind(probe, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  kernel::libc().close(probe);
  return local;
}

bool same_host(const Address& own, const Address& peer) {
  if (own.loopback && peer.loopback) return true;
  if (std::memcmp(own.bytes.data(), peer.bytes.data(), 16) == 0) return true;
  return is_local(peer);
}

// ---- who may

// Why::accelerated: we may.
Why why_not_share_with(Connection& connection, int unix_socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (kernel::libc().getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Why::other_user;
  const bool same_user = peer.uid == ::geteuid();
  connection.same_user.store(same_user);
  if (!settings().any_user && !same_user) return Why::other_user;
  return peer.pid == 0 ? Why::other_processes : Why::accelerated;
}

void give_up(Connection& connection, Why why) {
  withdraw(connection);
  connection.set_why(why);
  connection.set_life(Life::plain);
}

// The same, and the other side is told: it need not look again, and knows why.
void refuse(Connection& connection, int line, Why why) {
  (void)say_no(line, why);
  give_up(connection, why);
}

// Not now; there may be a descriptor, or the peer, later.
void later(Connection& connection, Why why) {
  connection.set_why(why);
  const std::uint32_t now = connection.operations.load(std::memory_order_relaxed);
  const bool listens = connection.life.load(std::memory_order_relaxed) == Life::offering && why == Why::waiting;
  connection.next_attempt = now + (listens ? std::clamp<std::uint32_t>(now / 8, 1, kRarestLook)
                                           : std::clamp<std::uint32_t>(now / 2, 1, kRarestCall));
}

// The other side has gone from the meeting place: it may come again.
void hang_up(Connection& connection) {
  withdraw(connection);
  connection.set_life(Life::young);
  later(connection, Why::waiting);
}

// `fault`: what the calls have said that would have led there.
Why why_not_there(int fault) {
  switch (fault) {
    case EPERM:
    case EACCES:
      return Why::forbidden;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
      return Why::no_descriptors;
    default:  // nobody listens; or listens for this end, in another process that holds it too
      return Why::waiting;
  }
}

// ---- what they share

// Rings begin at the same place of a page: who looks at many of them finds those slots which are used most in the same
// few places of its cache, if they were not others in each.
void spread_over_cache(StreamControl& control) {
  static std::atomic<std::uint32_t> count{0};
  constexpr std::uint32_t kApart = 13 * kFewSlots;  // odd, so that all are used in turn
  for (Direction& direction : control.direction)
    Sender::begin(direction,
                  static_cast<std::uint8_t>(count.fetch_add(1, std::memory_order_relaxed) * kApart % kSlots));
}

// What TCP would take before anybody reads, at least: the peer has a buffer too.
std::size_t buffers_of(int socket) {
  constexpr std::size_t kReceiveBuffer = std::size_t{128} << 10;
  int value = 0;
  socklen_t size = sizeof value;
  kernel::libc().getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &value, &size);
  return static_cast<std::size_t>(std::max(value, 0)) + kReceiveBuffer;
}

std::atomic<std::size_t> attached_here{0};

// A program whose address space is limited needs most of it for itself: the more connections, the less for each.
std::size_t bulk_bytes_for(int socket) {
  constexpr std::size_t kShare = 64;
  std::size_t most = kMostBulkBytes;
  if (rlimit limit{}; ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const std::size_t share = limit.rlim_cur / kShare / (attached_here.load(std::memory_order_relaxed) + 1);
    most = std::clamp(share, kLeastBulkBytes, most);
  }
  // Nor may a file be larger than that (ulimit -f).
  if (rlimit limit{}; ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur / 4 < most)
    most = std::max<std::size_t>(limit.rlim_cur / 4, kLeastBulkBytes);
  return std::min(bulk_size_for(buffers_of(socket)), most) / kPage * kPage;
}

// Nagle's algorithm, corks and low-water marks hold single bytes back. The program's own settings are kept for it to
// read.
void deliver_doorbells_at_once(Connection& connection, int socket) {
  const auto& libc = kernel::libc();
  const auto replace = [&](int level, int option, int with, std::atomic<int>& kept) {
    int value = 0;
    socklen_t size = sizeof value;
    libc.getsockopt(socket, level, option, &value, &size);
    kept.store(value);
    if (value != with) libc.setsockopt(socket, level, option, &with, sizeof with);
  };
  int tells_unread = 0;
  socklen_t size = sizeof tells_unread;
  libc.getsockopt(socket, IPPROTO_TCP, TCP_INQ, &tells_unread, &size);
  connection.tells_unread.store(tells_unread != 0);
  replace(IPPROTO_TCP, TCP_NODELAY, 1, connection.nodelay);
  replace(IPPROTO_TCP, TCP_CORK, 0, connection.cork);
  replace(SOL_SOCKET, SO_RCVLOWAT, 1, connection.low_water);  // a listener's is its connections' too
}

// Calls of ours that a sandbox may refuse though it lets the program's own through: tried before anything depends on
// them.
bool sandbox_forbids(int fd) {
  const auto refused = [](long result) { return result < 0 && (errno == EPERM || errno == ENOSYS || errno == EACCES); };
  const timespec at_once{};
  return refused(kernel::libc().ppoll(nullptr, 0, &at_once, nullptr)) ||
         refused(kernel::libc().epoll_pwait(-1, nullptr, 0, 0, nullptr)) || tcp_unread(fd) < 0;
}

// Options that connections have from their listener, or from before somebody was looking (calls_options.cpp).
bool needs_kernel(int socket) {
  const auto is_set = [socket](int option, int least) {
    int value = 0;
    socklen_t size = sizeof value;
    return kernel::libc().getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 && value >= least;
  };
  constexpr int kTimeStamps[] = {SO_TIMESTAMP_OLD,   SO_TIMESTAMP_NEW,    SO_TIMESTAMPNS_OLD,
                                 SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_OLD, SO_TIMESTAMPING_NEW};
  return std::any_of(std::begin(kTimeStamps), std::end(kTimeStamps), [&](int option) { return is_set(option, 1); }) ||
         is_set(SO_PEEK_OFF, 0);
}

// Why::accelerated: nothing is in the way.
Why why_not_on_ring(Connection& connection, int fd) {
  Opened opened = connection.opened.load(std::memory_order_relaxed);
  if (!tcp_counts_agree(fd, opened)) return Why::no_counts;
  connection.opened.store(opened, std::memory_order_relaxed);
  if (needs_kernel(fd)) return Why::kernel_feature;
  return sandbox_forbids(fd) ? Why::forbidden : Why::accelerated;
}

Result<Segment> make_memory(int socket) {
  auto segment = Segment::create({.name = kStreamName,
                                  .layout = kStreamLayout,
                                  .payload_size = stream_bytes(bulk_bytes_for(socket)),
                                  .committed = kFirstCommitted});
  if (segment) spread_over_cache(*reinterpret_cast<StreamControl*>(segment->payload().data()));
  return segment;
}

// ---- the end with the lower address

void open_offer(Connection& connection) {
  int fd = listen_at(connection.place);
  if (fd >= 0) fd = make_internal(fd, Need::now, &connection);
  if (fd < 0) return later(connection, why_not_there(errno));
  connection.meeting = fd;
  connection.set_life(Life::offering);
  later(connection, Why::waiting);
}

void look_for_caller(Connection& connection, int socket) {
  const int fd = kernel::libc().accept4(connection.meeting, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return later(connection, Why::waiting);
  const Fd line(fd);
  // The program still holds what its peer has long reset: the caller means a new one, with the same addresses.
  if (!tcp_is_alive(socket)) return give_up(connection, Why::not_connected);
  if (const Why why = why_not_share_with(connection, fd); why != Why::accelerated) return refuse(connection, fd, why);
  Why why = Why::waiting;
  switch (hear(fd, kHelloWaitMs, why)) {
    case Heard::hello:
      break;
    case Heard::no:
      if (why == Why::wrong_version) (void)say_no(fd, why);
      return give_up(connection, why);
    default:
      return later(connection, Why::waiting);
  }
  auto segment = make_memory(socket);
  if (!segment) return later(connection, segment.error().code() == EMFILE ? Why::no_descriptors : Why::no_memory);
  if (!send_segment(fd, *segment)) return later(connection, Why::waiting);  // it has gone: nobody else has the memory
  withdraw(connection);
  attach(connection, socket, std::move(*segment), 0);
}

// ---- the end with the higher address

void call(Connection& connection, int socket) {
  int line = call_at(connection.place);
  if (line >= 0) line = make_internal(line, Need::now, &connection);
  if (line < 0) return later(connection, why_not_there(errno));
  connection.meeting = line;
  connection.set_life(Life::offering);
  if (!tcp_is_alive(socket)) return give_up(connection, Why::not_connected);  // the same from the other side
  if (const Why why = why_not_share_with(connection, line); why != Why::accelerated)
    return refuse(connection, line, why);
  if (const Why why = why_not_on_ring(connection, socket); why != Why::accelerated)
    return refuse(connection, line, why);
  if (!say_hello(line)) return hang_up(connection);
  later(connection, Why::waiting);
}

void look_for_answer(Connection& connection, int socket) {
  Why why = Why::waiting;
  switch (hear(connection.meeting, 0, why)) {
    case Heard::nothing:
      return later(connection, Why::waiting);
    case Heard::no:
      return give_up(connection, why);
    case Heard::memory:
      break;
    default:
      return hang_up(connection);
  }
  auto segment = receive_segment(connection.meeting, kStreamLayout);
  if (!segment) {
    const int fault = segment.error().code();
    return give_up(connection, fault == EPROTO   ? Why::wrong_version
                               : fault == EMFILE ? Why::no_descriptors
                                                 : Why::no_memory);
  }
  if (segment->payload().size() < kLeastStreamBytes) return give_up(connection, Why::wrong_version);
  if (!tcp_is_alive(socket)) return give_up(connection, Why::not_connected);
  withdraw(connection);
  attach(connection, socket, std::move(*segment), 1);
}

// ---- both

// Where to meet. Why::accelerated: it is known.
Why find_place(Connection& connection, int fd) {
  MeetingPlace& place = connection.place;
  Address own, peer;
  if (!addresses(fd, own, peer)) return Why::waiting;
  if (!same_host(own, peer)) return Why::remote;
  const int order = std::memcmp(own.bytes.data(), peer.bytes.data(), own.bytes.size());
  if (order == 0) return Why::not_connected;  // connected to itself
  place.mine = order < 0;
  const auto behind = std::ranges::copy(place.mine ? own.bytes : peer.bytes, place.addresses.begin()).out;
  std::ranges::copy(place.mine ? peer.bytes : own.bytes, behind);
  place.network = network_of(fd);
  place.known = true;
  return why_not_on_ring(connection, fd);
}

void attempt(Connection& connection, int fd) {
  if (in_borrowed_memory()) return;  // its descriptors are not those of the table
  if (registry_records.load(std::memory_order_relaxed) == nullptr) registry_add(connection, fd);  // forked since
  if (connection.family != nullptr && !sole_member(*connection.family, ::getpid()))
    return later(connection, Why::held_elsewhere);
  if (connection.life.load() == Life::offering)
    return connection.place.mine ? look_for_caller(connection, fd) : look_for_answer(connection, fd);
  if (!connection.place.known) {
    const Why why = find_place(connection, fd);
    if (why == Why::waiting) return later(connection, Why::not_connected);
    if (why != Why::accelerated) return give_up(connection, why);
  }
  if (connection.place.mine)
    open_offer(connection);
  else
    call(connection, fd);
}

void try_to_meet(Connection& connection, int fd) {
  if (connection.life.load(std::memory_order_relaxed) > Life::offering || !connection.upgrade_lock.try_acquire())
    return;
  const ErrnoKeeper keeper;
  const Uncancelled here;
  if (connection.life.load() <= Life::offering) attempt(connection, fd);
  connection.upgrade_lock.release();
}

}  // namespace

void count_operation(Connection& connection, int fd, std::size_t bytes) {
  const std::uint32_t wanted = operations_wanted();
  const std::size_t most = std::max(wanted, kMostForOneCall);
  const auto count = static_cast<std::uint32_t>(1 + std::min(bytes / kBytesPerOperation, most));
  const std::uint32_t now = connection.operations.load(std::memory_order_relaxed) + count;
  connection.operations.store(now, std::memory_order_relaxed);
  if (now < wanted || now < connection.next_attempt) return;
  try_to_meet(connection, fd);
}

void count_birth(Connection& connection, int fd) {
  if (settings().after == 1) count_operation(connection, fd, 0);
}

bool PeerOnItsWay::may_come() const {
  return connection_.life.load(std::memory_order_acquire) <= Life::offering &&
         peers.load(std::memory_order_relaxed) != Peers::stay_away;
}

void PeerOnItsWay::wait_a_moment(std::size_t bytes_left) {
  constexpr std::size_t kWorthWaiting = std::size_t{8} << 20;
  const auto is_expected = [this] { return may_come() && connection_.why.load() == Why::waiting; };
  if (patience_ns_ == 0 || bytes_left < kWorthWaiting || peers.load(std::memory_order_relaxed) != Peers::come ||
      !is_expected() || is_nonblocking(connection_, fd_))
    return;
  const ErrnoKeeper keeper;
  const std::uint64_t start = Clock::steady().now_ns();
  std::uint64_t took = 0;
  for (int unsent = 1; unsent > 0 && is_expected() && took < patience_ns_; took = Clock::steady().now_ns() - start) {
    try_to_meet(connection_, fd_);
    if (kernel::libc().ioctl(fd_, SIOCOUTQNSD, &unsent) != 0) break;
  }
  patience_ns_ -= std::min(patience_ns_, took);
}

void learn_from_end(const Connection& connection) {
  const Life life = connection.life.load();
  if (connection.place.known)
    peers.store(life == Life::attached ? Peers::come : Peers::stay_away, std::memory_order_relaxed);
  if (life != Life::offering && life != Life::attached) return;
  if (life == Life::attached) attached_here.fetch_sub(1, std::memory_order_relaxed);
  std::uint64_t messages = 0, bytes = 0;
  for (int which = 0; which < 2 && life == Life::attached; ++which) {
    messages += connection.memory.direction(which).tally.messages.load();
    bytes += connection.memory.direction(which).tally.bytes.load();
  }
  const bool worth_it = messages >= kMessagesWorthIt || bytes >= kBytesWorthIt;
  const std::uint32_t now = proof_times.load(std::memory_order_relaxed);
  proof_times.store(worth_it ? 1 : std::min(now * 2, kMostTimes), std::memory_order_relaxed);
}

void withdraw(Connection& connection) {
  if (connection.meeting < 0) return;
  close_internal(connection.meeting);
  connection.meeting = -1;
}

bool withdraw_for_now(Connection& connection) {
  if (connection.life.load() != Life::offering) return false;
  if (!connection.place.mine) {
    // What the other side has sent it goes on with: that is not left there. From here on it can send nothing.
    Why why;
    kernel::libc().shutdown(connection.meeting, SHUT_RDWR);
    if (hear(connection.meeting, 0, why) == Heard::memory) return false;
  }
  withdraw(connection);
  connection.set_life(Life::young);
  later(connection, Why::no_descriptors);
  return true;
}

namespace {

// mlockall(MCL_FUTURE) gave memory to all of it, before anything was put there.
void give_back_locked_memory(const StreamMemory& memory, int fd) {
  std::byte* const bulk = memory.bulk(0);
  const std::size_t bytes = 2 * memory.bulk_bytes;
  unsigned char resident = 0;
  if (::mincore(bulk + bytes - kPage, kPage, &resident) != 0 || (resident & 1) == 0) return;
  for (const Direction& direction : memory.control().direction)
    if (direction.sending.committed.load() != 0) return;
  ::munlock(bulk, bytes);
  ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              bulk - memory.base + static_cast<off_t>(kSegmentPayloadOffset), static_cast<off_t>(bytes));
}

}  // namespace

void attach(Connection& connection, int socket, Segment segment, int side) {
  Segment::Parts parts = std::move(segment).release();
  struct stat info {};
  connection.memory_inode = ::fstat(parts.fd.get(), &info) == 0 ? info.st_ino : 0;
  connection.memory_bytes = parts.payload.size();
  connection.memory = {parts.payload.data(), -1, bulk_bytes_of(parts.payload.size())};
  give_back_locked_memory(connection.memory, parts.fd.get());
  // Without a descriptor it works, but cannot be passed on.
  if (!is_high_number(socket)) connection.memory.fd = make_internal(parts.fd.release(), Need::some_day, &connection);
  connection.take_side(side);
  connection.inode = ::fstat(socket, &info) == 0 ? info.st_ino : 0;
  if (Opened opened = connection.opened.load(); opened == Opened::unknown && tcp_counts_agree(socket, opened))
    connection.opened.store(opened);
  deliver_doorbells_at_once(connection, socket);
  Sender(connection.memory, connection.out()).use_bulk(bulk_size_for(buffers_of(socket)));
  connection.own().pid.store(::getpid());
  join_family(connection.own().holders, ::getpid());
  registry_attached(connection);
  connection.set_why(Why::accelerated);
  attached_here.fetch_add(1, std::memory_order_relaxed);
  connection.set_life(Life::attached, std::memory_order_seq_cst);
  tell_of_shutdown(connection);    // of before
  sets_note_attached(connection);  // who sleeps already must be rung for, before the peer may use the ring
  announce_if_ready(connection, socket);
}

// A thread that was inside the kernel's recv before the memory was there would take doorbells for data.
void announce_if_ready(Connection& connection, int fd) {
  if (connection.own().attached.load(std::memory_order_relaxed) != 0) [[likely]]
    return;
  ReceiveState& state = connection.incoming().receiving;
  const StreamLock lock(state.lock);
  if (connection.own().attached.load() != 0 || connection.raw_receivers.load(std::memory_order_seq_cst) != 0) return;
  if (has_other_holders(connection)) return;  // whose threads we do not see
  std::uint64_t taken = 0;
  if (tcp_read(fd, taken)) state.tcp_taken.store(taken);
  connection.own().attached.store(1);
}

}  // namespace viaduct::sockets
