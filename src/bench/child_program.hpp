// Programs that the benchmarks of sockets run: on a processor, accelerated or not, with pipes to talk through, and gone
// when their object is.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::bench {

struct ProgramStart {
  std::vector<std::string> words;
  int processor = -1;        // any
  bool accelerated = false;  // preloads libviaduct-sockets.so
  bool silent = false;       // what it says on standard error is lost
  std::string folder = "/";
  std::string user = {};  // become it, where we are root
  int end_signal = 0;     // what ends it in good order; 0: it is killed
};

class ChildProgram {
 public:
  static Result<ChildProgram> start(const ProgramStart& what);

  ChildProgram(ChildProgram&& other) noexcept;
  ChildProgram& operator=(ChildProgram&&) = delete;
  ~ChildProgram();

  pid_t pid() const { return pid_; }
  bool runs() const;

  // To its standard input; a line from its standard output. No answer in half a minute, or its end: give_up.
  void tell(const std::string& line);
  std::string hear();
  double hear_number();
  // All it says until it ends; an error where it does not end well.
  Result<std::string> finish(std::chrono::milliseconds limit = std::chrono::seconds(60));
  void signal(int number) const;

 private:
  ChildProgram(pid_t pid, std::string name, int end_signal, Fd input, Fd output);
  bool read_more(std::chrono::milliseconds limit);  // false: the end, or too late

  pid_t pid_;
  std::string name_;
  int end_signal_;
  Fd input_;
  Fd output_;
  std::string said_;
};

// Beside this command in a build tree, below the same prefix where installed.
Result<std::string> find_preload_library();
std::string plain_sockets_program();

// In the PATH or where servers are. The error names the Debian package.
Result<std::string> find_server_program(const std::string& name, const std::string& package);
// The folder, with a slash behind it, of the newest version: Debian keeps these out of the PATH.
Result<std::string> find_postgres_programs();

// A folder in memory where there is some. It is gone at the end, whatever the end is: a process of its own waits for
// that, and removes it.
class ScratchFolder {
 public:
  static Result<ScratchFolder> make();
  ScratchFolder(ScratchFolder&& other) noexcept
      : path_(std::move(other.path_)), remover_(std::exchange(other.remover_, -1)), alive_(std::move(other.alive_)) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::string& path() const { return path_; }
  Status write(const std::string& name, const std::string& text) const;
  Status give_to(const char* user) const;  // where we are root: for servers that refuse to be

 private:
  ScratchFolder(std::string path, pid_t remover, Fd alive)
      : path_(std::move(path)), remover_(remover), alive_(std::move(alive)) {}
  std::string path_;
  pid_t remover_;
  Fd alive_;  // closed when we are gone
};

Result<int> free_port();
Status wait_until_it_listens(const ChildProgram& server, int port);

}  // namespace viaduct::bench
