// The list of benchmarks: one line each.
#include "bench/bench.hpp"

namespace viaduct::bench {

Result<Report> run_ring(const Options& options);

namespace {

constexpr Benchmark kBenchmarks[] = {
    {"ring", "messages through our ring between two processes, against a pipe and a UNIX socket", run_ring},
};

}  // namespace

std::span<const Benchmark> benchmarks() {
  return kBenchmarks;
}

}  // namespace viaduct::bench
