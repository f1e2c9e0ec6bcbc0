// The list of benchmarks: one line each.
#include "bench/bench.hpp"

namespace viaduct::bench {

Result<Report> run_ring(const Options& options);
Result<Report> run_copy_latency(const Options& options);
Result<Report> run_copy_bandwidth(const Options& options);
Result<Report> run_copy_overlap(const Options& options);
Result<Report> run_copy_overhead(const Options& options);
Result<Report> run_copy_pollution(const Options& options);
Result<Report> run_copy_ipc(const Options& options);
Result<Report> run_copy_gpu(const Options& options);

namespace {

constexpr Benchmark kBenchmarks[] = {
    {"ring", "messages through our ring between two processes, against a pipe and a UNIX socket", run_ring},
    {"copy-latency", "blocking copies, hot and cold, small and large (ADCE, figure 4)", run_copy_latency},
    {"copy-bandwidth", "a window of asynchronous copies (ADCE, figure 5)", run_copy_bandwidth},
    {"copy-overlap", "how much of a copy hides behind computation (ADCE, figure 6)", run_copy_overlap},
    {"copy-overhead", "where the time of an asynchronous copy goes (ADCE, figure 7)", run_copy_overhead},
    {"copy-pollution", "what a large copy leaves of the cache (ADCE, figure 8)", run_copy_pollution},
    {"copy-ipc", "moving a buffer to another process (ADCE, figure 9)", run_copy_ipc},
    {"copy-gpu", "host-to-host copies by a GPU's copy engines", run_copy_gpu},
};

}  // namespace

std::span<const Benchmark> benchmarks() {
  return kBenchmarks;
}

}  // namespace viaduct::bench
