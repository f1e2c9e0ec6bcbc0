#include "sockets/rights.hpp"

#include <cerrno>
#include <cstring>

#include "sockets/table.hpp"

namespace viaduct::sockets {

void release_passed(const msghdr* message) {
  if (message == nullptr || message->msg_control == nullptr || message->msg_controllen < sizeof(cmsghdr)) return;
  const int kept = errno;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(const_cast<msghdr*>(message), header)) {
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
