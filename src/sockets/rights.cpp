#include "sockets/rights.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "sockets/table.hpp"
#include "sockets/user_memory.hpp"

namespace viaduct::sockets {

void release_passed(const msghdr* message) {
  if (message == nullptr || !is_readable(message) || message->msg_control == nullptr ||
      message->msg_controllen < sizeof(cmsghdr) || !is_readable(message->msg_control, message->msg_controllen))
    return;
  const int kept = errno;
  const auto* const end = static_cast<const std::byte*>(message->msg_control) + message->msg_controllen;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(const_cast<msghdr*>(message), header)) {
    const auto room = static_cast<std::size_t>(end - reinterpret_cast<const std::byte*>(header));
    if (header->cmsg_len < sizeof *header || header->cmsg_len > room) break;  // the kernel refuses all of it
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      Connection* const connection = find_connection(fd);
      if (connection == nullptr) continue;
      connection->shared.store(true);  // its flags too
      connection->lent.store(true);
      make_plain(*connection, fd, Why::passed);
    }
  }
  errno = kept;
}

}  // namespace viaduct::sockets
