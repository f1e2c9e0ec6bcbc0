// Two hosts for tests: network namespaces of the test's own, joined by a veth pair. Abstract sockets, ports and
// interfaces of one are not the other's. Who may not make them (no iproute2, no user namespaces) finds the reason in
// missing().
//
//   TwoHosts hosts;
//   if (!hosts.missing().empty()) GTEST_SKIP() << hosts.missing();
//   Child server([&] { hosts.enter(TwoHosts::left); ... });
//   hosts.address(TwoHosts::left) is where the right one finds it
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/fd.hpp"

namespace viaduct {

class TwoHosts {
 public:
  enum Host { left, right };

  explicit TwoHosts(unsigned mtu = 1500) : before_(here()) {
    if (!make_namespaces()) return;
    for (const Host host : {left, right}) {  // else the kernel sends frames of its own
      enter(host);
      write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
      write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    }
    enter(left);
    const std::string there = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(right_.get());
    if (!run("ip link add name " + interface(left) + " type veth peer name " + interface(right) + " netns " + there))
      return;
    for (const Host host : {left, right}) {
      enter(host);
      (void)(run("ip link set lo up") && run("ip addr add " + address(host) + "/24 dev " + interface(host)) &&
             run("ip link set " + interface(host) + " mtu " + std::to_string(mtu) + " up"));
    }
    leave();
  }
  ~TwoHosts() { leave(); }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  const std::string& missing() const { return missing_; }
  static std::string address(Host host) { return host == left ? "10.77.0.1" : "10.77.0.2"; }
  static std::string interface(Host host) { return host == left ? "hostl" : "hostr"; }

  // The calling thread is there from now on, and what it starts.
  void enter(Host host) const { (void)::setns((host == left ? left_ : right_).get(), CLONE_NEWNET); }
  int descriptor(Host host) const { return (host == left ? left_ : right_).get(); }
  // Back to where the test began, if that is permitted.
  void leave() const { (void)::setns(before_.get(), CLONE_NEWNET); }

  // Of so many thousandths of the datagrams that come to a host nobody hears. False: there is no nft here.
  bool lose(Host host, int per_thousand) {
    enter(host);
    const std::string command =
        "nft add table inet lossy && nft add chain inet lossy arriving '{ type filter hook input priority 0 ; }' && "
        "nft add rule inet lossy arriving meta l4proto udp numgen random mod 1000 '<' " +
        std::to_string(per_thousand) + " drop";
    const bool done = std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
    leave();
    return done;
  }
  // An `ip` command there.
  bool run_in(Host host, const std::string& command) {
    enter(host);
    const bool done = run(command);
    leave();
    return done;
  }

 private:
  static Fd here() { return Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)); }
  bool make_namespaces() {
    const uid_t user = ::getuid();
    const gid_t group = ::getgid();
    if (::unshare(CLONE_NEWNET) != 0) {
      if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        missing_ = std::string("no network namespaces of our own (unshare: ") + std::strerror(errno) + ")";
        return false;
      }
      write("/proc/self/setgroups", "deny");
      write("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");  // programs we start keep what root may
      write("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
    }
    left_ = here();
    if (::unshare(CLONE_NEWNET) != 0)
      missing_ = std::string("no second network namespace (") + std::strerror(errno) + ")";
    right_ = here();
    return missing_.empty();
  }
  bool run(const std::string& command) {
    if (!missing_.empty()) return false;
    if (std::system((command + " >/dev/null 2>&1").c_str()) == 0) return true;
    missing_ = "'" + command + "' does not work here";
    return false;
  }
  static void write(const char* path, const std::string& text) { std::ofstream(path) << text; }

  Fd before_, left_, right_;
  std::string missing_;
};

}  // namespace viaduct
