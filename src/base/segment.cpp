#include "base/segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/config.hpp"
#include "base/socket_message.hpp"

namespace viaduct {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kRequiredSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kWorthAsking = std::size_t{16} << 20;  // smaller reservations do not look at the machine first
constexpr std::byte kHandOver{'S'};                          // the byte a segment's descriptor travels with

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

// MFD_NOEXEC_SEAL is younger than Debian 12's kernel: without it where it is refused.
Fd make_memfd(const std::string& name, unsigned flags) {
  const unsigned wanted = flags | MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(static_cast<int>(::syscall(SYS_memfd_create, name.c_str(), wanted | MFD_NOEXEC_SEAL)));
  if (!fd && errno == EINVAL) fd = Fd(static_cast<int>(::syscall(SYS_memfd_create, name.c_str(), wanted)));
  return fd;
}

// fallocate makes the kernel find the pages now and report ENOSPC or ENOMEM instead of SIGBUS at the first touch.
Status reserve(int fd, std::size_t from, std::size_t to) {
  if (to <= from) return {};
  int rc;
  do rc = ::fallocate(fd, 0, static_cast<off_t>(from), static_cast<off_t>(to - from));
  while (rc != 0 && errno == EINTR);
  if (rc == 0) return {};
  return Error::from_code(errno == ENOSPC ? ENOMEM : errno,
                          fmt::format("reserve {} bytes of shared memory", to - from));
}

// What the machine could give without killing anybody; fallocate itself would go on until the kernel does.
std::uint64_t bytes_available() {
  std::ifstream file("/proc/meminfo");
  std::uint64_t kilobytes = 0;
  for (std::string name, line; file >> name && std::getline(file, line);)
    if (name == "MemAvailable:" || name == "SwapFree:") kilobytes += std::strtoull(line.c_str(), nullptr, 10);
  return kilobytes == 0 ? UINT64_MAX : kilobytes * 1024;  // a machine that does not say: let it try
}

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

std::byte* map_shared(int fd, std::size_t size, int protection) {
  void* memory = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// The kernel does not only refuse, it sends SIGXFSZ.
std::size_t largest_file() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

}  // namespace

Result<Segment> Segment::create(const SegmentSpec& spec) {
  if (spec.payload_size == 0 || spec.payload_size > SIZE_MAX / 4)
    return Error(EINVAL, fmt::format("create segment '{}': impossible size {}", spec.name, spec.payload_size));

  const auto attempt = [&](unsigned flags, std::size_t page) -> Result<Segment> {
    // Said only where it fails: this may run in a signal handler, which has interrupted malloc.
    const auto what = [&] { return fmt::format("create segment '{}' of {} bytes", spec.name, spec.payload_size); };
    Segment segment;
    segment.page_size_ = page;
    segment.size_ = round_up(kSegmentPayloadOffset + spec.payload_size, page);
    segment.fd_ = make_memfd(spec.name, flags);
    if (!segment.fd_) return Error::from_errno(what());
    if (segment.size_ > largest_file()) return Error(EFBIG, what() + ": larger than files may be (ulimit -f)");
    if (::ftruncate(segment.fd_.get(), static_cast<off_t>(segment.size_)) != 0) return Error::from_errno(what());
    if (const Status reserved = reserve(segment.fd_.get(), 0, kSegmentPayloadOffset); !reserved.ok())
      return reserved.error().because(what());
    segment.base_ = map_shared(segment.fd_.get(), segment.size_, kReadWrite);
    if (segment.base_ == nullptr) return Error::from_errno(what());
    if (const Status committed = segment.commit(std::min(spec.committed, segment.payload().size())); !committed.ok())
      return committed.error().because(what());
    const int seals = kRequiredSeals | (spec.peers_only_read ? F_SEAL_FUTURE_WRITE : 0);
    if (::fcntl(segment.fd_.get(), F_ADD_SEALS, seals) != 0) return Error::from_errno(what() + ": seal");
    *reinterpret_cast<SegmentHeader*>(segment.base_) = {kSegmentMagic, kSegmentVersion, kSegmentPayloadOffset,
                                                        segment.size_, spec.layout,     {}};
    return segment;
  };

  const bool huge_pages = spec.huge_pages == HugePages::prefer && Config::process().flag("VIADUCT_HUGE_PAGES");
  if (huge_pages && spec.payload_size >= kHugePage / 2) {
    if (auto huge = attempt(MFD_HUGETLB | MFD_HUGE_2MB, kHugePage)) return huge;
  }
  auto segment = attempt(0, 4096);
  if (segment && huge_pages)
    (void)::madvise(segment->base_, segment->size_, MADV_HUGEPAGE);  // a wish: most kernels leave shmem as it is
  return segment;
}

Result<Segment> Segment::adopt(Fd fd, std::uint64_t expected_layout) {
  return adopt_with(std::move(fd), expected_layout, kReadWrite);
}

Result<Segment> Segment::adopt_to_read(Fd fd, std::uint64_t expected_layout) {
  return adopt_with(std::move(fd), expected_layout, PROT_READ);
}

Result<Segment> Segment::adopt_with(Fd fd, std::uint64_t expected_layout, int protection) {
  const auto refuse = [](std::string why) { return Error(EPROTO, "adopt segment: " + std::move(why)); };

  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return refuse("not a memory file: it cannot be sealed");
  if ((seals & kRequiredSeals) != kRequiredSeals)
    return refuse("not sealed against shrinking and growing: its owner could truncate it under us");
  const bool sealed = (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
  if (sealed && (protection & PROT_WRITE) != 0) return refuse("sealed against writing");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Error::from_errno("adopt segment");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (info.st_size <= static_cast<off_t>(kSegmentPayloadOffset))
    return refuse(fmt::format("too small ({} bytes)", size));

  Segment segment;
  segment.size_ = size;
  segment.page_size_ = static_cast<std::size_t>(info.st_blksize);
  segment.base_ = map_shared(fd.get(), size, protection);
  if (segment.base_ == nullptr) return Error::from_errno("adopt segment: map");
  segment.fd_ = std::move(fd);
  segment.committed_ = segment.payload().size();  // the creator's promise; pages come from the shared memfd

  const SegmentHeader header = *reinterpret_cast<const SegmentHeader*>(segment.base_);
  if (header.magic != kSegmentMagic) return refuse(fmt::format("wrong magic {:#x}", header.magic));
  if (header.version != kSegmentVersion)
    return refuse(
        fmt::format("version {}, this program speaks {}; update the older side", header.version, kSegmentVersion));
  if (header.payload_offset != kSegmentPayloadOffset || header.total_size != size)
    return refuse(fmt::format("its header says {} bytes, the file has {}", header.total_size, size));
  if (header.layout_hash != expected_layout)
    return refuse(fmt::format("layout {:#x} where {:#x} is expected; both sides must be of one Viaduct version",
                              header.layout_hash, expected_layout));
  return segment;
}

Segment::Segment(Segment&& other) noexcept {
  *this = std::move(other);
}

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  fd_ = std::move(other.fd_);
  base_ = std::exchange(other.base_, nullptr);
  size_ = std::exchange(other.size_, 0);
  committed_ = std::exchange(other.committed_, 0);
  page_size_ = other.page_size_;
  return *this;
}

Segment::~Segment() {
  unmap();
}

void Segment::unmap() {
  if (base_ != nullptr) ::munmap(base_, size_);
  base_ = nullptr;
}

Status Segment::commit(std::size_t bytes) {
  if (bytes > payload().size()) return Error(EINVAL, fmt::format("commit {} bytes of a smaller segment", bytes));
  if (bytes <= committed_) return {};
  const std::size_t end = std::min(size_, round_up(kSegmentPayloadOffset + bytes, page_size_));
  const std::size_t from = (kSegmentPayloadOffset + committed_) / page_size_ * page_size_;
  const bool ordinary = page_size_ == 4096;  // huge pages come from a pool of their own, which refuses by itself
  if (ordinary && end - from >= kWorthAsking && end - from > bytes_available())
    return Error::from_code(ENOMEM, fmt::format("reserve {} bytes of shared memory", end - from));
  VIADUCT_CHECK(reserve(fd_.get(), from, end));
  committed_ = end - kSegmentPayloadOffset;
  return {};
}

Status send_segment(int socket, const Segment& segment) {
  const int fd = segment.fd();
  return send_with_fds(socket, {&kHandOver, 1}, {&fd, 1}).because("send segment");
}

Result<Segment> receive_segment(int socket, std::uint64_t expected_layout) {
  auto message = receive_with_fds(socket, 1, 1);
  if (!message) return message.error().because("receive segment");
  if (message->fds.size() != 1 || message->bytes.size() != 1 || message->bytes[0] != kHandOver)
    return Error(EPROTO, "receive segment: the peer sent something else");
  return Segment::adopt(std::move(message->fds[0]), expected_layout).because("receive segment");
}

}  // namespace viaduct
