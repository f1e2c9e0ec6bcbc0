// A network namespace of the test's own: interfaces made there disturb nobody and go with the sockets that use them.
//
// Root enters one for the calling thread; anybody else with a user namespace around it, which only a process of one
// thread may. Where neither is permitted, missing() says so.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/fd.hpp"

namespace viaduct {

class OwnNetwork {
 public:
  OwnNetwork() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (!enter()) return;
    write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");  // else the kernel sends frames of its own
    write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    run("ip link set lo up");
  }
  ~OwnNetwork() {
    if (entered_) (void)::setns(before_.get(), CLONE_NEWNET);
  }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;

  const std::string& missing() const { return missing_; }

  // An `ip` command or the like; what it does not do is why the test is skipped.
  bool run(const std::string& command) {
    if (!missing_.empty()) return false;
    if (std::system((command + " >/dev/null 2>&1").c_str()) == 0) return true;
    missing_ = "'" + command + "' does not work here";
    return false;
  }
  bool add_veth(const std::string& a, const std::string& b, unsigned mtu = 1500) {
    const std::string size = " mtu " + std::to_string(mtu) + " up";
    return run("ip link add name " + a + " type veth peer name " + b) && run("ip link set " + a + size) &&
           run("ip link set " + b + size);
  }

 private:
  bool enter() {
    const uid_t user = ::getuid();
    const gid_t group = ::getgid();
    if (::unshare(CLONE_NEWNET) == 0) return entered_ = true;
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
      missing_ = std::string("no network namespace of our own (unshare: ") + std::strerror(errno) + ")";
      return false;
    }
    write("/proc/self/setgroups", "deny");
    write("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");  // programs we start keep what root may
    write("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
    return true;  // the way back is closed: the namespace outside belongs to others
  }
  static void write(const char* path, const std::string& text) { std::ofstream(path) << text; }

  Fd before_;
  bool entered_ = false;
  std::string missing_;
};

}  // namespace viaduct
