// `viaduct bench mpi-pingpong` and `mpi-collectives`: one unmodified MPI program, compiled here by mpicc, under
// `viaduct mpirun` and under Open MPI's own transports.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "bench/child_program.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

// Prints one number: microseconds, MB/s or messages a second, as the first argument wants.
constexpr const char* kProgram = R"(
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int rank, ranks;
static double there_and_back(char* bytes, int length, int rounds) {
  int i;
  double start;
  MPI_Barrier(MPI_COMM_WORLD);
  start = MPI_Wtime();
  for (i = 0; i < rounds && rank < 2; ++i) {
    if (rank == 0) MPI_Send(bytes, length, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(bytes, length, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(bytes, length, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
  }
  return (MPI_Wtime() - start) / rounds / 2;
}
static double rate(char* bytes, int windows) {
  enum { WINDOW = 64 };
  MPI_Request all[WINDOW];
  int i, k;
  double start;
  MPI_Barrier(MPI_COMM_WORLD);
  start = MPI_Wtime();
  for (i = 0; i < windows && rank < 2; ++i) {
    for (k = 0; k < WINDOW; ++k) {
      if (rank == 0) MPI_Isend(bytes, 8, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &all[k]);
      else MPI_Irecv(bytes + 8 * k, 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &all[k]);
    }
    MPI_Waitall(WINDOW, all, MPI_STATUSES_IGNORE);
    if (rank == 1) MPI_Send(bytes, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    else MPI_Recv(bytes, 0, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return windows * (double)WINDOW / (MPI_Wtime() - start);
}
int main(int argc, char** argv) {
  const char* what;
  int i, count;
  char *bytes, *more;
  double value = 0, start;
  MPI_Init(&argc, &argv);
  what = argv[1];
  count = atoi(argv[2]);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bytes = calloc(8, 1 << 20), more = calloc(8, 1 << 20);
  memset(bytes, 1, 8 << 20), memset(more, 1, 8 << 20);
  for (i = 0; i < 2; ++i) { /* the first time warms everything up */
    const int n = i == 0 ? count / 10 + 1 : count;
    if (strcmp(what, "latency8") == 0) value = there_and_back(bytes, 8, n) * 1e6;
    if (strcmp(what, "latency64k") == 0) value = there_and_back(bytes, 65536, n) * 1e6;
    if (strcmp(what, "bandwidth4m") == 0) value = 4.194304 / there_and_back(bytes, 4 << 20, n);
    if (strcmp(what, "rate8") == 0) value = rate(bytes, n);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (strcmp(what, "alltoall") == 0 || strcmp(what, "allreduce") == 0) {
      int k;
      for (k = 0; k < n; ++k) {
        if (what[3] == 't') MPI_Alltoall(bytes, 1024, MPI_CHAR, more, 1024, MPI_CHAR, MPI_COMM_WORLD);
        else MPI_Allreduce(bytes, more, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      }
      value = (MPI_Wtime() - start) / n * 1e6;
    }
  }
  if (rank == 0) printf("%.6f\n", value);
  MPI_Finalize();
  return 0;
}
)";

constexpr const char* kUs = "viaduct mpirun";
constexpr const char* kVader = "vader";
constexpr const char* kTcp = "btl tcp";

struct Mpi {
  ScratchFolder folder;
  std::string mpirun;
  std::string self;  // this command
};

Result<std::shared_ptr<Mpi>> prepare() {
  VIADUCT_TRY(const std::string mpicc, find_server_program("mpicc", "libopenmpi-dev"));
  VIADUCT_TRY(const std::string mpirun, find_server_program("mpirun", "openmpi-bin"));
  VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
  VIADUCT_CHECK(folder.write("program.c", kProgram));
  std::error_code fault;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", fault).string();
  auto made = std::make_shared<Mpi>(Mpi{std::move(folder), mpirun, self});
  VIADUCT_TRY(ChildProgram compiler, ChildProgram::start({.words = {mpicc, "-O2", "program.c", "-o", "program"},
                                                          .folder = made->folder.path()}));
  VIADUCT_TRY([[maybe_unused]] const std::string said, compiler.finish());
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  return made;
}

// 0: it failed.
double run(const Mpi& mpi, const std::string& who, int ranks, const std::string& what, int count) {
  std::vector<std::string> words;
  if (who == kUs)
    words = {mpi.self, "mpirun"};
  else
    words = {mpi.mpirun, "--mca", "pml", "ob1", "--mca", "btl", who == kTcp ? "self,tcp" : "self,vader"};
  const std::vector<std::string> rest{"--oversubscribe", "-n", std::to_string(ranks),
                                      "./program",       what, std::to_string(count)};
  words.insert(words.end(), rest.begin(), rest.end());
  auto started = ChildProgram::start({.words = words, .silent = true, .folder = mpi.folder.path()});
  if (!started) return 0;
  const auto said = started->finish();
  return said ? std::strtod(said->c_str(), nullptr) : 0;
}

struct Case {
  const char* what;
  const char* name;
  const char* metric;
  const char* unit;
  Better better;
  int count, quick_count;
  double bound;  // against vader
};

Result<Report> run_cases(Suite& suite, const Options& options, std::span<const Case> cases,
                         std::span<const int> ranks) {
  auto mpi = prepare();
  if (!mpi) {
    suite.note("not measured: " + mpi.error().message());
    return suite.run(options, 1);
  }
  for (const int many : ranks) {
    for (const Case& one : cases) {
      const std::string name = ranks.size() == 1 ? one.name : fmt::format("{}, {} ranks", one.name, many);
      for (const char* const who : {kUs, kVader, kTcp}) {
        const int count = options.quick ? one.quick_count : one.count;
        suite.add({name, who, who == kUs ? Kind::us : Kind::peer, one.metric, one.unit, one.better,
                   [mpi = *mpi, who, many, one, count] { return run(*mpi, who, many, one.what, count); }});
      }
      if (one.bound != 0) suite.expect({name, one.metric, kUs, kVader, one.better, one.bound});
    }
  }
  suite.note("vader and btl tcp are Open MPI's own transports; ours goes through libfabric");
  return suite.run(options, 7);
}

}  // namespace

Result<Report> run_mpi_pingpong(const Options& options) {
  Suite suite("mpi-pingpong", "Two ranks of an MPI program on one host");
  static constexpr Case kCases[] = {
      {"latency8", "8 B", "one way", "us", Better::lower, 50'000, 1'000, 1.15},
      {"latency64k", "64 KB", "one way", "us", Better::lower, 5'000, 100, 1.0},
      {"bandwidth4m", "4 MB", "bandwidth", "MB/s", Better::higher, 200, 5, 1.0},
      {"rate8", "8 B, 64 under way", "rate", "messages/s", Better::higher, 5'000, 100, 1.0},
  };
  static constexpr int kRanks[] = {2};
  return run_cases(suite, options, kCases, kRanks);
}

Result<Report> run_mpi_collectives(const Options& options) {
  Suite suite("mpi-collectives", "Collective operations of MPI programs on one host");
  static constexpr Case kCases[] = {
      {"alltoall", "all-to-all of 1 KB", "time", "us", Better::lower, 1'000, 20, 0},
      {"allreduce", "sum of 8 B", "time", "us", Better::lower, 2'000, 20, 0},
  };
  static constexpr int kRanks[] = {2, 4, 8};
  return run_cases(suite, options, kCases, kRanks);
}

}  // namespace viaduct::bench
