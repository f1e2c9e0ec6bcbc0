#include "sockets_view/view.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sockets/registry_format.hpp"
#include "sockets/stream_format.hpp"
#include "sockets/why.hpp"
#include "sockets_view/process_files.hpp"
#include "sockets_view/tcp_table.hpp"

namespace viaduct::sockets_view {

namespace {

using sockets::Life;
using sockets::RegistryHead;
using sockets::RegistryRecord;
using sockets::StreamControl;
using sockets::Why;

// A record as it was when we looked.
struct Reading {
  int fd;
  std::uint32_t life, why;
  int memory;  // -1: none
  int side;
};

Result<std::vector<Reading>> records_in(const Segment& registry, int owner) {
  if (registry.payload().size() < sockets::kRegistryBytes) return Error(EPROTO, "a registry of sockets is too small");
  const auto* const head = registry.as<const RegistryHead>();
  if (head->pid.load(std::memory_order_acquire) != owner) return Error(ENOENT, "the registry is the parent's");
  const auto* const records = registry.as<const RegistryRecord>();
  const std::uint32_t used = std::min(head->used.load(std::memory_order_acquire), sockets::kRegistryRecords);
  std::vector<Reading> readings;
  for (std::uint32_t i = 1; i < used; ++i) {
    const RegistryRecord& record = records[i];
    const std::uint32_t descriptor = record.descriptor.load(std::memory_order_acquire);  // A1, pairs with R1
    if (descriptor == 0) continue;
    readings.push_back({static_cast<int>(descriptor - 1), record.life.load(std::memory_order_relaxed),
                        record.why.load(std::memory_order_relaxed),
                        static_cast<int>(record.memory.load(std::memory_order_relaxed)) - 1,
                        static_cast<int>(record.side.load(std::memory_order_relaxed) & 1)});
  }
  return readings;
}

Result<std::vector<Reading>> read_records(int pid) {
  VIADUCT_TRY(const std::vector<int> candidates, memfds_named(pid, sockets::kRegistryName));
  Error fault(ENOENT, fmt::format("process {} publishes no TCP sockets", pid));
  const int owner = own_number_of(pid);
  for (const int fd : candidates) {
    auto file = open_memfd(pid, fd, sockets::kRegistryName, O_RDONLY);
    auto segment =
        file ? Segment::adopt_to_read(std::move(*file), sockets::kRegistryLayout) : Result<Segment>(file.error());
    auto records = segment ? records_in(*segment, owner) : Result<std::vector<Reading>>(segment.error());
    if (records) return records;
    if (records.error().code() != ENOENT) fault = records.error().because(fmt::format("process {}", pid));
  }
  return fault;
}

Result<Segment> open_stream(int pid, int memory, int flags) {
  VIADUCT_TRY(Fd file, open_memfd(pid, memory, sockets::kStreamName, flags));
  auto segment = flags == O_RDONLY ? Segment::adopt_to_read(std::move(file), sockets::kStreamLayout)
                                   : Segment::adopt(std::move(file), sockets::kStreamLayout);
  if (segment && segment->payload().size() < sockets::kLeastStreamBytes)
    return Error(EPROTO, "a stream's memory is too small");
  return segment;
}

Route route_of(const StreamControl& control, int which) {
  const auto& end = control.end;
  const std::uint32_t mode = control.direction[which].path.mode.load(std::memory_order_acquire);
  if (mode != sockets::kTcp) return mode == sockets::kRing ? Route::ring : Route::tcp_again;
  const bool both =
      end[0].attached.load(std::memory_order_relaxed) != 0 && end[1].attached.load(std::memory_order_relaxed) != 0;
  // In the middle of a send over TCP, or asked to stay there.
  const bool on_tcp = (end[which].raw_senders.load(std::memory_order_relaxed) |
                       end[which].request.load(std::memory_order_relaxed)) != 0;
  return both && !on_tcp ? Route::ring : Route::tcp;
}

Flow flow_of(const StreamControl& control, int which) {
  const sockets::Direction& direction = control.direction[which];
  return {route_of(control, which), direction.tally.bytes.load(std::memory_order_relaxed),
          direction.tally.messages.load(std::memory_order_relaxed),
          direction.tally.wakes.load(std::memory_order_relaxed)};
}

// What both ends have measured, where they have.
std::string costs_of(const Socket& socket) {
  if (socket.ring_cost_ns == 0 || socket.tcp_cost_ns == 0) return "";
  return fmt::format(" ({:.1f} us of processor time for each, against {:.1f}); tried again later",
                     static_cast<double>(socket.ring_cost_ns) / 1000, static_cast<double>(socket.tcp_cost_ns) / 1000);
}

std::string why_not(const Socket& socket, const Reading& reading) {
  if (socket.state == "LISTEN") return "listening";
  if (!socket.connected()) return "not connected";
  if (socket.on_rings()) return "";
  if (socket.attached && socket.out.route != Route::tcp_again && socket.in.route != Route::tcp_again)
    return "the two sides have met: over rings with the next calls of both";
  const auto why = static_cast<Why>(reading.why);
  if (why == Why::dearer || (why == Why::accelerated && socket.dearer)) return words(Why::dearer) + costs_of(socket);
  return why == Why::accelerated ? words(Why::handed_back) : words(why);
}

// What is said instead of a reason where nothing can be seen; otherwise empty.
std::string look_into_stream(Socket& socket, const Reading& reading) {
  if (static_cast<Life>(reading.life) != Life::attached) return "";
  socket.attached = true;
  const auto segment = open_stream(socket.pid, reading.memory, O_RDONLY);
  if (!segment && segment.error().code() == EPROTO) return "accelerated by another version of Viaduct";
  if (!segment) return "accelerated, but its memory cannot be read from here";
  const auto& control = *segment->as<const StreamControl>();
  socket.out = flow_of(control, reading.side);
  socket.in = flow_of(control, 1 - reading.side);
  for (const sockets::Direction& direction : control.direction) {
    const std::uint64_t ring = direction.path.ring_cost.load(std::memory_order_relaxed),
                        tcp = direction.path.tcp_cost.load(std::memory_order_relaxed);
    if (ring == 0 || tcp == 0) continue;
    socket.ring_cost_ns += ring;
    socket.tcp_cost_ns += tcp;
  }
  socket.dearer = control.direction[reading.side].sending.dearer.load(std::memory_order_relaxed) != 0;
  socket.peer_pid = control.end[1 - reading.side].pid.load(std::memory_order_relaxed);
  if (socket.peer_pid != 0) return "";
  socket.attached = false;
  return "the other side has been sent the memory, and comes with its next call";
}

Result<std::vector<Socket>> read_with(int pid, const TcpTable& table) {
  VIADUCT_TRY(const std::vector<Reading> readings, read_records(pid));
  std::vector<Socket> sockets;
  const std::string command = command_of(pid);
  for (const Reading& reading : readings) {
    const unsigned long inode = socket_inode(pid, reading.fd);
    if (inode == 0) continue;  // closed since
    Socket socket;
    socket.pid = pid;
    socket.command = command;
    socket.fd = reading.fd;
    if (const auto known = table.find(inode); known != table.end()) {
      socket.local = known->second.local;
      socket.peer = known->second.state == "LISTEN" ? "" : known->second.peer;
      socket.state = known->second.state;
    } else {
      socket.state = "UNCONN";
    }
    const std::string unseen = look_into_stream(socket, reading);
    socket.why = unseen.empty() ? why_not(socket, reading) : unseen;
    sockets.push_back(std::move(socket));
  }
  std::sort(sockets.begin(), sockets.end(), [](const Socket& a, const Socket& b) { return a.fd < b.fd; });
  return sockets;
}

}  // namespace

const char* word_for(Route route) {
  return route == Route::ring ? "ring" : "tcp";
}

Result<std::vector<Socket>> read_sockets(int pid) {
  return read_with(pid, read_tcp_table(pid));
}

bool has_library(int pid) {
  return maps_file_named(pid, "libviaduct-sockets.so");
}

std::vector<Socket> read_all_sockets() {
  std::vector<Socket> all;
  std::map<std::string, TcpTable> tables;
  for (const int pid : process_numbers()) {
    const auto published = memfds_named(pid, sockets::kRegistryName);
    if (!published || published->empty()) continue;
    const std::string network = network_of(pid);
    auto table = tables.find(network);
    if (table == tables.end() || network.empty()) table = tables.insert_or_assign(network, read_tcp_table(pid)).first;
    auto sockets = read_with(pid, table->second);
    if (sockets)
      all.insert(all.end(), std::make_move_iterator(sockets->begin()), std::make_move_iterator(sockets->end()));
  }
  return all;
}

Result<LiveStream> LiveStream::open(int pid, int fd) {
  VIADUCT_TRY(const std::vector<Reading> readings, read_records(pid));
  for (const Reading& reading : readings) {
    if (reading.fd != fd) continue;
    if (static_cast<Life>(reading.life) != Life::attached)
      return Error(ENOTCONN, fmt::format("descriptor {} of process {} is not on a ring: {}", fd, pid,
                                         words(static_cast<Why>(reading.why))));
    VIADUCT_TRY(Segment segment, open_stream(pid, reading.memory, O_RDWR));
    return LiveStream(std::move(segment));
  }
  return Error(ENOENT, fmt::format("process {} has no TCP socket at descriptor {}", pid, fd));
}

void LiveStream::ask_back() {
  for (sockets::End& end : segment_.as<StreamControl>()->end) end.request.fetch_or(sockets::kHandBack);
}

bool LiveStream::returned() const {
  const auto& control = *segment_.as<const StreamControl>();
  return std::all_of(std::begin(control.direction), std::end(control.direction),
                     [](const sockets::Direction& direction) {
                       return direction.path.mode.load(std::memory_order_acquire) == sockets::kBack;
                     });
}

}  // namespace viaduct::sockets_view
