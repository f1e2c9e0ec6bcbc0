// What the benchmarks of sockets share: pairs of plain programs under their names, and goals that are plain numbers.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "base/topology.hpp"
#include "bench/conduit.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/plain_pair.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

inline const PlainSetup kAccelerated{.server_accelerated = true, .client_accelerated = true};

class SocketsSuite {
 public:
  SocketsSuite(const char* benchmark, const char* title, const Options& options)
      : suite_(benchmark, title), options_(options) {}

  Result<PlainPair*> start(const PlainSetup& setup) {
    VIADUCT_TRY(auto pair, PlainPair::start(setup));
    pairs_.push_back(std::move(pair));
    return pairs_.back().get();
  }

  // For one sample: where its memory happens to lie makes a pair a few in a hundred faster or slower for as long as it
  // lives, which must not decide for all rounds.
  static std::unique_ptr<PlainPair> new_pair(const PlainSetup& setup) {
    auto pair = PlainPair::start(setup);
    if (!pair) give_up(pair.error().message());
    return std::move(*pair);
  }

  // A goal that is a number and not a neighbour: a row of its own, which always measures that.
  void expect_number(const std::string& case_name, const std::string& metric, const std::string& unit, Better better,
                     const std::string& us, double bound) {
    const std::string who = fmt::format("goal: {} {}", bound, unit);
    suite_.add({case_name, who, Kind::floor, metric, unit, better, [bound] { return bound; }});
    suite_.expect({case_name, metric, us, who, better, 1});
  }

  Suite& suite() { return suite_; }
  const Options& options() const { return options_; }
  bool quick() const { return options_.quick; }
  unsigned scaled(unsigned count) const { return options_.quick ? count / 10 + 1 : count; }

  Report run(int rounds) {
    if (placement().mine == placement().theirs)
      suite_.note("this machine has one processor: no number of two processes means anything");
    const PinnedScope pinned(placement().mine);
    return suite_.run(options_, rounds);
  }

  // Where a program to be measured is missing, or does not start.
  Report run_without(const char* what, const std::string& why) {
    suite_.note(fmt::format("{} was not measured: {}", what, why));
    return run(0);
  }

  static constexpr const char* kTcp = "TCP";
  static constexpr const char* kTcpSpinning = "TCP, both spinning";
  static constexpr const char* kUnix = "UNIX socket";
  static constexpr const char* kLine = "cache line";
  static constexpr const char* kUs = "viaduct";

 private:
  Suite suite_;
  Options options_;
  std::vector<std::unique_ptr<PlainPair>> pairs_;
};

}  // namespace viaduct::bench
