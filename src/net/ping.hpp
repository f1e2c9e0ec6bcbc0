// Measuring the way to another host: one side answers, the other asks. What `viaduct ping` is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/node.hpp"

namespace viaduct::net {

inline constexpr const char* kPingName = "viaduct-ping";

// A MAC for nodes on an interface that others use as well.
Result<std::unique_ptr<nic::Mac>> open_frames(const std::string& interface);

// Answers whoever asks: echoes messages, and has memory that anybody may write and read.
class PingAnswerer {
 public:
  static Result<std::unique_ptr<PingAnswerer>> open(std::uint16_t port);
  static Result<std::unique_ptr<PingAnswerer>> over(std::unique_ptr<nic::Mac> cable, const std::string& name);
  // Also those who ask by frames, past the kernel's protocols, on every interface with an IPv4 address that permits it.
  // Which these are; empty: `why` says why not.
  std::vector<std::string> answer_frames(std::uint16_t port, std::string& why);
  ~PingAnswerer();

  // One turn, sleeping for at most so long where nothing happens.
  void turn(std::uint64_t most_ns);
  std::size_t peers() const;

 private:
  class Memory;
  PingAnswerer();
  bool progress();
  void take(const StationEvent& event);

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Node> node_;
  std::vector<std::unique_ptr<PingAnswerer>> by_frames_;
};

// The other end: one connection to an answerer, whose memory is as large as this one's.
class Pinger {
 public:
  static constexpr std::size_t kMemory = 4 << 20;

  // Connects to "HOST" or "HOST:PORT". Nothing that it waits for may take longer than the timeout.
  static Result<std::unique_ptr<Pinger>> open(const std::string& host, std::uint64_t timeout_ns);
  static Result<std::unique_ptr<Pinger>> over(std::unique_ptr<nic::Mac> cable, const std::string& name,
                                              std::uint64_t timeout_ns);
  // By frames on the interface that leads to the same host and port.
  static Result<std::unique_ptr<Pinger>> by_frames(const Route& way, std::uint64_t timeout_ns);
  ~Pinger();

  // 4 bytes there and back, `count` times, looking all the time or sleeping in between; nanoseconds of each.
  Result<std::vector<std::uint64_t>> round_trips(std::uint32_t count, bool spin);
  enum class Way : std::uint8_t { put, get };
  // Transfers of `size` bytes, a few under way at a time, until `bytes` in all have gone or so much time has passed.
  // Bytes per second.
  Result<double> bulk(Way way, std::size_t size, std::uint64_t bytes, std::uint64_t most_ns, bool spin = true);
  // Nothing is owed to the other side any more, which may then stand still for a while.
  bool drain();

  const Route& route() const { return route_; }
  std::string peer() const;        // its process's own address
  std::size_t frame_size() const;  // the largest in use
  const SessionCounters& counters() const;

 private:
  class Memory;
  Pinger(std::string host, std::uint64_t timeout_ns);
  Status meet(const std::string& name);
  void turn(bool spin);
  Error silent(const std::string& what) const;
  template <class Done>
  Status wait(const std::string& what, bool spin, Done&& done);

  const std::string host_;
  const std::uint64_t timeout_ns_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Node> node_;
  Route route_;
  std::vector<std::byte> buffer_;
  std::uint64_t session_ = 0;
  std::uint32_t flow_ = 0;
  bool connected_ = false;
  bool in_bulk_ = false;  // what comes is a sign of life
  std::uint64_t transferred_ = 0, failed_ = 0;
  std::string fault_;
};

}  // namespace viaduct::net
