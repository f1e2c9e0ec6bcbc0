#include "via/vipl/address.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <utility>

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

std::string server_name(const WireAddress& address) {
  return meeting::fit_name(fmt::format("{}/server/{}", prefix(), discriminator_of(address)));
}

std::string peer_name(const WireAddress& a, const WireAddress& b) {
  std::string first = discriminator_of(a), second = discriminator_of(b);
  if (second < first) std::swap(first, second);
  return meeting::fit_name(fmt::format("{}/peers/{}/{}", prefix(), first, second));
}

}  // namespace viaduct::vipl
