// copy.hpp: the copy engine for C++. What the words mean is in adma.h; this is the same engine with ownership in types.
//
//   auto operation = viaduct::copy::start(source, destination, length);
//   while (operation.ready_bytes() < header_size) ...;      // consume while copying
//   if (auto fault = operation.wait()) ...;                 // or co_await operation; or let the destructor wait
#pragma once

#include <viaduct/adma.h>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace viaduct::copy {

using Cookie = adma_cookie_t;
using Piece = adma_piece;

enum class Intent { automatic = ADMA_AUTO, keep = ADMA_KEEP, stream = ADMA_STREAM };
enum class Order { unordered = ADMA_UNORDERED, after = ADMA_AFTER, fence = ADMA_FENCE };
enum class Choice { any = ADMA_ANY, caller = ADMA_CALLER, cpu = ADMA_CPU, cuda = ADMA_CUDA };

struct Options {
  Intent intent = Intent::automatic;
  Order order = Order::unordered;
  Cookie after = 0;
  Choice channel = Choice::any;
};

// One operation under way. Its destructor waits, so the buffers may be freed right after it.
class [[nodiscard, gnu::visibility("default")]] Operation {
 public:
  Operation() = default;
  Operation(Operation && other) noexcept : cookie_(std::exchange(other.cookie_, 0)), fault_(other.fault_) {}
  Operation& operator=(Operation&& other) noexcept;
  ~Operation();

  // Did it complete (or fail)? Never blocks.
  bool done();
  // Helps with what is left, then sleeps until it has completed. Says the same every time it is asked.
  std::error_code wait();
  std::size_t ready_bytes() const;

  // For Options::after. 0 once the end has been seen: then there is nothing to be after.
  Cookie cookie() const {
    return cookie_;
  }
  // Leaves the operation to the holder of the cookie, and back.
  Cookie release() {
    return std::exchange(cookie_, 0);
  }
  static Operation adopt(Cookie cookie);
  static Operation failed(std::error_code fault);

  // co_await gives the error code. The coroutine goes on in the thread that copied the last piece.
  auto operator co_await() {
    struct Awaiter {
      Operation& operation;
      bool await_ready() { return operation.done(); }
      bool await_suspend(std::coroutine_handle<> waiting) { return operation.resume_later(waiting); }
      std::error_code await_resume() { return operation.wait(); }
    };
    return Awaiter{*this};
  }

 private:
  bool resume_later(std::coroutine_handle<> waiting);  // false: already complete

  Cookie cookie_ = 0;      // 0: none, or its end has been seen
  std::error_code fault_;  // then: how it ended
};

VIADUCT_API Operation start(const void* source, void* destination, std::size_t length, const Options& options = {});
VIADUCT_API Operation start_fill(void* destination, int byte, std::size_t length, const Options& options = {});
VIADUCT_API Operation start_batch(std::span<const Piece> pieces, const Options& options = {});

VIADUCT_API std::error_code run_in_engine(const void* source, void* destination, std::size_t length,
                                          const Options& options);
VIADUCT_API void run_here(const void* source, void* destination, std::size_t length) noexcept;

// Blocking. Copies that would not be shared or streamed are a memmove right here, except where the destination lies 1
// to 63 bytes behind the source modulo 4096: there memmove is many times slower on some processors.
inline std::error_code run(const void* source, void* destination, std::size_t length, const Options& options = {}) {
  constexpr std::size_t kTiny = 4096, kHere = 512 << 10;
  const bool plain = options.order == Order::unordered && options.intent != Intent::stream &&
                     (options.channel == Choice::any || options.channel == Choice::caller);
  if (plain && length < kHere && source != nullptr && destination != nullptr) [[likely]] {
    const std::uintptr_t distance =
        reinterpret_cast<std::uintptr_t>(destination) - reinterpret_cast<std::uintptr_t>(source);
    if (length <= kTiny || (distance - 1) % 4096 >= 63) [[likely]]
      std::memmove(destination, source, length);
    else
      run_here(source, destination, length);
    return {};
  }
  return run_in_engine(source, destination, length, options);
}

// Collects copies and submits them at once; a batch that goes out of scope submits what it has and waits.
class Batch {
 public:
  explicit Batch(const Options& options = {}) : options_(options) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    if (!pieces_.empty()) (void)submit().wait();
  }

  void add(const void* source, void* destination, std::size_t length) {
    pieces_.push_back({source, destination, length});
  }
  std::size_t size() const { return pieces_.size(); }
  Operation submit() {
    const std::vector<Piece> pieces = std::exchange(pieces_, {});
    return start_batch(pieces, options_);
  }

 private:
  Options options_;
  std::vector<Piece> pieces_;
};

// What the engine knows about itself, for people: `viaduct info` prints it.
struct ChannelReport {
  std::string name;  // "caller, keep", "cpu, stream", "cuda 0"
  bool available = false;
  std::string detail;   // what it runs on, or why it is not there
  double start_ns = 0;  // cost of n bytes: start_ns + ns_per_byte * n
  double ns_per_byte = 0;
};
VIADUCT_API std::vector<ChannelReport> report_channels();  // measures on first use

}  // namespace viaduct::copy
