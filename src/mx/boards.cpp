#include "mx/boards.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace viaduct::mx {

namespace {

constexpr std::uint64_t kMark = 0x0200'0000'0000;

std::uint32_t ipv4_of(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

bool is_of_this_host(std::uint64_t nic) {
  const auto all = boards();
  return is_loopback(nic) || std::any_of(all.begin(), all.end(), [&](const Board& one) { return one.nic == nic; });
}

}  // namespace

std::uint64_t nic_of_ipv4(std::uint32_t address) {
  return kMark | address;
}

bool is_nic(std::uint64_t nic) {
  return nic >> 32 == kMark >> 32 && (nic & UINT32_MAX) != 0;
}

bool is_loopback(std::uint64_t nic) {
  return (nic >> 24 & 0xff) == 127;
}

std::string address_text(std::uint64_t nic) {
  return fmt::format("{}.{}.{}.{}", nic >> 24 & 0xff, nic >> 16 & 0xff, nic >> 8 & 0xff, nic & 0xff);
}

std::vector<Board> boards() {
  std::vector<Board> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) == 0) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
      if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) != 0)
        found.push_back({nic_of_ipv4(ipv4_of(one->ifa_addr)), one->ifa_name});
    ::freeifaddrs(list);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Board& a, const Board& b) { return !is_loopback(a.nic) && is_loopback(b.nic); });
  if (found.empty()) found.push_back({nic_of_ipv4(INADDR_LOOPBACK), "lo"});
  return found;
}

std::string own_host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "localhost";
}

// This host's names all give its first board. "NAME:N" is board N there, as MX has it; only of this host do we know
// more than one.
bool nic_of_host(const std::string& whole, std::uint64_t& nic) {
  std::string name = whole;
  std::size_t board = 0;
  if (const std::size_t colon = name.rfind(':'); colon != std::string::npos) {
    const std::string digits = name.substr(colon + 1);
    if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos)
      return false;
    board = static_cast<std::size_t>(std::stoul(digits));
    name.resize(colon);
  }
  const auto own = boards();
  const auto give_own = [&] {
    if (board >= own.size()) return false;
    nic = own[board].nic;
    return true;
  };
  if (name == own_host_name() || name == "localhost") return give_own();
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (name.empty() || ::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return false;
  nic = nic_of_ipv4(ipv4_of(list->ai_addr));
  ::freeaddrinfo(list);
  if (is_loopback(nic)) return give_own();
  if (is_of_this_host(nic)) return board == 0 || give_own();
  return board == 0;
}

bool host_of_nic(std::uint64_t nic, std::string& name) {
  if (!is_nic(nic)) return false;
  if (is_of_this_host(nic)) {
    name = own_host_name();
    return true;
  }
  sockaddr_in question{};
  question.sin_family = AF_INET;
  question.sin_addr.s_addr = htonl(static_cast<std::uint32_t>(nic));
  char found[NI_MAXHOST] = "";
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&question), sizeof question, found, sizeof found, nullptr, 0,
                    0) != 0)
    return false;
  name = found;
  return true;
}

}  // namespace viaduct::mx
