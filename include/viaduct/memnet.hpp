// memnet.hpp: memnet.h for C++, with ownership in types.
//
//   viaduct::memnet::Memory memory(buffer);                    // registered as long as it lives
//   auto job = viaduct::memnet::send(socket, memory.part(0, n));
//   if (auto fault = job.wait()) ...;                          // or co_await job, which says the same
//   job.bytes();
//
// What fails says so by a std::error_code of the generic category, whose values are those of errno.
#pragma once

#include <memnet.h>

#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>

namespace viaduct::memnet {

// One job under way. Its destructor waits, so the memory may be used right after it.
class [[nodiscard]] Job {
 public:
  Job() = default;
  explicit Job(memnet_job_t number) : number_(number) {}
  static Job failed(int error) {
    Job job;
    job.error_ = error;
    return job;
  }
  Job(Job&& other) noexcept : number_(std::exchange(other.number_, 0)), bytes_(other.bytes_), error_(other.error_) {}
  Job& operator=(Job&& other) noexcept {
    if (this == &other) return *this;
    (void)wait();
    number_ = std::exchange(other.number_, 0);
    bytes_ = other.bytes_;
    error_ = other.error_;
    return *this;
  }
  ~Job() { (void)wait(); }

  // Never blocks.
  bool done() { return number_ == 0 || take(memnet_job_done(number_, &result_)); }
  // Says the same every time it is asked.
  std::error_code wait() {
    while (number_ != 0) (void)take(memnet_job_wait(number_, -1, &result_));
    return {error_, std::generic_category()};
  }
  bool wait_for(int milliseconds) { return number_ == 0 || take(memnet_job_wait(number_, milliseconds, &result_)); }
  void cancel() {
    if (number_ != 0) (void)memnet_job_cancel(number_);
  }
  // Once it has ended: bytes that were moved, or the socket of an accept. -1: it failed.
  ssize_t bytes() const { return bytes_; }

  // The coroutine goes on in the thread that finds the job ended, inside whatever call of MemNet that is in.
  auto operator co_await() {
    struct Awaiter {
      Job& job;
      bool await_ready() { return job.done(); }
      bool await_suspend(std::coroutine_handle<> waiting) {
        const auto go_on = [](void* address) { std::coroutine_handle<>::from_address(address).resume(); };
        return memnet_job_notify(job.number_, go_on, waiting.address()) == 1;
      }
      std::error_code await_resume() { return job.wait(); }
    };
    return Awaiter{*this};
  }

 private:
  bool take(int answer) {
    if (answer == 0) return false;
    if (answer < 0 && errno == EINTR) return false;
    number_ = 0;
    bytes_ = answer > 0 ? result_.bytes : -1;
    error_ = answer > 0 ? result_.error : errno;
    return true;
  }

  memnet_job_t number_ = 0;
  memnet_result result_{};
  ssize_t bytes_ = -1;
  int error_ = 0;
};

// Registered memory.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::span<std::byte> bytes) : size_(bytes.size()) {
    if (memnet_register_mem(bytes.data(), bytes.size(), &handle_) != 0) handle_ = 0;
  }
  Memory(Memory&& other) noexcept : handle_(std::exchange(other.handle_, 0)), size_(other.size_) {}
  Memory& operator=(Memory&& other) noexcept {
    if (this == &other) return *this;
    let_go();
    handle_ = std::exchange(other.handle_, 0);
    size_ = other.size_;
    return *this;
  }
  ~Memory() { let_go(); }

  explicit operator bool() const { return handle_ != 0; }
  memnet_mem_t handle() const { return handle_; }
  memnet_piece whole() const { return {handle_, 0, size_}; }
  memnet_piece part(std::size_t offset, std::size_t length) const { return {handle_, offset, length}; }

 private:
  void let_go() {
    if (handle_ != 0) (void)memnet_deregister_mem(handle_);
    handle_ = 0;
  }
  memnet_mem_t handle_ = 0;
  std::size_t size_ = 0;
};

inline Job send(int socket, const memnet_piece& piece, int flags = 0) {
  memnet_job_t job;
  const int result = memnet_async_send(socket, piece.memory, piece.offset, piece.length, flags, &job);
  return result == 0 ? Job(job) : Job::failed(errno);
}
inline Job send(int socket, std::span<const memnet_piece> pieces, int flags = 0) {
  memnet_job_t job;
  const int result = memnet_async_sendv(socket, pieces.data(), static_cast<int>(pieces.size()), flags, &job);
  return result == 0 ? Job(job) : Job::failed(errno);
}
inline Job receive(int socket, const memnet_piece& piece, int flags = 0) {
  memnet_job_t job;
  const int result = memnet_async_recv(socket, piece.memory, piece.offset, piece.length, flags, &job);
  return result == 0 ? Job(job) : Job::failed(errno);
}
inline Job accept(int socket) {
  memnet_job_t job;
  return memnet_async_accept(socket, &job) == 0 ? Job(job) : Job::failed(errno);
}
inline Job send_file(int socket, int file, off_t offset, std::size_t length, int flags = 0) {
  memnet_job_t job;
  return memnet_async_sendfile(socket, file, offset, length, flags, &job) == 0 ? Job(job) : Job::failed(errno);
}

}  // namespace viaduct::memnet
