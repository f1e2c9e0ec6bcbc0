#include "cli/redis_demo.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/fd.hpp"
#include "cli/program_file.hpp"

namespace viaduct::cli {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr auto kStartLimit = std::chrono::seconds(10);
constexpr auto kRunLimit = std::chrono::seconds(60);

struct Job {
  const char* name;
  int clients;
  int kernel_requests, viaduct_requests;  // about a second of each
};
constexpr Job kJobs[] = {
    {"GET, 50 clients", 50, 60'000, 600'000},
    {"GET, 1 client", 1, 8'000, 200'000},
};

// A folder of the server's own, gone at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "viaduct-demo-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// A program that is ended with us, at the latest.
class Program {
 public:
  Program(Words words, int output, const fs::path& folder) {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, STDIN_FILENO);
    ::dup2(output >= 0 ? output : null, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::chdir(folder.c_str()) == 0) ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    (void)end();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool started() const { return pid_ > 0; }

  bool runs() const { return pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0; }

  // Seconds of processor time so far.
  double cpu_seconds() const {
    clockid_t clock;
    timespec now{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &now) != 0) return 0;
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  // Waits for its end; the processor time it took.
  double end() {
    rusage used{};
    while (::wait4(pid_, nullptr, 0, &used) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
  }

 private:
  pid_t pid_ = -1;
};

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port = htons(port);
  return name;
}

Result<std::uint16_t> free_port() {
  const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = loopback(0);
  socklen_t size = sizeof name;
  if (!probe || ::bind(probe.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0)
    return Error::from_errno("find a free port");
  return ntohs(name.sin_port);
}

Status wait_until_it_listens(const Program& server, std::uint16_t port) {
  const auto deadline = std::chrono::steady_clock::now() + kStartLimit;
  while (std::chrono::steady_clock::now() < deadline) {
    const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in name = loopback(port);
    if (probe && ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) return {};
    if (!server.runs()) return Error(ECHILD, "redis-server ended at once");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Error(ETIMEDOUT, "redis-server did not listen in time");
}

// Debian's redis-server is its redis-check-rdb under another name; that package alone starts no service.
Result<std::string> find_server(const fs::path& folder) {
  auto server = find_program("redis-server");
  if (server) return server;
  const auto same = find_program("redis-check-rdb");
  std::error_code fault;
  const fs::path link = folder / "redis-server";
  if (same) fs::create_symlink(*same, link, fault);
  if (!same || fault) return server;
  return link.string();
}

Result<std::string> all_of(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kRunLimit;
  std::string text;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{fd, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0)
      return Error(ETIMEDOUT, fmt::format("redis-benchmark did not end within {} s", kRunLimit.count()));
    char piece[4096];
    const ssize_t got = ::read(fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
}

struct Setup {
  std::string server, benchmark;
  fs::path folder;
  Words prefix;  // `viaduct run --`, or nothing
};

Words in_front(const Words& prefix, Words words) {
  words.insert(words.begin(), prefix.begin(), prefix.end());
  return words;
}

Result<RedisFigures> measure(const Setup& setup, const Program& server, std::uint16_t port, int clients, int requests) {
  VIADUCT_TRY(FdPair pipe, make_pipe());
  const double before = server.cpu_seconds();
  Program benchmark(in_front(setup.prefix, {setup.benchmark, "-h", "127.0.0.1", "-p", std::to_string(port), "-t", "get",
                                            "-c", std::to_string(clients), "-n", std::to_string(requests), "--csv"}),
                    pipe.second.get(), setup.folder);
  if (!benchmark.started()) return Error::from_errno("start redis-benchmark");
  pipe.second.reset();
  VIADUCT_TRY(const std::string said, all_of(pipe.first.get()));
  const double used = benchmark.end() + server.cpu_seconds() - before;
  VIADUCT_TRY(RedisFigures figures, parse_redis_csv(said));
  figures.cpu_us_per_request = used * 1e6 / requests;
  return figures;
}

Result<std::vector<RedisFigures>> measure_all(const Setup& setup, int Job::*requests) {
  VIADUCT_TRY(const std::uint16_t port, free_port());
  Program server(in_front(setup.prefix, {setup.server, "--port", std::to_string(port), "--bind", "127.0.0.1", "--save",
                                         "", "--appendonly", "no", "--daemonize", "no"}),
                 -1, setup.folder);
  if (!server.started()) return Error::from_errno("start redis-server");
  VIADUCT_CHECK(wait_until_it_listens(server, port));
  std::vector<RedisFigures> all;
  for (const Job& job : kJobs) {
    VIADUCT_TRY(const RedisFigures figures, measure(setup, server, port, job.clients, job.*requests));
    all.push_back(figures);
  }
  return all;
}

}  // namespace

Result<RedisFigures> parse_redis_csv(const std::string& text) {
  const auto fields = [](const std::string& line) {
    std::vector<std::string> parts;
    std::istringstream stream(line);
    for (std::string part; std::getline(stream, part, ',');) {
      std::erase(part, '"');
      parts.push_back(part);
    }
    return parts;
  };
  std::istringstream lines(text);
  std::string head, line;
  std::getline(lines, head);
  std::getline(lines, line);
  const auto names = fields(head), values = fields(line);
  RedisFigures figures;
  for (std::size_t i = 0; i < names.size() && i < values.size(); ++i) {
    double value = 0;
    (void)std::from_chars(values[i].data(), values[i].data() + values[i].size(), value);
    if (names[i] == "rps") figures.requests_per_second = value;
    if (names[i] == "p50_latency_ms") figures.median_us = value * 1000;
  }
  if (figures.requests_per_second <= 0) return Error(EPROTO, "redis-benchmark said nothing that we understand");
  return figures;
}

Result<std::vector<RedisComparison>> compare_on_redis() {
  const Folder folder;
  if (folder.path().empty()) return Error::from_errno("make a folder for redis");
  Setup setup;
  setup.folder = folder.path();
  VIADUCT_TRY(setup.benchmark, find_program("redis-benchmark"));
  VIADUCT_TRY(setup.server, find_server(folder.path()));
  VIADUCT_TRY(const std::vector<RedisFigures> kernel, measure_all(setup, &Job::kernel_requests));
  std::error_code fault;
  setup.prefix = {fs::read_symlink("/proc/self/exe", fault).string(), "run", "--"};
  VIADUCT_TRY(const std::vector<RedisFigures> viaduct, measure_all(setup, &Job::viaduct_requests));
  std::vector<RedisComparison> all;
  for (std::size_t i = 0; i < std::size(kJobs); ++i) all.push_back({kJobs[i].name, kernel[i], viaduct[i]});
  return all;
}

}  // namespace viaduct::cli
