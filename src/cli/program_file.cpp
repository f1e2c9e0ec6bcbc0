#include "cli/program_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>

#include "cli/elf_file.hpp"

namespace viaduct::cli {

namespace {

constexpr std::size_t kDeepestScript = 4;  // the kernel's own limit

bool is_runnable_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// The words after "#!"; none: not a script.
std::optional<std::vector<std::string>> script_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char mark[2] = {};
  if (!file.read(mark, 2) || mark[0] != '#' || mark[1] != '!') return std::nullopt;
  std::string line(4096, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(std::min(line.find('\n'), static_cast<std::size_t>(file.gcount())));
  std::istringstream words(line);
  return std::vector<std::string>{std::istream_iterator<std::string>(words), {}};
}

// "#!/usr/bin/env -S NAME=value python3": env is not what runs in the end.
std::string interpreter_named_by(const std::vector<std::string>& words) {
  if (std::filesystem::path(words[0]).filename() != "env") return words[0];
  for (std::size_t i = 1; i < words.size(); ++i)
    if (words[i].front() != '-' && words[i].find('=') == std::string::npos) return words[i];
  return words[0];
}

struct Judge {
  ProgramReport& report;
  bool any_peers;

  void say(const char* check, Effect effect, std::string detail) {
    report.findings.push_back({check, effect, std::move(detail)});
  }

  void privileges(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return;
    const bool user = (info.st_mode & S_ISUID) != 0 && info.st_uid != ::getuid();
    const bool group = (info.st_mode & S_ISGID) != 0 && info.st_gid != ::getgid();
    const bool capable = ::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
    if (user || group || capable)
      say("privileges", Effect::total,
          fmt::format("is {}: the loader preloads nothing into programs that gain privileges",
                      capable ? "given capabilities"
                      : user  ? "setuid"
                              : "setgid"));
    else
      say("privileges", Effect::none, "gains no privileges when it starts");
  }

  void linkage(const ElfFile& elf) {
    if (!elf.is_64_bit() || !elf.is_for_this_machine()) {
      report.preload_is_safe = false;
      return say("class", Effect::total,
                 elf.is_64_bit() ? "is for another kind of processor: this library cannot be loaded into it"
                                 : "is a 32-bit program: the library is 64-bit");
    }
    if (!elf.interpreter())
      return say("linking", Effect::total, "is statically linked: nothing can be preloaded into it");
    if (elf.interpreter()->find("ld-musl") != std::string::npos) {
      report.preload_is_safe = false;
      return say("linking", Effect::total, "uses musl libc: the library needs glibc");
    }
    say("linking", Effect::none, fmt::format("is dynamically linked ({})", *elf.interpreter()));
  }

  static bool is_in_go(const ElfFile& elf) {
    return elf.has_section(".go.buildinfo") || elf.has_section(".note.go.buildid");
  }
  void language(const ElfFile& elf) {
    if (is_in_go(elf))
      say("language", Effect::total, "is written in Go: it makes its system calls itself, past every library");
  }

  void calls(const ElfFile& elf) {
    if (elf.needs("liburing") || elf.imports("io_uring_queue_init"))
      say("io_uring", Effect::possible,
          "is linked with liburing: sockets that it uses that way stay on kernel TCP (files do not matter)");
    if (elf.needs("libseccomp") || elf.imports("seccomp_init"))
      say("sandbox", Effect::possible,
          "can shut itself into a seccomp sandbox: connections that turn busy in there may stay on kernel TCP");
    const bool sockets = elf.imports("socket") || elf.imports("accept") || elf.imports("accept4");
    if (elf.interpreter() && !sockets && !is_in_go(elf))
      say("sockets", Effect::none, "makes no socket itself; its libraries and children may, and are covered");
  }

  // A server that root starts and that then becomes somebody whose name it was told: its clients are not that user.
  void user(const ElfFile& elf) {
    const auto any_of = [&elf](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(), [&elf](const char* name) { return elf.imports(name); });
    };
    std::error_code unknown;
    const bool is_this_command = std::filesystem::equivalent(report.path, "/proc/self/exe", unknown);
    if (any_peers || is_this_command || ::geteuid() != 0 || !any_of({"listen"}) ||
        !any_of({"getpwnam", "getpwnam_r"}) || !any_of({"setuid", "setreuid", "setresuid", "seteuid"}))
      return;
    say("user", Effect::partial,
        "can change to another user once root has started it, and with programs of other users it stays on kernel TCP; "
        "to share memory with them: `viaduct run --peers any`, on both sides");
  }
};

}  // namespace

bool ProgramReport::will_be_accelerated() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const auto& finding) { return finding.effect == Effect::total; });
}

Result<std::string> find_program(const std::string& name) {
  const auto judge = [&](const std::string& path) -> Result<std::string> {
    if (is_runnable_file(path)) return path;
    if (::access(path.c_str(), F_OK) == 0)
      return Error(EACCES, fmt::format("{} is not a program that you may run", path));
    return Error(ENOENT, fmt::format("there is no program '{}'", name));
  };
  if (name.find('/') != std::string::npos || name.empty()) return judge(name);
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_runnable_file(candidate)) return candidate;
  }
  return Error(ENOENT, fmt::format("there is no program '{}' in PATH", name));
}

Result<ProgramReport> inspect_program(const std::string& name, bool any_peers) {
  ProgramReport report;
  VIADUCT_TRY(report.path, find_program(name));
  Judge judge{report, any_peers};
  std::string running = report.path;
  for (auto words = script_line(running); words; words = script_line(running)) {
    auto next = words->empty() ? Result<std::string>(Error(ENOEXEC, "")) : find_program(interpreter_named_by(*words));
    if (!next || report.interpreters.size() == kDeepestScript) {
      judge.say("script", Effect::total,
                next ? "is a script of scripts without end" : "is a script whose interpreter is missing");
      return report;
    }
    report.interpreters.push_back(running = *next);
  }
  const auto elf = ElfFile::open(running);
  if (!elf && elf.error().code() == ENOEXEC) {  // execvp gives it to the shell, whoever wrote it
    judge.say("format", Effect::none, "is neither ELF nor starts with #!: the shell will run it");
    return report;
  }
  if (!elf) {
    judge.say("format", Effect::none, "cannot be read by you, only run: nothing can be told about it");
    return report;
  }
  judge.privileges(running);
  judge.linkage(*elf);
  judge.language(*elf);
  judge.calls(*elf);
  judge.user(*elf);
  return report;
}

}  // namespace viaduct::cli
