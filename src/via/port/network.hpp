// A port's end of the network: an engine of flows (viaduct/net.hpp), what peers on other hosts may reach of the port's
// registered memory, and the place where a ready queue looks for connections that have news.
//
// Each connection has a word of its own, its `user`, by which the engine names it.
//
// Thread safety: everything may be called from any thread, except what is a ready source's.
#pragma once

#include <viaduct/net.hpp>
#include <viaduct/via.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "via/channel/ready_source.hpp"
#include "via/port/registrations.hpp"

namespace viaduct::via {

class Network final : public ReadySource, private net::RegisteredMemory {
 public:
  static Result<std::shared_ptr<Network>> open(Registrations& registrations, const net::EngineOptions& options);
  // Over a link of one's own that leads to one other port.
  static Result<std::shared_ptr<Network>> over(std::unique_ptr<nic::Mac> mac, Registrations& registrations,
                                               const net::EngineOptions& options);

  net::Engine& engine() { return *engine_; }

  // What the peer of a connection may reach: memory of that tag, or of any for tag 0, and what is lent to it.
  struct Reachable {
    std::uint64_t tag = 0;
    std::uint64_t rights = 0;
  };
  std::uint64_t new_user();
  void admit(std::uint64_t user, const Reachable& reachable);
  void dismiss(std::uint64_t user);

  // Memory that one connection may read, whatever its tag. Taken back: nobody reads it any more. Key 0: no place.
  MemoryKey lend(std::uint64_t user, const void* address, std::size_t length);
  void take_back(MemoryKey key, const void* address);
  // After something was deregistered: nobody on another host is in it any more.
  void settle() { engine_->settle(); }

  // Names, and who has asked for them.
  bool offer(const std::string& name, net::Failure& why);
  void withdraw(const std::string& name);
  bool take_incoming(const std::string& name, net::Incoming& incoming);

  // Until something has come, or may be done, or the time is up.
  void wait(std::uint64_t most_ns);

  // ---- by the thread that looks into the ready queue

  void report(std::uint64_t user, std::uint64_t tag);
  void stop_reporting(std::uint64_t user);
  std::size_t take(std::span<std::uint64_t> tags) override;
  bool prepare_to_sleep() override;
  void woke() override { engine_->woke(); }
  int descriptor() const override { return engine_->descriptor(); }

 private:
  explicit Network(Registrations& registrations) : registrations_(registrations) {}
  Reached reach(std::uint64_t user, std::uint64_t tag, std::uint64_t address, std::uint64_t length,
                Access access) override;
  static constexpr std::uint64_t kLent = std::uint64_t{1} << 60;  // of tags; nobody else's are so large

  Registrations& registrations_;
  std::shared_ptr<net::Engine> engine_;
  std::atomic<std::uint64_t> last_user_{0};

  std::mutex mutex_;  // a leaf: nothing else is locked under it
  std::unordered_map<std::uint64_t, Reachable> admitted_;
  std::mutex incoming_mutex_;
  std::map<std::string, std::deque<net::Incoming>> incoming_;

  std::unordered_map<std::uint64_t, std::uint64_t> tags_;  // by user
  std::vector<std::uint64_t> fresh_;                       // tags that nobody has looked at yet
  std::uint64_t seen_ = 0;
};

}  // namespace viaduct::via
