#include "sockets_view/tcp_table.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace viaduct::sockets_view {

namespace {

// As the kernel numbers them, from 1; the words are those of ss(8).
constexpr const char* kStates[] = {"?",          "ESTAB",     "SYN-SENT", "SYN-RECV",   "FIN-WAIT-1",
                                   "FIN-WAIT-2", "TIME-WAIT", "UNCONN",   "CLOSE-WAIT", "LAST-ACK",
                                   "LISTEN",     "CLOSING",   "SYN-RECV"};

std::optional<std::uint32_t> hexadecimal(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (fault != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "0100007F:1F90": words of the address as the processor has them, and the port.
std::optional<std::string> address(std::string_view text) {
  const auto colon = text.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  const auto port = hexadecimal(text.substr(colon + 1));
  std::uint32_t words[4] = {};
  for (std::size_t i = 0; i < colon / 8; ++i) {
    const auto word = hexadecimal(text.substr(8 * i, 8));
    if (!word) return std::nullopt;
    words[i] = *word;
  }
  char name[INET6_ADDRSTRLEN];
  if (!port || ::inet_ntop(colon == 8 ? AF_INET : AF_INET6, words, name, sizeof name) == nullptr) return std::nullopt;
  return colon == 8 ? fmt::format("{}:{}", name, *port) : fmt::format("[{}]:{}", name, *port);
}

}  // namespace

void read_tcp_lines(std::istream& lines, TcpTable& table) {
  constexpr std::size_t kLocal = 1, kPeer = 2, kState = 3, kInode = 9;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream stream(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(stream), {}};
    if (fields.size() <= kInode) continue;
    const auto local = address(fields[kLocal]), peer = address(fields[kPeer]);
    const auto state = hexadecimal(fields[kState]);
    unsigned long inode = 0;
    (void)std::from_chars(fields[kInode].data(), fields[kInode].data() + fields[kInode].size(), inode);
    if (!local || !peer || !state || *state >= std::size(kStates) || inode == 0) continue;
    table[inode] = {*local, *peer, kStates[*state]};
  }
}

TcpTable read_tcp_table(int pid) {
  TcpTable table;
  for (const char* name : {"tcp", "tcp6"}) {
    std::ifstream file(fmt::format("/proc/{}/net/{}", pid, name));
    read_tcp_lines(file, table);
  }
  return table;
}

std::string network_of(int pid) {
  char target[64];
  const ssize_t length = ::readlink(fmt::format("/proc/{}/ns/net", pid).c_str(), target, sizeof target);
  return length < 0 ? "" : std::string(target, static_cast<std::size_t>(length));
}

}  // namespace viaduct::sockets_view
