// The floor of what moves bytes with one or two processors: the bare loops of `base`, with nothing around them. The
// second processor has a thread that spins while it is measured and sleeps otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace viaduct::bench {

class BareLoop {
 public:
  enum class Way { through_caches, past_caches };

  explicit BareLoop(int other_processor);
  ~BareLoop();
  BareLoop(const BareLoop&) = delete;
  BareLoop& operator=(const BareLoop&) = delete;

  // By the calling thread alone; or its second half by the other thread at the same time, who must be awake.
  static void copy(Way way, std::byte* to, const std::byte* from, std::size_t size);
  void copy_by_two(Way way, std::byte* to, const std::byte* from, std::size_t size);

  // While one of these lives the other thread spins.
  class Awake {
   public:
    explicit Awake(BareLoop& loop);
    ~Awake();
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

   private:
    BareLoop& loop_;
  };

 private:
  enum class State : std::uint32_t { asleep, awake, gone };
  void serve(int processor);

  std::atomic<State> wanted_{State::asleep};
  alignas(64) std::atomic<std::uint64_t> asked_{0};
  Way way_ = Way::through_caches;
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  std::size_t size_ = 0;
  alignas(64) std::atomic<std::uint64_t> done_{0};
  std::thread thread_;
};

}  // namespace viaduct::bench
