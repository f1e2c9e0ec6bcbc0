// `viaduct bench copy-latency`: figure 4 of the ADCE paper, hot and cold, small and large; plus the aliasing trap and a
// small copy behind large ones.
#include <viaduct/copy.hpp>

#include <cstring>
#include <optional>

#include "base/topology.hpp"
#include "bench/bare_loop.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"
#include "bench/tuned_memcpy.hpp"

namespace viaduct::bench {

namespace {

using copy::Choice;
using copy::Intent;
using copy::Order;

constexpr const char* kMemcpy = "memcpy";
constexpr const char* kTuned = "memcpy, tuned threshold";
constexpr const char* kLatency = "latency";
constexpr const char* kLoop = "bare loop, one thread";
constexpr const char* kLoopByTwo = "bare loop, two threads";
constexpr const char* kAlone = "engine, stream, one thread";
constexpr const char* kShared = "engine, stream, shared";

constexpr copy::Options kKeep{Intent::keep, Order::unordered, 0, Choice::any};
constexpr copy::Options kStream{Intent::stream, Order::unordered, 0, Choice::any};
constexpr copy::Options kStreamAlone{Intent::stream, Order::unordered, 0, Choice::caller};

class CopyLatency {
 public:
  explicit CopyLatency(const bench::Options& options) : options_(options) {}

  Result<Report> run() {
    start_copy_engine();
    const PinnedScope pinned(placement().mine);
    const std::size_t cold_size = (options_.quick ? std::size_t{192} : std::size_t{512}) << 20;
    VIADUCT_TRY(ColdPair cold, ColdPair::make(cold_size));
    VIADUCT_TRY(ColdPair hot, ColdPair::make(std::size_t{4} << 20));
    cold_.emplace(std::move(cold));
    hot_.emplace(std::move(hot));
    auto tuned = TunedMemcpy::start(cold_size, placement().mine);
    if (tuned)
      tuned_.emplace(std::move(*tuned));
    else
      suite_.note(tuned.error().because("memcpy with a tuned threshold is not measured").message());
    for (const std::size_t size : {1u << 10, 4u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20}) add_hot(size);
    for (const std::size_t size : {4u << 10, 64u << 10, 256u << 10}) add_cold(size, false);
    for (const std::size_t size : {1u << 20, 4u << 20, 16u << 20, 64u << 20}) add_cold(size, true);
    for (const std::size_t size : {4u << 10, 64u << 10, 256u << 10}) add_aliased(size);
    add_small_behind_large();
    return suite_.run(options_, 11);
  }

 private:
  template <class Copy>
  void add(const std::string& name, const char* who, Kind kind, std::size_t size, int count, ColdPair& pair, bool walk,
           std::size_t shift, Copy copy_once) {
    suite_.add({name, who, kind, kLatency, "us", Better::lower, [&pair, size, count, walk, shift, copy_once] {
                  if (walk) pair.next(size);  // also makes room where a shorter size left off
                  copy_once(pair.source(), pair.target() + shift, size);
                  const double time = nanoseconds([&] {
                    for (int i = 0; i < count; ++i) {
                      if (walk) pair.next(size);
                      copy_once(pair.source(), pair.target() + shift, size);
                    }
                  });
                  return time / count / 1000;
                }});
  }

  template <const copy::Options& kOptions>
  static auto engine() {
    return [](const std::byte* from, std::byte* to, std::size_t size) { (void)copy::run(from, to, size, kOptions); };
  }
  static auto plain() {
    return [](const std::byte* from, std::byte* to, std::size_t size) {
      std::memcpy(to, from, size);
      asm volatile("" ::"r"(to) : "memory");
    };
  }

  void add_hot(std::size_t size) {
    const std::string name = size_name(size) + ", hot";
    const int count = repetitions(size, total(std::size_t{32} << 20));
    add(name, kMemcpy, Kind::peer, size, count, *hot_, false, 0, plain());
    add(name, "engine, keep", Kind::us, size, count, *hot_, false, 0, engine<kKeep>());
    suite_.expect({name, kLatency, "engine, keep", kMemcpy, Better::lower, 1 / 0.97});
  }

