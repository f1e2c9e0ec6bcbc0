// A two-way connection between this process and a partner, in all its kinds: ours, the kernel's, libfabric's. One
// object for both ends: made before the fork, opened by each process on first use, and then used for messages of any
// size up to kMostBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "bench/partner.hpp"

namespace viaduct::bench {

class Conduit {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  static constexpr std::uint32_t kWindow = 64;  // messages under way in a stream, where somebody has to bound them

  enum class Side { here, there };

  virtual ~Conduit() = default;
  virtual void open(Side) {}
  virtual void close() {}

  // From and into a buffer of the conduit's own: the same one again and again.
  virtual void send(std::size_t size) = 0;
  virtual void receive(std::size_t size) = 0;
  // What was sent needs nothing more from this process.
  virtual void settle() {}
  // What the other end may still wait for from this process, once more. False: for nothing.
  virtual bool turn() { return false; }

  // The halves of a ping-pong, and of a stream.
  virtual void ping(std::uint32_t count, std::size_t size);
  virtual void pong(std::uint32_t count, std::size_t size);
  virtual void stream(std::uint32_t count, std::size_t size);
  virtual void drain(std::uint32_t count, std::size_t size);
};

// No number is right any more: says what failed, and ends this process.
[[noreturn]] void give_up(const std::string& why);

// A socket pair over which the two ends tell each other where they are.
class Meeting {
 public:
  Status prepare();
  void choose(Conduit::Side side) { end_ = side == Conduit::Side::here ? sockets_.first.get() : sockets_.second.get(); }
  void tell(const void* bytes, std::size_t size);
  void hear(void* bytes, std::size_t size);

 private:
  FdPair sockets_;
  int end_ = -1;
};

// Two hosts that are network namespaces: each end opens its sockets in its own.
struct TwoEnds {
  std::string near, far;                 // IP addresses
  std::function<void(bool near)> enter;  // what this thread opens from now on belongs there

  const std::string& of(bool here) const { return here ? near : far; }
};

// A conduit and the partner at its other end.
class ConduitLink {
 public:
  static Result<std::unique_ptr<ConduitLink>> make(std::unique_ptr<Conduit> conduit);
  ~ConduitLink();

  double one_way_ns(std::uint32_t count, std::size_t size);      // half a round trip
  double per_message_ns(std::uint32_t count, std::size_t size);  // of a stream, acknowledged once at the end
  void open();                                                   // both ends, if they are not yet
  Conduit& conduit() { return *conduit_; }
  pid_t partner() const { return partner_->process(); }

 private:
  enum class Work : std::uint32_t { open, pong, drain, close };
  struct Job {
    std::uint32_t count;
    std::uint32_t word;

    Job(std::uint32_t how_many, Work work, std::size_t size = 0)
        : count(how_many), word(static_cast<std::uint32_t>(size << 4) | static_cast<std::uint32_t>(work)) {}
    Work work() const { return static_cast<Work>(word & 15); }
    std::size_t size() const { return word >> 4; }
  };

  explicit ConduitLink(std::unique_ptr<Conduit> conduit) : conduit_(std::move(conduit)) {}
  void start(Job job);
  void finish();
  void do_there(Job job);
  static constexpr std::size_t kToken = 4;  // a message that says: I am awake, or, all has come

  std::unique_ptr<Conduit> conduit_;
  std::unique_ptr<Partner> partner_;
  bool opened_ = false;
};

// ---- the kinds; VIPL's are in conduit_vipl.hpp

Result<std::unique_ptr<Conduit>> make_cache_line();  // carries nothing: the floor of latency
Result<std::unique_ptr<Conduit>> make_raw_channel();
enum class Waits { sleeping, spinning };
Result<std::unique_ptr<Conduit>> make_unix(Waits waits);
Result<std::unique_ptr<Conduit>> make_tcp(Waits waits);
// A provider of libfabric, RDM endpoints. An error says why there is none here.
struct FabricOptions {
  std::string provider = "shm";
  std::optional<TwoEnds> hosts{};  // for providers that go between them
};
Status look_for_fabric(const std::string& provider);
Result<std::unique_ptr<Conduit>> make_fabric(const FabricOptions& options = {});

}  // namespace viaduct::bench
