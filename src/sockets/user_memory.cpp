#include "sockets/user_memory.hpp"

#include <sys/syscall.h>

#include <cerrno>

#include "sockets/kernel.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::uintptr_t kPage = 4096, kWord = 8;

// A call that reads eight bytes and then refuses what it was asked. Where a sandbox refuses it before, nothing is
// known.
bool word_is_readable(std::uintptr_t at) {
  constexpr long kNoSuchWay = -1;
  return kernel::libc().syscall(SYS_rt_sigprocmask, kNoSuchWay, at / kWord * kWord, nullptr, kWord) == 0 ||
         errno != EFAULT;
}

}  // namespace

bool ask_whether_readable(std::uintptr_t first, std::size_t bytes) {
  if (bytes == 0) return true;
  if (first < kWord) return false;  // the kernel takes a word at 0 for none, and says nothing of it
  const std::uintptr_t last = first + bytes - 1;
  if (last < first) return false;
  const int kept = errno;
  bool readable = true;
  for (std::uintptr_t page = first / kPage; readable && page <= last / kPage; ++page)
    readable = word_is_readable(page == last / kPage ? last : page * kPage + kPage - 1);
  if (readable) this_thread.readable_page = last / kPage;
  errno = kept;
  return readable;
}

}  // namespace viaduct::sockets
