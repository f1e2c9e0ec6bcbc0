#include "via/vipl/address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include <viaduct/net.hpp>

#include "base/meeting.hpp"

namespace viaduct::vipl {

namespace {

using meeting::Peers;

std::string hex(const std::uint8_t* bytes, std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string discriminator_of(const WireAddress& address) {
  return hex(address.bytes + address.host_length, address.discriminator_length);
}

// As text; empty: this host.
std::string host_of(const WireAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.host_length == 4) (void)::inet_ntop(AF_INET, address.bytes, text, sizeof text);
  if (address.host_length == 16) (void)::inet_ntop(AF_INET6, address.bytes, text, sizeof text);
  return text;
}

std::string prefix() {
  return meeting::any_user_may(Peers::by_setting) ? "viaduct/via/any" : fmt::format("viaduct/via/{}", ::geteuid());
}

}  // namespace

bool sane(const WireAddress& address) {
  return address.host_length <= kMostHostAddress && address.discriminator_length <= kMostDiscriminator;
}

bool read_address(const VIP_NET_ADDRESS* from, WireAddress& to) {
  to = {};
  if (from == nullptr || from->HostAddressLen > kMostHostAddress || from->DiscriminatorLen > kMostDiscriminator)
    return false;
  to.host_length = from->HostAddressLen;
  to.discriminator_length = from->DiscriminatorLen;
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(from) + offsetof(VIP_NET_ADDRESS, HostAddress);
  std::memcpy(to.bytes, bytes, std::size_t{to.host_length} + to.discriminator_length);
  return true;
}

void write_address(const WireAddress& from, VIP_NET_ADDRESS* to) {
  if (to == nullptr) return;
  to->HostAddressLen = from.host_length;
  to->DiscriminatorLen = from.discriminator_length;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(to) + offsetof(VIP_NET_ADDRESS, HostAddress);
  std::memcpy(bytes, from.bytes, std::size_t{from.host_length} + from.discriminator_length);
}

// All addresses of this host are one host: it is the discriminator that tells.
int compare(const WireAddress& a, const WireAddress& b) {
  return discriminator_of(a).compare(discriminator_of(b));
}

int order_of(const WireAddress& local, const WireAddress& remote) {
  if (const int order = compare(local, remote); order != 0) return order;
  const std::string host = host_of(remote);
  if (host.empty() || net::Engine::is_this_host(host)) return 0;
  if (local.host_length != remote.host_length) return local.host_length < remote.host_length ? -1 : 1;
  return std::memcmp(local.bytes, remote.bytes, local.host_length);
}

via::Place server_place(const WireAddress& address) {
  const std::string discriminator = discriminator_of(address);
  const std::string host = host_of(address);
  const bool stays = host.starts_with("127.") || host == "::1";
  return {host, meeting::fit_name(fmt::format("{}/server/{}", prefix(), discriminator)),
          stays ? "" : "vipl/server/" + discriminator};
}

via::Place peer_place(const WireAddress& local, const WireAddress& remote) {
  std::string first = discriminator_of(local), second = discriminator_of(remote);
  if (second < first) std::swap(first, second);
  const std::string both = fmt::format("peers/{}/{}", first, second);
  return {host_of(remote), meeting::fit_name(prefix() + '/' + both), meeting::fit_name("vipl/" + both)};
}

}  // namespace viaduct::vipl
