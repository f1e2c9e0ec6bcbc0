// An array as long as a list that a program gave, with nothing in it yet: on the stack while it is short, else from the
// kernel itself, since the call may come from a signal handler that has interrupted malloc.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <type_traits>

namespace viaduct::sockets {

template <class T, std::size_t few>
class FewOrMany {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit FewOrMany(std::size_t wanted) {
    if (wanted <= few) return;
    void* const memory =
        ::mmap(nullptr, wanted * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    first_ = static_cast<T*>(memory);
    length_ = wanted;
  }
  ~FewOrMany() {
    if (first_ != few_) ::munmap(first_, length_ * sizeof(T));
  }
  FewOrMany(const FewOrMany&) = delete;
  FewOrMany& operator=(const FewOrMany&) = delete;

  std::size_t length() const { return length_; }  // less than was wanted: there is no memory
  T* get() { return first_; }
  T& operator[](std::size_t which) { return first_[which]; }

 private:
  T few_[few];
  T* first_ = few_;
  std::size_t length_ = few;
};

}  // namespace viaduct::sockets
