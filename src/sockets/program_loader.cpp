#include "sockets/program_loader.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "sockets/kernel.hpp"

namespace viaduct::sockets {

namespace {

constexpr int kMostInterpreters = 4;  // of interpreters, as the kernel has it

struct File {
  dev_t device;
  ino_t inode;
};
constinit File own_loader{};

// Where ours is not known, its name has to do.
bool is_our_loader(const char* path) {
  if (own_loader.inode == 0) return std::strstr(path, "/ld-linux") != nullptr;
  struct stat info {};
  return ::stat(path, &info) == 0 && info.st_ino == own_loader.inode && info.st_dev == own_loader.device;
}

Loading loading_of(const char* path, int depth);

// "#!interpreter": what really runs.
Loading loading_of_script(const char* line, int depth) {
  char interpreter[256];
  if (std::sscanf(line, "#! %255s", interpreter) != 1) return Loading::ignores;
  return loading_of(interpreter, depth + 1);
}

// The start of a file, as far as it was read.
class Start {
 public:
  Start(const char* bytes, std::size_t size) : bytes_(bytes), size_(size) {}

  template <class Header, class Segment>
  Loading by_interpreter() const {
    Header header;
    if (!get(0, header)) return Loading::ignores;
    for (int i = 0; i < header.e_phnum; ++i) {
      Segment segment;
      if (!get(header.e_phoff + static_cast<std::size_t>(i) * header.e_phentsize, segment)) return Loading::ignores;
      if (segment.p_type == PT_INTERP) return by_name(segment.p_offset, segment.p_filesz);
    }
    return Loading::ignores;
  }

 private:
  template <class Value>
  bool get(std::size_t at, Value& value) const {
    if (at > size_ || size_ - at < sizeof value) return false;
    std::memcpy(&value, bytes_ + at, sizeof value);
    return true;
  }
  Loading by_name(std::size_t at, std::size_t length) const {
    char name[PATH_MAX] = {};
    if (at > size_ || size_ - at < length) return Loading::ignores;
    std::memcpy(name, bytes_ + at, std::min(length, sizeof name - 1));
    return bytes_[EI_CLASS] == ELFCLASS64 && is_our_loader(name) ? Loading::takes : Loading::chokes_on;
  }

  const char* bytes_;
  std::size_t size_;
};

Loading loading_of(const char* path, int depth) {
  const int fd = depth <= kMostInterpreters ? kernel::libc().open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return Loading::ignores;
  char start[4096] = {};
  const ssize_t size = kernel::libc().read(fd, start, sizeof start - 1);
  struct stat info {};
  const bool privileged = ::fstat(fd, &info) != 0 || (info.st_mode & (S_ISUID | S_ISGID)) != 0 ||
                          ::fgetxattr(fd, "security.capability", nullptr, 0) > 0;
  kernel::libc().close(fd);
  if (size > 2 && std::memcmp(start, "#!", 2) == 0) return loading_of_script(start, depth);
  if (privileged || size < EI_NIDENT || std::memcmp(start, ELFMAG, SELFMAG) != 0) return Loading::ignores;
  const Start file(start, static_cast<std::size_t>(size));
  return start[EI_CLASS] == ELFCLASS64 ? file.by_interpreter<Elf64_Ehdr, Elf64_Phdr>()
                                       : file.by_interpreter<Elf32_Ehdr, Elf32_Phdr>();
}

}  // namespace

void remember_own_loader() {
  Dl_info loader{};
  struct stat info {};
  const unsigned long base = ::getauxval(AT_BASE);  // none, where the program was given to the loader as its argument
  if (base != 0 && ::dladdr(reinterpret_cast<void*>(base), &loader) != 0 && ::stat(loader.dli_fname, &info) == 0)
    own_loader = {info.st_dev, info.st_ino};
}

Loading loading_of(const char* path) {
  return loading_of(path, 0);
}

bool leave_library_out(char* libraries) {
  constexpr char kBetween[] = ": ";
  char* to = libraries;
  for (const char* from = libraries; *(from += std::strspn(from, kBetween)) != '\0';) {
    const std::size_t length = std::strcspn(from, kBetween);
    if (::memmem(from, length, kLibraryName, sizeof kLibraryName - 1) == nullptr) {
      if (to != libraries) *to++ = kBetween[0];
      to = static_cast<char*>(std::memmove(to, from, length)) + length;
    }
    from += length;
  }
  *to = '\0';
  return to != libraries;
}

}  // namespace viaduct::sockets