  void add_cold(std::size_t size, bool large) {
    const std::string name = size_name(size) + ", cold";
    const int count = repetitions(size, total(std::size_t{192} << 20));
    add(name, kMemcpy, Kind::peer, size, count, *cold_, true, 0, plain());
    if (tuned_)
      suite_.add({name, kTuned, Kind::peer, kLatency, "us", Better::lower,
                  [this, size, count] { return tuned_->cold_copy_ns(size, count) / 1000; }});
    add(name, kAlone, Kind::us, size, count, *cold_, true, 0, engine<kStreamAlone>());
    add(name, kShared, Kind::us, size, count, *cold_, true, 0, engine<kStream>());
    if (!large) return;
    add(name, kLoop, Kind::floor, size, count, *cold_, true, 0,
        [](const std::byte* from, std::byte* to, std::size_t n) {
          BareLoop::copy(BareLoop::Way::past_caches, to, from, n);
        });
    suite_.expect({name, kLatency, kAlone, kLoop, Better::lower, 1.05});
    suite_.expect({name, kLatency, kAlone, kMemcpy, Better::lower, 1 / 0.97});
    if (placement().mine == placement().theirs) return;
    add_cold_floor_by_two(name, size, count);
    suite_.expect({name, kLatency, kShared, kLoopByTwo, Better::lower, 1.25});
  }

  void add_cold_floor_by_two(const std::string& name, std::size_t size, int count) {
    suite_.add({name, kLoopByTwo, Kind::floor, kLatency, "us", Better::lower, [this, size, count] {
                  const BareLoop::Awake awake(loop_);
                  const double time = nanoseconds([&] {
                    for (int i = 0; i < count; ++i) {
                      cold_->next(size);
                      loop_.copy_by_two(BareLoop::Way::past_caches, cold_->target(), cold_->source(), size);
                    }
                  });
                  return time / count / 1000;
                }});
  }

  // Destination a few bytes behind the source modulo 4096. Some processors' memcpy falls to a fraction there; where it
  // does not, there is nothing to be faster than.
  void add_aliased(std::size_t size) {
    constexpr std::size_t kShift = 8;
    const std::string name = size_name(size) + ", hot, 8 bytes apart modulo 4096";
    const int count = repetitions(size, total(std::size_t{16} << 20));
    add(name, kMemcpy, Kind::peer, size, count, *hot_, false, kShift, plain());
    add(name, "engine, keep", Kind::us, size, count, *hot_, false, kShift, engine<kKeep>());
    const auto best = [&](std::size_t shift) {
      double least = 1e18;
      for (int i = 0; i < 20; ++i)
        least = std::min(least, nanoseconds([&] { plain()(hot_->source(), hot_->target() + shift, size); }));
      return least;
    };
    if (best(kShift) > 5 * best(0))
      suite_.expect({name, kLatency, "engine, keep", kMemcpy, Better::lower, 1 / 5.0});
    else
      suite_.note(name + ": memcpy does not stumble on this processor, so there is no gain to show");
  }

  void add_small_behind_large() {
    constexpr std::size_t kSmall = 4096;
    const std::string name = "4 KB while 64 MB copies are queued";
    const auto small_copies = [this] {
      constexpr int kCount = 200;
      return nanoseconds([&] {
               for (int i = 0; i < kCount; ++i) (void)copy::start(hot_->source(), hot_->target(), kSmall).wait();
             }) /
             kCount / 1000;
    };
    suite_.add({name, "engine, idle", Kind::floor, kLatency, "us", Better::lower, small_copies});
    suite_.add({name, "engine, busy", Kind::us, kLatency, "us", Better::lower, [this, small_copies] {
                  constexpr std::size_t kLarge = std::size_t{64} << 20;
                  const copy::Options on_worker{Intent::stream, Order::unordered, 0, Choice::cpu};
                  cold_->next(kLarge);
                  std::vector<copy::Operation> queued;
                  for (int i = 0; i < 4; ++i)
                    queued.push_back(copy::start(cold_->source(), cold_->target(), kLarge, on_worker));
                  const double time = small_copies();
                  return time;
                }});
    suite_.expect({name, kLatency, "engine, busy", "engine, idle", Better::lower, 3});
  }

  std::size_t total(std::size_t bytes) const { return options_.quick ? bytes / 16 : bytes; }

  bench::Options options_;
  Suite suite_{"copy-latency", "Blocking copies (figure 4): memcpy against the engine"};
  std::optional<ColdPair> cold_;
  std::optional<ColdPair> hot_;
  std::optional<TunedMemcpy> tuned_;
  BareLoop loop_{placement().theirs};
};

}  // namespace

Result<Report> run_copy_latency(const Options& options) {
  return CopyLatency(options).run();
}

}  // namespace viaduct::bench
