// viaduct handback: live connections return to kernel TCP, where tcpdump and strace see them again.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "cli/command.hpp"
#include "cli/process_fault.hpp"
#include "sockets_view/view.hpp"

namespace viaduct::cli {

namespace {

using sockets_view::LiveStream;
using sockets_view::Route;
using sockets_view::Socket;

struct Target {
  int pid = 0;
  std::optional<int> fd;
};

std::optional<Target> parse(std::string_view text) {
  const auto number = [](std::string_view part) -> std::optional<int> {
    int value = 0;
    const auto [end, fault] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (fault != std::errc{} || end != part.data() + part.size() || value < 0) return std::nullopt;
    return value;
  };
  const auto colon = text.find(':');
  const auto pid = number(text.substr(0, colon));
  if (!pid || *pid == 0) return std::nullopt;
  if (colon == std::string_view::npos) return Target{*pid, std::nullopt};
  const auto fd = number(text.substr(colon + 1));
  if (!fd) return std::nullopt;
  return Target{*pid, fd};
}

struct Asked {
  Socket socket;
  LiveStream stream;
};

// The connections meant that are on a ring, asked to leave it.
Result<std::vector<Asked>> ask(const Target& target) {
  auto sockets = sockets_view::read_sockets(target.pid);
  if (!sockets) return explain_unread_sockets(target.pid, sockets.error(), "handback");
  std::vector<Asked> asked;
  for (Socket& socket : *sockets) {
    if (target.fd && socket.fd != *target.fd) continue;
    if (!target.fd && !socket.attached) continue;
    auto stream = LiveStream::open(socket.pid, socket.fd);
    if (!stream && target.fd) return stream.error();
    if (!stream) continue;  // closed meanwhile
    if (!stream->returned()) stream->ask_back();
    asked.push_back({std::move(socket), std::move(*stream)});
  }
  if (!asked.empty()) return asked;
  if (target.fd)
    return Error(ENOENT, fmt::format("process {} has no TCP socket at descriptor {}", target.pid, *target.fd));
  return Error(ENOENT, fmt::format("process {} has no connection on a ring (viaduct ls {} shows what it has)",
                                   target.pid, target.pid));
}

void wait_for(const std::vector<Asked>& asked, double seconds) {
  using Steady = std::chrono::steady_clock;
  const auto deadline = Steady::now() + std::chrono::duration<double>(seconds);
  for (const Asked& each : asked)
    while (!each.stream.returned() && Steady::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

ExitCode hand_back(const std::string& text, double seconds) {
  const auto target = parse(text);
  if (!target)
    return usage_error(fmt::format("handback: '{}' is neither PID nor PID:FD (viaduct ls shows both)", text));
  const auto asked = ask(*target);
  if (!asked) return failure(asked.error().message());
  wait_for(*asked, seconds);
  for (const Asked& each : *asked) {
    const bool before = each.socket.out.route == Route::tcp_again && each.socket.in.route == Route::tcp_again;
    fmt::print("{}:{}  {} - {}  {}\n", each.socket.pid, each.socket.fd, each.socket.local, each.socket.peer,
               before ? "was on TCP again before"
               : each.stream.returned()
                   ? "is on TCP again"
                   : "asked: each direction returns to TCP with its next send, when not too much is unread");
  }
  return ExitCode::ok;
}

}  // namespace

void add_handback(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("handback", "Return live connections to kernel TCP");
  auto target = std::make_shared<std::string>();
  auto seconds = std::make_shared<double>(1);
  command->add_option("PID|PID:FD", *target, "All connections of a process, or one")->type_name("")->required();
  command->add_option("--wait", *seconds, "How long to watch for it to happen")
      ->type_name("SECONDS")
      ->check(number_between(0, 3600))
      ->capture_default_str();
  on_run(*command, [target, seconds] { return hand_back(*target, *seconds); });
}

}  // namespace viaduct::cli
