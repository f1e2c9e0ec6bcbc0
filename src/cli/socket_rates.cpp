#include "cli/socket_rates.hpp"

#include <algorithm>

namespace viaduct::cli {

namespace {

using sockets_view::Flow;
using sockets_view::Socket;

// A count that became smaller is another connection's, which began at zero.
double growth(std::uint64_t now, std::uint64_t before) {
  return static_cast<double>(now >= before ? now - before : now);
}

FlowRates rates_of(const Flow& now, const Flow& before, double seconds) {
  return {growth(now.bytes, before.bytes) / seconds, growth(now.messages, before.messages) / seconds,
          growth(now.wakes, before.wakes) / seconds};
}

void add(Flow& sum, const Flow& flow) {
  sum.bytes += flow.bytes;
  sum.messages += flow.messages;
  sum.wakes += flow.wakes;
}

void add(FlowRates& sum, const FlowRates& rates) {
  sum.bytes += rates.bytes;
  sum.messages += rates.messages;
  sum.wakes += rates.wakes;
}

void add(ProcessTraffic& process, const ConnectionTraffic& connection) {
  ++process.connected;
  if (connection.socket.on_rings()) ++process.on_rings;
  add(process.out, connection.socket.out);
  add(process.in, connection.socket.in);
  if (!process.rates || !connection.rates) return;
  add(process.rates->out, connection.rates->out);
  add(process.rates->in, connection.rates->in);
}

bool busier(const ConnectionTraffic& a, const ConnectionTraffic& b) {
  const auto messages = [](const ConnectionTraffic& connection) {
    const Socket& socket = connection.socket;
    return connection.rates ? connection.rates->out.messages + connection.rates->in.messages
                            : static_cast<double>(socket.out.messages + socket.in.messages);
  };
  return messages(a) > messages(b);
}

}  // namespace

Rates SocketRates::rates_since_last(const Socket& socket, const Key& key, double seconds) const {
  const auto last = before_.find(key);
  const Flows before = last == before_.end() ? Flows{} : last->second;  // a new one began at zero
  return {rates_of(socket.out, before.out, seconds), rates_of(socket.in, before.in, seconds)};
}

std::vector<ProcessTraffic> SocketRates::update(const std::vector<Socket>& sockets, std::uint64_t now_ns) {
  const double seconds = static_cast<double>(now_ns - before_ns_) / 1e9;
  std::map<Key, Flows> now;
  std::map<int, ProcessTraffic> processes;
  for (const Socket& socket : sockets) {
    ProcessTraffic& process = processes[socket.pid];
    const bool measured = known_.contains(socket.pid) && seconds > 0;
    process.pid = socket.pid;
    process.command = socket.command;
    if (measured && !process.rates) process.rates.emplace();
    if (!socket.connected()) continue;
    const Key key{socket.pid, socket.fd, socket.local, socket.peer};
    now[key] = {socket.out, socket.in};
    process.connections.push_back({socket, std::nullopt});
    if (measured) process.connections.back().rates = rates_since_last(socket, key, seconds);
    add(process, process.connections.back());
  }
  before_ = std::move(now);
  before_ns_ = now_ns;
  known_.clear();
  std::vector<ProcessTraffic> all;
  for (auto& [pid, process] : processes) {
    known_.insert(pid);
    std::stable_sort(process.connections.begin(), process.connections.end(), busier);
    all.push_back(std::move(process));
  }
  return all;
}

}  // namespace viaduct::cli
