// The kernel's TCP sockets in a process's network, by inode: /proc/PID/net/tcp and tcp6.
#pragma once

#include <istream>
#include <string>
#include <unordered_map>

namespace viaduct::sockets_view {

struct TcpEntry {
  std::string local, peer;
  std::string state;
};
using TcpTable = std::unordered_map<unsigned long, TcpEntry>;

// Adds what the file says; lines that say something else are passed over.
void read_tcp_lines(std::istream& lines, TcpTable& table);
TcpTable read_tcp_table(int pid);

// Which network the process is in, for those who read many processes; empty: cannot be told.
std::string network_of(int pid);

}  // namespace viaduct::sockets_view
