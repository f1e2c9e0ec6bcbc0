// How two processes of one host find each other: a name in the abstract space of UNIX sockets. Nothing appears in the
// file system and nothing is left behind.
//
// Anybody in the same network namespace may bind any such name first, and anybody may connect to it: so both ends ask
// the kernel who the other is before they speak. Sockets are stream sockets, close-on-exec, and never block by
// themselves. What is said then is in socket_message.hpp.
//
// Thread safety: functions from any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace viaduct::meeting {

constexpr std::size_t kLongestName = 107;  // without the leading zero byte

// The name itself where it fits, else its beginning and its hash; whoever meets there says the whole of it.
std::string fit_name(std::string name);

Result<Fd> listen_at(std::string_view name, int backlog);  // EADDRINUSE: somebody does; ENAMETOOLONG, EINVAL
Result<Fd> accept_at(int listener);                        // EAGAIN: nobody is waiting
Result<Fd> connect_at(std::string_view name);  // ECONNREFUSED: nobody listens; EAGAIN: its queue is full, or a signal

// Which users may share memory with this process.
enum class Peers {
  own_user,
  by_setting,  // own_user, or any user with VIADUCT_PEERS=any
};
bool any_user_may(Peers peers);
Status check_user(uid_t peer, Peers peers);         // EACCES
Result<pid_t> check_peer(int socket, Peers peers);  // as the kernel knows the other end; its process

// Until one of `events` (poll's), or an end, is there. ETIMEDOUT.
Status wait_for(int fd, short events, Deadline deadline);

}  // namespace viaduct::meeting
