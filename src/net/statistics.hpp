// What engines count, in memory that other processes of this user read without stopping anyone: the segment
// `viaduct-net`, one for each engine (docs/formats/net-statistics.md). `viaduct ls` and `viaduct top` show it.
#pragma once

#include <viaduct/nic_mac.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/segment.hpp"
#include "net/session_counters.hpp"

namespace viaduct::net {

struct SessionEntry {
  std::atomic<std::uint32_t> state;  // R1: kUsed (release) publishes the texts; pairs with A1 in the reader
  std::uint32_t sealed;
  char peer[64];
  char interface[24];
  SessionCounters counters;
};

struct EngineBlock {
  char carrier[16];
  StationCounters station;
  std::uint64_t mac_sent, mac_received, mac_transmit_drops, mac_receive_drops;
  SessionEntry sessions[1];  // as many as there is memory for
};

// By the engine's thread.
class Statistics final : public Ledger {
 public:
  static constexpr std::size_t kMostSessions = 512;  // those beyond are counted where nobody reads

  // Nothing where counters are off, or there is no memory.
  static std::unique_ptr<Statistics> make(const std::string& carrier);

  StationCounters* station() override { return &block().station; }
  SessionCounters* open(std::uint64_t session) override;
  void close(std::uint64_t session) override;
  // Its peer is known: from now on it is seen.
  void show(std::uint64_t session, const std::string& peer, const std::string& interface, bool sealed);
  void set_mac(const nic::MacCounters& counters);

 private:
  explicit Statistics(Segment segment) : segment_(std::move(segment)) {}
  EngineBlock& block() const { return *segment_.as<EngineBlock>(); }

  Segment segment_;
  std::unordered_map<std::uint64_t, SessionEntry*> entries_;
  std::vector<SessionEntry*> free_;
  std::size_t made_ = 0;
};

struct SessionReading {
  std::string peer, interface;
  bool sealed = false;
  SessionCounters counters;
};

struct EngineReading {
  int pid = 0;
  std::string command;
  std::string carrier;
  StationCounters station;
  nic::MacCounters mac;
  std::vector<SessionReading> sessions;
};

// Of a process; 0: of all that may be read.
std::vector<EngineReading> read_engines(int pid);

}  // namespace viaduct::net
