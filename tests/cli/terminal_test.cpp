// The command at a terminal: a pseudo-terminal whose other end is held here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <sstream>

#include "cli/counting_process.hpp"
#include "cli/run_command.hpp"
#include "cli/talking.hpp"

namespace viaduct::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class Terminal {
 public:
  explicit Terminal(const Arguments& arguments, const Variables& variables = {}, unsigned short width = 100) {
    const winsize size{24, width, 0, 0};
    int fd = -1;
    pid_ = ::forkpty(&fd, nullptr, nullptr, &size);
    if (pid_ == 0) become_command(arguments, variables);
    screen_ = Fd(fd);
  }

  ~Terminal() { (void)exit_code(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Everything shown until `text` has appeared, or until the command has ended.
  const std::string& read_until(const std::string& text) {
    char bytes[512];
    while (text.empty() || shown_.find(text) == std::string::npos) {
      const ssize_t got = ::read(screen_.get(), bytes, sizeof bytes);
      if (got <= 0) break;
      shown_.append(bytes, static_cast<std::size_t>(got));
    }
    return shown_;
  }

  void type(char key) { ASSERT_EQ(::write(screen_.get(), &key, 1), 1); }

  int exit_code() {
    (void)read_until("");
    if (pid_ > 0) code_ = wait_for_exit(std::exchange(pid_, -1));
    return code_;
  }

 private:
  pid_t pid_ = -1;
  int code_ = -1;
  Fd screen_;
  std::string shown_;
};

TEST(AtATerminal, TopRunsUntilAKeyStopsIt) {
  const CountingProcess process("test.x", 42);
  constexpr char kControlC = 3;
  for (const char key : {'q', kControlC}) {
    Terminal terminal({"top", "--interval", "3600", process.number()}, {{"TERM", "xterm"}});
    EXPECT_THAT(terminal.read_until("test.x"), HasSubstr("test.x"));
    terminal.type(key);
    EXPECT_EQ(terminal.exit_code(), 0);
    EXPECT_THAT(terminal.read_until(""), HasSubstr("\x1b[?1049l")) << "the screen is given back";
  }
}

// A line that wrapped would push the last ones off the screen.
TEST(AtATerminal, ALivePictureIsCutAtTheEdge) {
  const CountingProcess process("test.x", 42);
  Terminal terminal({"top", "--interval", "3600", process.number()}, {{"TERM", "xterm"}}, 20);
  EXPECT_THAT(terminal.read_until("test.x"), HasSubstr("\x1b[?7l"));
  terminal.type('q');
  EXPECT_EQ(terminal.exit_code(), 0);
  EXPECT_THAT(terminal.read_until(""), HasSubstr("\x1b[?7h"));
}

TEST(AtATerminal, LsWatchesUntilAKeyStopsIt) {
  SKIP_IF_SANITIZED();
  Talker server(Under::run, {"serve"});
  Terminal terminal({"ls", "--all", "--watch", "--interval", "3600", server.number()}, {{"TERM", "xterm"}});
  EXPECT_THAT(terminal.read_until("LISTEN"), HasSubstr("LISTEN"));
  terminal.type('q');
  EXPECT_EQ(terminal.exit_code(), 0);
  EXPECT_THAT(terminal.read_until(""), HasSubstr("\x1b[?1049l")) << "the screen is given back";
}

TEST(AtATerminal, LsFitsItsWidth) {
  SKIP_IF_SANITIZED();
  Talker server(Under::nothing, {"serve"});
  Talker client(Under::run, {"call", std::to_string(server.first())});
  client.talk(200);
  for (const unsigned short width : {60, 80, 120, 200}) {
    std::istringstream lines(Terminal({"ls", client.number()}, {{"TERM", "dumb"}}, width).read_until(""));
    std::string all;
    for (std::string line; std::getline(lines, line); all += line) EXPECT_LE(line.size(), width + 1u) << line;
    EXPECT_THAT(all, HasSubstr(client.number())) << width;
    EXPECT_THAT(all, HasSubstr("127.0.0.1:" + std::to_string(server.first()))) << width;
    EXPECT_THAT(all, HasSubstr("the other side has not come")) << width;
  }
}

TEST(AtATerminal, ColoursHonourNoColor) {
  EXPECT_THAT(Terminal({"info"}, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).read_until(""), HasSubstr("\x1b[32myes"));
  EXPECT_THAT(Terminal({"info"}, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}).read_until(""), Not(HasSubstr("\x1b")));
  EXPECT_THAT(Terminal({"info"}, {{"TERM", "dumb"}, {"NO_COLOR", ""}}).read_until(""), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace viaduct::cli
