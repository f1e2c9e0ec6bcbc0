// What clients may do with addresses and ports. Without a rule everything is allowed; with rules, what one of them
// allows. One rule a line in a file, or one --allow option each:
//
//   bind     127.0.0.1         8000-8999
//   connect  10.0.0.0/8        443
//   connect  [2001:db8::]/32   *
//   bind     *                 80
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace viaduct::memnet {

class Policy {
 public:
  enum class What { bind, connect };

  Status add(std::string_view rule);
  Status read(const std::string& path);
  bool empty() const { return rules_.empty(); }

  bool allows(What what, const sockaddr_storage& address) const;

 private:
  struct Rule {
    What what;
    int family;        // AF_UNSPEC: any address
    in6_addr address;  // of IPv4 the first four bytes
    unsigned bits;
    std::uint16_t first_port, last_port;
  };
  std::vector<Rule> rules_;
};

}  // namespace viaduct::memnet
