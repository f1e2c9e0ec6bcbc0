#include "base/counters.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <mutex>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/processes.hpp"
#include "base/segment.hpp"

namespace viaduct {

namespace {

constexpr std::uint32_t kCapacity = 255;
constexpr std::size_t kNameSize = 48;
constexpr const char* kMemfdName = "viaduct-counters";
constexpr std::uint64_t kLayout =
    layout_hash("counters 1: header{used u32} entry{value u64,state u32,pad u32,name[48]}");

enum EntryState : std::uint32_t { kFree = 0, kNamed = 1 };

// Written by the owner; readers map it read-only.
struct alignas(64) Entry {
  std::atomic<std::uint64_t> value;
  std::atomic<std::uint32_t> state;  // R1: kNamed (release) publishes the name; pairs with A1 in read_segment()
  std::uint32_t unused;
  char name[kNameSize];
};
static_assert(sizeof(Entry) == 64);

struct Page {
  alignas(64) std::atomic<std::uint32_t> used;
  Entry entries[kCapacity];
};
static_assert(offsetof(Page, entries) == 64 && sizeof(Page) == 64 * (kCapacity + 1));

class Board {
 public:
  static Board& process() {
    static Board* const board = new Board;  // never destroyed: threads may count until the very end
    return *board;
  }

  Counter find_or_add(std::string_view name) {
    name = name.substr(0, kNameSize - 1);
    const std::lock_guard lock(mutex_);
    if (page_ == nullptr) return Counter(&nowhere_);
    const std::uint32_t used = page_->used.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < used; ++i)
      if (name == page_->entries[i].name) return Counter(&page_->entries[i].value);
    if (used == kCapacity) return Counter(&nowhere_);
    Entry& entry = page_->entries[used];
    std::memcpy(entry.name, name.data(), name.size());
    entry.state.store(kNamed, std::memory_order_release);  // R1
    page_->used.store(used + 1, std::memory_order_release);
    return Counter(&entry.value);
  }

 private:
  Board() {
    if (!Config::process().flag("VIADUCT_COUNTERS")) return;
    auto segment = Segment::create({kMemfdName, kLayout, sizeof(Page)});
    if (!segment) {
      log::fault(segment.error().because("counters are not published").message());
      return;
    }
    segment_ = std::move(*segment);
    page_ = segment_.as<Page>();
    ::pthread_atfork([] { process().mutex_.lock(); }, [] { process().mutex_.unlock(); },
                     [] { process().start_anew_in_child(); });
  }

  // The child shares the parent's pages: put its own in the same place, with the same names and zero counts.
  void start_anew_in_child() {
    if (page_ == nullptr) return mutex_.unlock();
    auto fresh = Segment::create({kMemfdName, kLayout, sizeof(Page)});
    if (fresh) {
      Page* copy = fresh->as<Page>();
      const std::uint32_t used = page_->used.load(std::memory_order_relaxed);
      for (std::uint32_t i = 0; i < used; ++i) {
        std::memcpy(copy->entries[i].name, page_->entries[i].name, kNameSize);
        copy->entries[i].state.store(kNamed, std::memory_order_release);
      }
      copy->used.store(used, std::memory_order_release);
    }
    std::byte* const base = segment_.payload().data() - kSegmentPayloadOffset;
    const std::size_t size = segment_.payload().size() + kSegmentPayloadOffset;
    const bool placed =
        fresh && ::mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fresh->fd(), 0) != MAP_FAILED;
    if (placed)
      (void)::dup3(fresh->fd(), segment_.fd(), O_CLOEXEC);
    else
      stop_publishing(base, size);
    mutex_.unlock();
  }

  // Without memory the child counts in private pages that nobody reads, never in its parent's. The descriptor goes too:
  // whoever looked for the child's counters would find the parent's. Nothing uses segment_ any more without page_.
  void stop_publishing(std::byte* base, std::size_t size) {
    (void)::mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    (void)::close(segment_.fd());
    page_ = nullptr;
  }

  std::mutex mutex_;
  Segment segment_;
  Page* page_ = nullptr;
  std::atomic<std::uint64_t> nowhere_{0};
};

std::string command_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

// The owner is another process and not trusted: sizes and names are bounded, the header is checked, the map is
// read-only.
Result<std::vector<CounterReading>> read_segment(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error::from_errno("read counters");
  constexpr std::size_t kSize = kSegmentPayloadOffset + sizeof(Page);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (info.st_size < static_cast<off_t>(kSize) || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Error(EPROTO, "read counters: not a sealed counter segment");
  void* const map = ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return Error::from_errno("read counters: map");
  std::vector<CounterReading> readings;
  const auto* header = static_cast<const SegmentHeader*>(map);
  const bool ours =
      header->magic == kSegmentMagic && header->version == kSegmentVersion && header->layout_hash == kLayout;
  if (ours) {
    const auto* page = reinterpret_cast<const Page*>(static_cast<const std::byte*>(map) + kSegmentPayloadOffset);
    const std::uint32_t used = std::min(page->used.load(std::memory_order_acquire), kCapacity);
    for (std::uint32_t i = 0; i < used; ++i) {
      const Entry& entry = page->entries[i];
      if (entry.state.load(std::memory_order_acquire) != kNamed) continue;  // A1, pairs with R1
      readings.push_back(
          {std::string(entry.name, ::strnlen(entry.name, kNameSize)), entry.value.load(std::memory_order_relaxed)});
    }
  }
  ::munmap(map, kSize);
  if (!ours) return Error(EPROTO, "read counters: another version of Viaduct wrote them");
  return readings;
}

}  // namespace

Counter counter(std::string_view name) {
  return Board::process().find_or_add(name);
}

Result<ProcessCounters> read_counters(int pid) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  DIR* const listing = ::opendir(folder.c_str());
  if (listing == nullptr) return Error::from_errno(fmt::format("read counters of process {}", pid));
  Result<ProcessCounters> result = Error(ENOENT, fmt::format("process {} publishes no counters", pid));
  const std::string wanted = fmt::format("/memfd:{} (deleted)", kMemfdName);
  while (const dirent* entry = ::readdir(listing)) {
    const std::string path = folder + "/" + entry->d_name;
    char target[128];
    const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
    if (length < 0 || std::string_view(target, static_cast<std::size_t>(length)) != wanted) continue;
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) {
      result = Error::from_errno(fmt::format("read counters of process {}", pid));
      continue;
    }
    auto readings = read_segment(fd.get());
    if (!readings) {
      result = readings.error();
      continue;
    }
    result = ProcessCounters{pid, command_of(pid), std::move(*readings)};
    break;
  }
  ::closedir(listing);
  return result;
}

std::vector<ProcessCounters> read_all_counters() {
  std::vector<ProcessCounters> all;
  for (const int pid : all_processes())
    if (auto counters = read_counters(pid)) all.push_back(std::move(*counters));
  return all;
}

}  // namespace viaduct
