// The peers of a UDP switch. Each has an Ethernet address here, by which frames to it and from it are known; it means
// nothing on another host. Peers that somebody keeps stay; of strangers, whose source addresses may be forged, the last
// few thousand are remembered. Any thread.
#pragma once

#include <netinet/in.h>
#include <viaduct/nic_mac.hpp>

#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "nic/mac/socket_address.hpp"

namespace viaduct::nic {

class UdpPeers {
 public:
  static constexpr std::size_t kMostStrangers = 4096;

  MacAddress keep(const SocketAddress& address) {
    const std::lock_guard lock(mutex_);
    Peer& peer = peers_[known(address)];
    ++peer.keepers;
    return mac_of(by_address_.at(key_of(address)));
  }
  void forget(const MacAddress& mac) {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(number_of(mac));
    if (found == peers_.end() || found->second.keepers == 0 || --found->second.keepers > 0) return;
    remember_stranger(found->first);
  }
  // Of a datagram that came.
  MacAddress sender(const SocketAddress& address) {
    const std::lock_guard lock(mutex_);
    const std::size_t before = peers_.size();
    const std::uint32_t number = known(address);
    if (peers_.size() != before) remember_stranger(number);
    return mac_of(number);
  }
  // False: there is no such peer.
  bool find(const std::byte* mac, SocketAddress& address) const {
    MacAddress wanted;
    std::memcpy(wanted.data(), mac, wanted.size());
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(number_of(wanted));
    if (found == peers_.end() || mac_of(found->first) != wanted) return false;
    address = found->second.address;
    return true;
  }

 private:
  struct Peer {
    SocketAddress address;
    std::uint32_t keepers = 0;
  };

  static std::string key_of(const SocketAddress& address) {
    if (address.family() == AF_INET6) {
      const auto& six = reinterpret_cast<const sockaddr_in6&>(address.storage);
      std::string key(reinterpret_cast<const char*>(&six.sin6_addr), sizeof six.sin6_addr);
      key.append(reinterpret_cast<const char*>(&six.sin6_port), sizeof six.sin6_port);
      return key.append(reinterpret_cast<const char*>(&six.sin6_scope_id), sizeof six.sin6_scope_id);
    }
    const auto& four = reinterpret_cast<const sockaddr_in&>(address.storage);
    std::string key(reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr);
    return key.append(reinterpret_cast<const char*>(&four.sin_port), sizeof four.sin_port);
  }
  static MacAddress mac_of(std::uint32_t number) {
    MacAddress mac{2, 'V'};  // locally administered
    for (std::size_t i = 0; i < 4; ++i) mac[2 + i] = static_cast<std::uint8_t>(number >> 8 * i);
    return mac;
  }
  static std::uint32_t number_of(const MacAddress& mac) {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < 4; ++i) number |= std::uint32_t{mac[2 + i]} << 8 * i;
    return number;
  }

  std::uint32_t known(const SocketAddress& address) {
    const auto [place, is_new] = by_address_.try_emplace(key_of(address), next_);
    if (is_new) peers_[next_++].address = address;
    return place->second;
  }
  void remember_stranger(std::uint32_t number) {
    if (strangers_.size() < kMostStrangers) {
      strangers_.push_back(number);
      return;
    }
    // The one that came longest ago makes room, unless somebody keeps it by now.
    std::uint32_t& oldest = strangers_[at_++ % kMostStrangers];
    const auto gone = peers_.find(oldest);
    if (gone != peers_.end() && gone->second.keepers == 0 && oldest != number) {
      by_address_.erase(key_of(gone->second.address));
      peers_.erase(gone);
    }
    oldest = number;
  }

  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::uint32_t> by_address_;
  std::unordered_map<std::uint32_t, Peer> peers_;
  std::vector<std::uint32_t> strangers_;
  std::size_t at_ = 0;
  std::uint32_t next_ = 1;
};

}  // namespace viaduct::nic
