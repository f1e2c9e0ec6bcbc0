#include "memnet/server/policy.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

namespace viaduct::memnet {

namespace {

template <class Number>
bool parse(std::string_view text, Number most, Number& number) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc{} && end == text.data() + text.size() && number <= most;
}

bool same_bits(const std::uint8_t* a, const std::uint8_t* b, unsigned bits) {
  if (std::memcmp(a, b, bits / 8) != 0) return false;
  const unsigned rest = bits % 8;
  return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

// An IPv4 address that comes as IPv6 is judged as what it is.
int bytes_of(const sockaddr_storage& address, in6_addr& bytes, std::uint16_t& port) {
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    std::memcpy(&bytes, &in.sin_addr, sizeof in.sin_addr);
    port = ntohs(in.sin_port);
    return AF_INET;
  }
  const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
  port = ntohs(in.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
    std::memcpy(&bytes, in.sin6_addr.s6_addr + 12, 4);
    return AF_INET;
  }
  bytes = in.sin6_addr;
  return AF_INET6;
}

}  // namespace

Status Policy::add(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string what, address, ports, more;
  words >> what >> address >> ports >> more;
  const auto bad = [&](const char* why) { return Error(EINVAL, fmt::format("policy: '{}': {}", text, why)); };
  if (ports.empty() || !more.empty()) return bad("a rule is: bind|connect ADDRESS[/BITS] PORT[-PORT], * for any");
  Rule rule{};
  if (what != "bind" && what != "connect") return bad("a rule begins with bind or connect");
  rule.what = what == "bind" ? What::bind : What::connect;
  std::string_view host = address, bits;
  if (const auto slash = host.find('/'); slash != host.npos)
    bits = host.substr(slash + 1), host = host.substr(0, slash);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host == "*") {
    rule.family = AF_UNSPEC;
  } else if (::inet_pton(AF_INET, std::string(host).c_str(), &rule.address) == 1) {
    rule.family = AF_INET, rule.bits = 32;
  } else if (::inet_pton(AF_INET6, std::string(host).c_str(), &rule.address) == 1) {
    rule.family = AF_INET6, rule.bits = 128;
  } else {
    return bad("the address is no IPv4 or IPv6 address, nor *");
  }
  if (!bits.empty() && !parse(bits, rule.bits, rule.bits)) return bad("so many bits has no such address");
  const std::string_view range = ports;
  const auto dash = range.find('-');
  constexpr std::uint16_t kLast = 65535;
  rule.last_port = kLast;
  if (range != "*") {
    if (!parse(range.substr(0, dash), kLast, rule.first_port)) return bad("the port is no number up to 65535, nor *");
    rule.last_port = rule.first_port;
    if (dash != range.npos &&
        (!parse(range.substr(dash + 1), kLast, rule.last_port) || rule.last_port < rule.first_port))
      return bad("the ports are no range");
  }
  rules_.push_back(rule);
  return {};
}

Status Policy::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error::from_errno("policy " + path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (auto added = add(line); !added) return added.error().because(fmt::format("{}:{}", path, number));
  }
  return {};
}

bool Policy::allows(What what, const sockaddr_storage& address) const {
  if (rules_.empty()) return true;
  in6_addr bytes{};
  std::uint16_t port = 0;
  const int family = bytes_of(address, bytes, port);
  for (const Rule& rule : rules_) {
    if (rule.what != what || port < rule.first_port || port > rule.last_port) continue;
    if (rule.family == AF_UNSPEC) return true;
    if (rule.family == family && same_bits(bytes.s6_addr, rule.address.s6_addr, rule.bits)) return true;
  }
  return false;
}

}  // namespace viaduct::memnet
