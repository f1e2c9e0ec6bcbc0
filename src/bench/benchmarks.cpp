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
Result<Report> run_nic_udp(const Options& options);
Result<Report> run_nic_model(const Options& options);
Result<Report> run_nic_packet(const Options& options);
Result<Report> run_mx_multiqueue(const Options& options);
Result<Report> run_net_latency(const Options& options);
Result<Report> run_net_bandwidth(const Options& options);
Result<Report> run_net_loss(const Options& options);
Result<Report> run_net_many(const Options& options);
Result<Report> run_via_latency(const Options& options);
Result<Report> run_via_bandwidth(const Options& options);
Result<Report> run_via_registration(const Options& options);
Result<Report> run_mpi_pingpong(const Options& options);
Result<Report> run_mpi_collectives(const Options& options);
Result<Report> run_mx_latency(const Options& options);
Result<Report> run_mx_bandwidth(const Options& options);
Result<Report> run_sovia(const Options& options);
Result<Report> run_memnet_channel(const Options& options);
Result<Report> run_memnet_send(const Options& options);
Result<Report> run_memnet_web(const Options& options);
Result<Report> run_sockets_latency(const Options& options);
Result<Report> run_sockets_messages(const Options& options);
Result<Report> run_sockets_bandwidth(const Options& options);
Result<Report> run_sockets_connections(const Options& options);
Result<Report> run_sockets_crowded(const Options& options);
Result<Report> run_sockets_redis(const Options& options);
Result<Report> run_sockets_nginx(const Options& options);
Result<Report> run_sockets_memcached(const Options& options);
Result<Report> run_sockets_ftp(const Options& options);
Result<Report> run_sockets_pgbench(const Options& options);

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
    {"nic-udp", "the adapter's firmware alone, one and two processors (Tigon firmware, figures 6, 8, 10)", run_nic_udp},
    {"nic-model",
     "the firmware in virtual time on the paper's card, against the paper (Tigon firmware, all figures and tables)",
     run_nic_model},
    {"nic-packet", "the inline adapter on a real interface, against a bare packet socket and UDP", run_nic_packet},
    {"mx-multiqueue", "messages between endpoints: who moves frames (Open-MX multiqueue, figure 5, table 2)",
     run_mx_multiqueue},
    {"net-latency", "messages between two hosts, against kernel TCP, libfabric, and bare UDP and frames",
     run_net_latency},
    {"net-bandwidth", "bulk data between two hosts, and what they cost, against kernel TCP, libfabric and bare UDP",
     run_net_bandwidth},
    {"net-loss", "bulk data between two hosts when one frame in a hundred is lost, against TCP", run_net_loss},
    {"net-many", "500 idle virtual interfaces to another host, and eight hosts that send to one", run_net_many},
    {"mpi-pingpong", "two ranks of an MPI program on one host, against Open MPI's own transports", run_mpi_pingpong},
    {"mpi-collectives", "collective operations of MPI programs, 2 to 8 ranks on one host", run_mpi_collectives},
    {"via-latency", "messages over virtual interfaces, 4 B to 32 KB (SOVIA, figure 5)", run_via_latency},
    {"via-bandwidth", "streams over virtual interfaces, 4 B to 4 MB (SOVIA, figures 7 and 8)", run_via_bandwidth},
    {"via-registration", "registering memory against copying (SOVIA, figure 6, tables 2 and 3)", run_via_registration},
    {"mx-latency", "messages between two MX endpoints, and what matching costs", run_mx_latency},
    {"mx-bandwidth", "streams between two MX endpoints", run_mx_bandwidth},
    {"sovia", "streams by the SOVIA protocol, part by part, beside the paper (SOVIA, table 4, figures 5 to 9)",
     run_sovia},
    {"memnet-channel", "the channel under MemNet (MemNet, table 1)", run_memnet_channel},
    {"memnet-send", "what a send costs its caller, plain, direct and asynchronous (MemNet, figure 5)", run_memnet_send},
    {"memnet-web", "a web server over kernel sockets and over MemNet (MemNet, figures 6 to 8)", run_memnet_web},
    {"sockets-latency", "messages there and back through sockets of a plain program, on the kernel and accelerated",
     run_sockets_latency},
    {"sockets-messages", "8 B messages through sockets, one way", run_sockets_messages},
    {"sockets-bandwidth", "streams through sockets", run_sockets_bandwidth},
    {"sockets-connections", "short connections, idle ones, one processor for both sides, one side not accelerated",
     run_sockets_connections},
    {"sockets-crowded", "more programs with sockets than processors: what each operation costs in processor time",
     run_sockets_crowded},
    {"sockets-redis", "redis-server and redis-benchmark, on the kernel and accelerated", run_sockets_redis},
    {"sockets-nginx", "nginx and wrk, on the kernel and accelerated", run_sockets_nginx},
    {"sockets-memcached", "memcached and a plain client, on the kernel and accelerated", run_sockets_memcached},
    {"sockets-ftp", "files between RAM disks by vsftpd and curl (SOVIA, table 5)", run_sockets_ftp},
    {"sockets-pgbench", "PostgreSQL and pgbench -S, on the kernel and accelerated", run_sockets_pgbench},
};

}  // namespace

std::span<const Benchmark> benchmarks() {
  return kBenchmarks;
}

}  // namespace viaduct::bench
