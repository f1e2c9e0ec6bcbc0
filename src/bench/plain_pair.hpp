// Two processes of viaduct-plain-sockets that talk to each other: each accelerated or not, each on its processor. They
// sleep in read() while it is not their turn.
#pragma once

#include <memory>
#include <string>

#include "bench/child_program.hpp"

namespace viaduct::bench {

struct PlainSetup {
  std::string server_way = "blocking";  // or spinning, epoll
  std::string client_way = "blocking";
  bool server_accelerated = false;
  bool client_accelerated = false;
  bool unix_socket = false;
  bool one_processor = false;
  unsigned idle = 0;  // connections beside the one that is measured, each used before and then left alone
};

class PlainPair {
 public:
  static Result<std::unique_ptr<PlainPair>> start(const PlainSetup& setup);
  ~PlainPair();

  double round_trip_us(std::size_t size, unsigned count);
  // Of a stream, acknowledged at the end. The receiver takes `at_once` bytes per call.
  double per_message_ns(std::size_t size, unsigned count, std::size_t at_once);
  double visit_us(unsigned count);  // connect, 64 bytes there and back, close
  void open_idle(unsigned count);

  // Proportional: pages that both share count once.
  double memory_kb() const;
  // How many connections have memory of their own: those that left kernel TCP.
  unsigned accelerated() const;

 private:
  PlainPair(ChildProgram server, ChildProgram client) : server_(std::move(server)), client_(std::move(client)) {}
  double both(const std::string& server_line, const std::string& client_line);

  ChildProgram server_;
  ChildProgram client_;
  std::string path_;  // of a UNIX socket
};

}  // namespace viaduct::bench
