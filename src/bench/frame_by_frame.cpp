#include "bench/frame_by_frame.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace viaduct::bench {

namespace {

class Card {
 public:
  explicit Card(const std::string& interface) : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    interface.copy(request_.ifr_name, IFNAMSIZ - 1);
  }
  // `command` begins with the number of what is asked for.
  bool ask(void* command) {
    request_.ifr_data = static_cast<char*>(command);
    return ::ioctl(socket_.get(), SIOCETHTOOL, &request_) >= 0;
  }

 private:
  Fd socket_;
  ifreq request_{};
};

// A command with an array of any length behind it, as ethtool has them.
template <class Command>
class Tailed {
 public:
  explicit Tailed(std::size_t tail) : bytes_(sizeof(Command) + tail) {}
  Command* operator->() { return reinterpret_cast<Command*>(bytes_.data()); }
  void* get() { return bytes_.data(); }
  std::byte* tail() { return bytes_.data() + sizeof(Command); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

Status send_frame_by_frame(const std::string& interface) {
  Card card(interface);
  const auto fault = [&] { return Error::from_errno("turn segmentation offload of " + interface + " off"); };

  Tailed<ethtool_sset_info> count(sizeof(__u32));
  count->cmd = ETHTOOL_GSSET_INFO;
  count->sset_mask = 1ULL << ETH_SS_FEATURES;
  __u32 features = 0;
  if (!card.ask(count.get())) return fault();
  std::memcpy(&features, count.tail(), sizeof features);

  Tailed<ethtool_gstrings> names(std::size_t{features} * ETH_GSTRING_LEN);
  names->cmd = ETHTOOL_GSTRINGS;
  names->string_set = ETH_SS_FEATURES;
  names->len = features;
  if (!card.ask(names.get())) return fault();

  const std::size_t words = (features + 31) / 32;
  Tailed<ethtool_sfeatures> change(words * sizeof(ethtool_set_features_block));
  change->cmd = ETHTOOL_SFEATURES;
  change->size = static_cast<__u32>(words);
  auto* const blocks = reinterpret_cast<ethtool_set_features_block*>(change.tail());
  for (std::size_t i = 0; i < features; ++i) {
    const char* const name = reinterpret_cast<const char*>(names.tail()) + i * ETH_GSTRING_LEN;
    const std::string_view text(name, ::strnlen(name, ETH_GSTRING_LEN));
    if (!text.starts_with("tx-tcp") && !text.starts_with("tx-udp") && text != "tx-gso-list") continue;
    if (!text.ends_with("segmentation") && text != "tx-gso-list") continue;
    blocks[i / 32].valid |= 1U << i % 32;
  }
  if (!card.ask(change.get())) return fault();
  return {};
}

}  // namespace viaduct::bench
