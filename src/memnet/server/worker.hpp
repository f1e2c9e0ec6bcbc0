// A worker: a thread that runs the lines that were given to it, and their sockets, in one loop.
//
//   lines       a ready queue: an idle line costs nothing
//   sockets     one epoll instance, edge-triggered: one registration for a socket's life
//   the main    an inbox with an eventfd
//
// It looks at all of them while there is work, spins a bounded while, and then sleeps in the epoll instance, in which
// the ready queue's descriptor is as well. No timer ticks.
//
// give(), stop() and load() may be called from any thread.
#pragma once

#include <sys/epoll.h>
#include <viaduct/via.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/counters.hpp"
#include "base/fd.hpp"
#include "base/spin.hpp"
#include "memnet/server/line.hpp"
#include "memnet/server/policy.hpp"

namespace viaduct::memnet {

struct WorkerOptions {
  unsigned number = 1;
  int processor = -1;  // any
  std::size_t most_sockets = 65536;
};

class Worker {
 public:
  // `slot_is_free` is told when a line has gone.
  static Result<std::unique_ptr<Worker>> make(const WorkerOptions& options, const Policy& policy,
                                              std::function<void(std::uint32_t)> slot_is_free);
  ~Worker();

  void start();
  void give(std::unique_ptr<Line> line);
  void stop();  // listeners stop accepting, what is queued is sent, then the thread ends. Waits for it.
  std::size_t lines() const { return lines_count_.load(std::memory_order_relaxed); }
  std::size_t sockets() const { return sockets_count_.load(std::memory_order_relaxed); }
  // Of its time, how much it worked, in thousandths; lately.
  unsigned busy() const { return busy_.load(std::memory_order_relaxed); }

  // ---- for its lines, on its thread

  int epoll() const { return epoll_.get(); }
  const Policy& policy() const { return policy_; }
  std::span<std::byte> buffer() { return buffer_; }
  bool has_room_for_socket() const { return sockets_here_ < options_.most_sockets; }
  void count_socket(int by);
  void linger(std::unique_ptr<ServedSocket> socket);
  void bury(std::unique_ptr<ServedSocket> socket);
  void wait_for_descriptors(ServedSocket& listener) { starved_.push_back(&listener); }
  void forget(ServedSocket& socket);
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }
  void look_again(ServedSocket& socket) { again_.push_back(&socket); }

  struct Counts {
    Counter accepted, connected, bytes_in, bytes_out, jobs, requests, broken;
  };
  Counts& counts() { return counts_; }

 private:
  Worker(const WorkerOptions& options, const Policy& policy, std::function<void(std::uint32_t)> slot_is_free);
  void run();
  bool turn();
  bool serve_lines();
  bool serve_sockets(int timeout_ms);
  bool handle_events(const epoll_event* events, int count);
  void pump_lingering(ServedSocket& socket);
  bool take_inbox();
  void sleep(std::uint64_t idle_since);
  void remove(Line& line);
  void clean_up();
  void finish();
  void note_load(std::uint64_t now, bool worked);

  const WorkerOptions options_;
  const Policy& policy_;
  const std::function<void(std::uint32_t)> slot_is_free_;
  Counts counts_;
  Counter busy_counter_, sockets_counter_, lines_counter_;
  Fd epoll_, bell_;
  std::unique_ptr<via::ReadyQueue> ready_;
  std::vector<std::byte> buffer_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Line>> lines_;  // by tag
  std::uint64_t next_tag_ = 1;
  std::vector<std::uint64_t> leftovers_;  // lines with more than one round took
  std::vector<std::unique_ptr<ServedSocket>> lingering_, graveyard_;
  std::vector<ServedSocket*> starved_, again_;
  std::size_t sockets_here_ = 0;
  SpinBudget budget_;
  bool napped_ = false;
  std::uint64_t window_began_ = 0, worked_ns_ = 0, turn_began_ = 0;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Line>> inbox_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> lines_count_{0}, sockets_count_{0};
  std::atomic<unsigned> busy_{0};
  std::thread thread_;
};

}  // namespace viaduct::memnet
