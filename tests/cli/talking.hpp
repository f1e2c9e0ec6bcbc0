// Programs that talk to each other while the test looks on: talker.cpp, under `viaduct run` or not.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/fd.hpp"
#include "cli/run_command.hpp"

namespace viaduct::cli {

inline std::string talker(const std::string& kind = "") {
  return VIADUCT_TALKER + kind;
}

enum class Under { run, nothing };

// A talker, from its first words until the end of the scope.
class Talker {
 public:
  // `become`, if given, makes the process another (user) before it starts; it does not start where that fails.
  Talker(Under under, Arguments words, const Variables& variables = {}, bool (*become)() = nullptr) {
    auto in = make_pipe(), out = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      if (become != nullptr && !become()) ::_exit(126);
      ::dup2(in->first.get(), STDIN_FILENO);
      ::dup2(out->second.get(), STDOUT_FILENO);
      words.insert(words.begin(), talker());
      if (under == Under::run) {
        words.insert(words.begin(), {"run", "--"});
        become_command(words, variables);
      }
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    in_ = std::move(in->second);
    out_.reset(::fdopen(out->first.release(), "r"));
    out->second.reset();
    first_ = line();
  }
  ~Talker() { end(); }
  Talker(const Talker&) = delete;
  Talker& operator=(const Talker&) = delete;

  bool started() const { return !first_.empty(); }
  int pid() const { return pid_; }
  std::string number() const { return std::to_string(pid_); }
  // The number in its first line: a port, a descriptor.
  int first() const { return number_in(first_); }

  std::string line() {
    char text[64] = "";
    (void)!std::fgets(text, sizeof text, out_.get());
    return text;
  }
  std::string tell(const std::string& what) {
    const std::string text = what + "\n";
    (void)!::write(in_.get(), text.data(), text.size());
    return line();
  }
  void talk(int round_trips) { EXPECT_EQ(tell(std::to_string(round_trips)), "ok\n"); }

  // Its exit code.
  int end() {
    in_.reset();
    return pid_ > 0 ? wait_for_exit(std::exchange(pid_, -1)) : 0;
  }

  static int number_in(const std::string& text) { return std::atoi(text.c_str() + text.find(' ') + 1); }

 private:
  pid_t pid_ = -1;
  Fd in_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> out_{nullptr, &std::fclose};
  std::string first_;
};

// The sockets of a process, as `viaduct ls --json` has them.
inline nlohmann::json sockets_of(const std::string& pid, bool all = false) {
  Arguments arguments{"ls", "--json", pid};
  if (all) arguments.push_back("--all");
  const Outcome outcome = run_command(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? nlohmann::json::parse(outcome.out).at("sockets") : nlohmann::json::array();
}

// A server and a client under `viaduct run`, their connection on the ring both ways.
struct Pair {
  Talker server{Under::run, {"serve"}};
  Talker client{Under::run, {"call", std::to_string(server.first())}};

  // Upgrading takes a few operations of either side; how many is theirs to say.
  void talk_until_on_the_ring() {
    for (int batch = 0; batch < 100; ++batch) {
      client.talk(20);
      const nlohmann::json seen = sockets_of(client.number());
      if (seen.size() == 1 && seen[0]["out"]["path"] == "ring" && seen[0]["in"]["path"] == "ring") return;
    }
    FAIL() << "still on TCP: " << sockets_of(client.number());
  }
};

inline bool sanitized() {
  return *VIADUCT_SANITIZERS != '\0';
}
#define SKIP_IF_SANITIZED()                                                                                     \
  if (sanitized())                                                                                              \
  GTEST_SKIP() << "a library built with " << VIADUCT_SANITIZERS << " cannot be preloaded into other programs; " \
               << "the release build runs this test"

}  // namespace viaduct::cli
