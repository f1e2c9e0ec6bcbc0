// What the tests of the tree share: running a program to its end, files, and a folder that goes away.
#pragma once

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace viaduct::house {

namespace fs = std::filesystem;

inline fs::path source_dir() {
  return VIADUCT_SOURCE_DIR;
}

// The command is <build>/bin/viaduct.
inline fs::path build_dir() {
  return fs::path(VIADUCT_COMMAND).parent_path().parent_path();
}

// The sanitizers this build was made with; empty: none.
inline std::string sanitizers() {
  return VIADUCT_SANITIZERS;
}

struct Outcome {
  int code;            // -1: ended by a signal
  std::string output;  // standard output and standard error as they came
};

// Runs a program found on the PATH, with no input.
inline Outcome run(const std::vector<std::string>& words) {
  auto pipe = make_pipe();
  if (!pipe) throw std::runtime_error(pipe.error().message());
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::dup2(pipe->second.get(), STDOUT_FILENO);
    ::dup2(pipe->second.get(), STDERR_FILENO);
    if (std::freopen("/dev/null", "r", stdin) == nullptr) ::_exit(126);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  pipe->second.reset();
  Outcome outcome{-1, {}};
  char piece[4096];
  for (ssize_t n; (n = ::read(pipe->first.get(), piece, sizeof piece)) > 0;)
    outcome.output.append(piece, static_cast<std::size_t>(n));
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

inline bool on_the_path(const std::string& program) {
  return run({"sh", "-c", "command -v " + program}).code == 0;
}

inline std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// A new folder outside the tree, removed with everything in it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "viaduct-house-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

}  // namespace viaduct::house
