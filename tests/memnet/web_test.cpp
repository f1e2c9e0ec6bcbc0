// The example's web server: the same requests in each of its four ways to talk have the same answers.
#include <spawn.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "memnet/memnet_lab.hpp"

extern char** environ;

namespace viaduct::memnet::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Web : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    char name[] = "/tmp/memnet-web-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
    fs::create_directory(folder / "below");
    std::ofstream(folder / "index.html") << "<p>over the viaduct</p>\n";
    std::ofstream(folder / "below/a b.txt") << "0123456789";
    std::ofstream(folder / "empty.txt");
    big = pattern(3'000'000);
    std::ofstream(folder / "big.bin", std::ios::binary) << big;
    start();
  }
  void TearDown() override {
    ::kill(pid, SIGTERM);
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0) << "it ends well";
    fs::remove_all(folder);
  }
  void start() {
    int pipe[2];
    ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    const std::string program = (fs::path(VIADUCT_COMMAND).parent_path() / "memnet_web").string();
    std::vector<std::string> words = {program, "--way",    GetParam(),    "--port",
                                      "0",     "--server", server.name(), folder.string()};
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
    ASSERT_EQ(::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    char line[100] = "";
    ASSERT_GT(::read(pipe[0], line, sizeof line - 1), 0);
    ::close(pipe[0]);
    int port = 0;
    ASSERT_EQ(std::sscanf(line, "serving at port %d", &port), 1) << line;
    address = loopback(static_cast<std::uint16_t>(port));
  }
  // All that comes until the server closes, or until `length` bytes have.
  std::string ask(const std::string& request, std::size_t length = SIZE_MAX) const {
    const Fd fd = kernel_connect(address);
    std::thread writer([&] { (void)write_all(fd.get(), request); });
    std::string answer;
    char bytes[65536];
    for (ssize_t got; answer.size() < length && (got = ::read(fd.get(), bytes, sizeof bytes)) > 0;)
      answer.append(bytes, static_cast<std::size_t>(got));
    writer.join();
    return answer;
  }
  static std::string get(const std::string& path, const std::string& more = "Connection: close\r\n") {
    return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n";
  }
  static std::string body(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

  HangGuard guard;
  ServerProcess server;
  fs::path folder;
  std::string big;
  pid_t pid = -1;
  sockaddr_in address{};
};

TEST_P(Web, Answers) {
  const std::string page = ask(get("/"));
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nContent-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_EQ(body(page), "<p>over the viaduct</p>\n");
  EXPECT_EQ(body(ask("GET /index.html?q=1 HTTP/1.0\r\n\r\n")), "<p>over the viaduct</p>\n") << "1.0 closes";
  EXPECT_EQ(body(ask(get("/below/a%20b.txt"))), "0123456789");
  EXPECT_THAT(ask(get("/empty.txt")), HasSubstr("\r\nContent-Length: 0\r\n"));
  EXPECT_THAT(ask(get("/nowhere")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask(get("/../../etc/passwd")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask(get("/%2e%2e/%2e%2e/etc/passwd")), StartsWith("HTTP/1.1 404 "));
  const std::string head = ask("HEAD /big.bin HTTP/1.0\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 3000000\r\n"));
  EXPECT_EQ(body(head), "");
  EXPECT_EQ(body(ask(get("/big.bin"))), big);
}

TEST_P(Web, AnswersRanges) {
  const auto part = [&](const char* range) {
    return ask(get("/below/a%20b.txt", std::string("Connection: close\r\nRange: bytes=") + range + "\r\n"));
  };
  EXPECT_THAT(part("2-4"), HasSubstr("\r\nContent-Range: bytes 2-4/10\r\n"));
  EXPECT_THAT(part("2-4"), StartsWith("HTTP/1.1 206 "));
  EXPECT_EQ(body(part("2-4")), "234");
  EXPECT_EQ(body(part("7-")), "789");
  EXPECT_EQ(body(part("-3")), "789");
  EXPECT_EQ(body(part("0-99")), "0123456789");
  EXPECT_THAT(part("10-"), StartsWith("HTTP/1.1 416 "));
  EXPECT_THAT(part("5-2"), StartsWith("HTTP/1.1 200 ")) << "that is no range";
  EXPECT_EQ(body(ask(get("/big.bin", "Connection: close\r\nRange: bytes=1000000-1999999\r\n"))),
            big.substr(1'000'000, 1'000'000));
}

TEST_P(Web, RefusesNonsense) {
  EXPECT_THAT(ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400 ")) << "no host";
  EXPECT_THAT(ask("GET / HTTP/9.9\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("DELETE / HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask("GET / HTTP/1.0\r\nA: " + std::string(20'000, 'a')), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"), StartsWith("HTTP/1.1 501 "));
}

// Six requests on a connection, in bursts of three, as in the paper; and each comes in pieces.
TEST_P(Web, PipelinesAndKeepsAlive) {
  const std::string request = get("/below/a%20b.txt", "");
  const Fd fd = kernel_connect(address);
  const auto burst = [&](const std::string& bytes) {
    ASSERT_TRUE(write_all(fd.get(), bytes));
    std::string all;
    char piece[4096];
    const std::regex answer("HTTP/1.1 200 OK\r\n[^]*?\r\n\r\n0123456789");
    for (;;) {
      const auto count = std::distance(std::sregex_iterator(all.begin(), all.end(), answer), std::sregex_iterator());
      if (count == 3) break;
      const ssize_t got = ::read(fd.get(), piece, sizeof piece);
      ASSERT_GT(got, 0);
      all.append(piece, static_cast<std::size_t>(got));
    }
  };
  burst(request + request + request);
  burst(request + request + request);
  for (const char one : request) ASSERT_TRUE(write_all(fd.get(), {&one, 1}));
  burst(request + request);
  // The last one says that it is.
  ASSERT_TRUE(write_all(fd.get(), request + get("/")));
  std::string all;
  char piece[4096];
  for (ssize_t got; (got = ::read(fd.get(), piece, sizeof piece)) > 0;)
    all.append(piece, static_cast<std::size_t>(got));
  EXPECT_THAT(all, HasSubstr("0123456789HTTP/1.1 200 OK"));
  EXPECT_THAT(all, HasSubstr("over the viaduct"));
}

TEST_P(Web, ServesManyAtOnce) {
  std::vector<Fd> fds;
  for (int i = 0; i < 300; ++i) fds.push_back(kernel_connect(address));
  for (const Fd& fd : fds) ASSERT_TRUE(write_all(fd.get(), get("/below/a%20b.txt")));
  for (const Fd& fd : fds) {
    std::string answer;
    char bytes[4096];
    for (ssize_t got; (got = ::read(fd.get(), bytes, sizeof bytes)) > 0;)
      answer.append(bytes, static_cast<std::size_t>(got));
    ASSERT_EQ(body(answer), "0123456789");
  }
  // Some that go away in the middle.
  for (int i = 0; i < 50; ++i) {
    Fd fd = kernel_connect(address);
    (void)write_all(fd.get(), i % 2 == 0 ? get("/big.bin") : "GET /bi");
    const linger abort{1, 0};
    if (i % 3 == 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  }
  EXPECT_EQ(body(ask(get("/"))), "<p>over the viaduct</p>\n");
}

INSTANTIATE_TEST_SUITE_P(By, Web, ::testing::Values("kernel", "plain", "direct", "async"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace viaduct::memnet::testing
