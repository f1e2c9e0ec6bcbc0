// The TCP server: its main thread meets clients, accepts or rejects their lines by load and policy, and hands them to
// workers. `viaduct tcp-server` is this; tests and benchmarks run it too.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memnet/server/policy.hpp"
#include "memnet/server/worker.hpp"
#include "via/port/port.hpp"

namespace viaduct::memnet {

struct ServerOptions {
  std::string name = "tcp-server";
  unsigned workers = 1;
  std::vector<int> processors;       // of the workers, in turn; empty: any
  bool on_network = false;           // other hosts may use it too
  std::size_t most_lines = 256;      // per worker
  std::size_t most_sockets = 65536;  // per worker
  unsigned busy_permille = 1001;     // a worker that works more than this takes no more clients
  Policy policy;
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> open(ServerOptions options);
  ~Server();

  // Serves until that says so; it is asked at least every `slice_ns`.
  void run(const std::function<bool()>& stopped, std::uint64_t slice_ns = 100'000'000);
  // One look for clients, waiting for them so long.
  void turn(std::uint64_t most_ns);
  void stop();

  std::size_t lines() const;
  std::size_t sockets() const;

 private:
  struct Meeting {
    std::unique_ptr<via::Handshake> handshake;
    Hello hello;
    std::size_t worker = 0;
    std::uint32_t slot = 0;
    std::uint64_t began_ns = 0;
    bool far = false;
  };

  explicit Server(ServerOptions options) : options_(std::move(options)) {}
  void meet(std::unique_ptr<via::Handshake> handshake);
  bool go_on(Meeting& meeting);
  int choose(const Hello& hello, bool far, std::size_t& worker) const;
  std::uint32_t take_slot();
  void free_slot(std::uint32_t slot);

  const ServerOptions options_;
  std::uint64_t number_ = 0;
  std::shared_ptr<via::Port> port_;
  std::shared_ptr<via::Listener> listener_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Meeting> meetings_;
  std::mutex slots_mutex_;
  std::vector<std::uint32_t> free_slots_;
  std::uint32_t next_slot_ = 0;
};

}  // namespace viaduct::memnet
