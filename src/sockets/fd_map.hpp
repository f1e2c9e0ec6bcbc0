// What belongs to a descriptor number: two levels of pages made on first use, so memory follows the numbers in use and
// never RLIMIT_NOFILE. Looking up takes no lock. Pages are never given back.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <utility>

namespace viaduct::sockets {

template <class T>
class FdMap {
 public:
  static constexpr int kMost = 1 << 20;  // numbers beyond are left to the kernel alone

  [[gnu::always_inline]] T* find(int fd) const {
    if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kMost)) return nullptr;
    const Page* page = pages_[fd / kPerPage].load(std::memory_order_acquire);
    return page == nullptr ? nullptr : page->at[fd % kPerPage].load(std::memory_order_acquire);
  }

  // False: no memory, or a number beyond kMost.
  bool put(int fd, T* value) {
    if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kMost)) return false;
    std::atomic<Page*>& place = pages_[fd / kPerPage];
    Page* page = place.load(std::memory_order_acquire);
    if (page == nullptr) {
      void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return false;
      page = static_cast<Page*>(memory);
      Page* other = nullptr;
      if (!place.compare_exchange_strong(other, page)) {
        ::munmap(memory, sizeof(Page));
        page = other;
      }
    }
    page->at[fd % kPerPage].store(value, std::memory_order_release);
    return true;
  }

  T* take(int fd) { return replace(fd, nullptr); }
  // Only where there was something, which is returned: nobody finds the place empty meanwhile.
  T* replace(int fd, T* value) {
    if (find(fd) == nullptr) return nullptr;
    return pages_[fd / kPerPage].load(std::memory_order_acquire)->at[fd % kPerPage].exchange(value);
  }

  // The next `numbers` from `from` on, around, but each once, and without those whose page was never used:
  // use(fd, value), until that says false. Returns where to go on.
  template <class Use>
  int some(int from, int numbers, Use&& use) const {
    int fd = from;
    for (int passed = 0, looked = 0; passed < kMost && looked < numbers;) {
      const int in_page = fd % kPerPage;
      const Page* found = pages_[fd / kPerPage].load(std::memory_order_acquire);
      T* const value = found == nullptr ? nullptr : found->at[in_page].load(std::memory_order_acquire);
      const int step = found == nullptr ? kPerPage - in_page : 1;
      looked += found != nullptr;
      passed += step;
      const int here = std::exchange(fd, (fd + step) % kMost);
      if (value != nullptr && !use(here, value)) break;
    }
    return fd;
  }

  // Every number that has something, in order: use(fd, value).
  template <class Use>
  void each(Use&& use) const {
    for (int page = 0; page < kPages; ++page) {
      const Page* found = pages_[page].load(std::memory_order_acquire);
      for (int i = 0; found != nullptr && i < kPerPage; ++i)
        if (T* value = found->at[i].load(std::memory_order_acquire)) use(page * kPerPage + i, value);
    }
  }

 private:
  static constexpr int kPerPage = 1024;
  static constexpr int kPages = kMost / kPerPage;
  struct Page {
    std::atomic<T*> at[kPerPage];
  };
  std::atomic<Page*> pages_[kPages] = {};
};

}  // namespace viaduct::sockets
