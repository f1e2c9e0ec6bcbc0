// An example as its user runs it: its standard input, and what it says, are in the test's hands.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/child.hpp"
#include "base/fd.hpp"

namespace viaduct::testing {

class ExampleProgram {
 public:
  // `first`: what its process does before it becomes the program.
  explicit ExampleProgram(
      std::vector<std::string> words, const std::function<void()>& first = [] {})
      : in_(std::move(*make_pipe())), out_(std::move(*make_pipe())), child_([&] {
          first();
          ::dup2(in_.first.get(), 0);
          ::dup2(out_.second.get(), 1);
          ::dup2(out_.second.get(), 2);
          std::vector<char*> arguments;
          for (std::string& word : words) arguments.push_back(word.data());
          arguments.push_back(nullptr);
          ::execv(arguments[0], arguments.data());
          return 127;
        }) {
    out_.second.reset();
    in_.first.reset();
  }
  void say(const std::string& line) {
    EXPECT_EQ(::write(in_.second.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  std::string hear() {  // a line, or what comes before the end
    std::string line;
    for (char c; ::read(out_.first.get(), &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  std::string hear_after_waiting() {  // for a server that takes its time to come
    std::string line = hear();
    return line.starts_with("nobody serves") ? hear() : line;
  }
  int finish() {
    in_.second.reset();
    return child_.wait();
  }
  void signal(int number) { ::kill(child_.pid(), number); }

 private:
  FdPair in_, out_;
  Child child_;
};

}  // namespace viaduct::testing
