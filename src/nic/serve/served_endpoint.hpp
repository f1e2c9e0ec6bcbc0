// An endpoint whose adapter is another process's. Its rings are in memory that a server has handed over; a connection
// tells when that server is gone, and then, each time the endpoint is used and not more often than every 20 ms, it is
// looked for again.
//
// The receiving thread connects. A sender and that thread meet in `changing_`.
#pragma once

#include <list>

#include "base/spin_lock.hpp"
#include "nic/endpoint/rings.hpp"
#include "nic/serve/served_mac.hpp"

namespace viaduct::nic {

class ServedEndpoint final : public Endpoint {
 public:
  ServedEndpoint(std::string server, const EndpointOptions& options, WakeDescriptor wake)
      : server_(std::move(server)), options_(options), mac_(server_), wake_(std::move(wake)) {}

  Status connect();

  std::uint16_t id() const override { return options_.id; }
  MacAddress address() const override { return mac_.address(); }
  std::uint32_t max_frame() const override { return mac_.max_frame(); }
  Mac& mac() override { return mac_; }
  int core() const override { return core_.load(std::memory_order_relaxed); }

  std::size_t send(std::span<const Frame> frames) override;
  std::size_t receive(std::span<Packet> packets) override;
  void give_back(std::span<const Packet> packets) override;

  int descriptor() const override { return wake_.get(); }
  bool arm() override;
  void disarm() override;
  void set_next_due(std::uint64_t ns) override { next_due_ns_ = ns; }
  void wake() override;
  EndpointCounters counters() const override;

 private:
  // One life of the server: its memory stays while packets of it are out.
  struct Life {
    std::uint32_t number = 0;
    Segment segment;
    EndpointRings rings;
  };
  static constexpr unsigned kLifeShift = 16;

  bool alive() const { return alive_.load(std::memory_order_acquire); }
  void look_at_server();  // by a look at the bell
  void lose();
  void try_again();
  bool something_to_do();

  const std::string server_;
  EndpointOptions options_;  // with the id that the server chose
  ServedMac mac_;
  WakeDescriptor wake_;
  WakeDescriptor::Word nobody_{0};  // to arm while there is no server
  // The receiving side's.
  std::list<Life> lives_;  // the last one is the current
  Fd connection_, bell_;
  std::uint32_t number_ = 0;
  std::uint64_t next_try_ns_ = 0;
  std::uint64_t next_due_ns_ = UINT64_MAX;
  std::uint32_t in_vain_ = 0;  // receives
  std::uint64_t over_limit_before_ = 0;

  std::atomic<bool> alive_{false};
  std::atomic<int> core_{-1};
  mutable SpinLock changing_;
  alignas(64) std::atomic<std::uint64_t> received_{0}, returned_{0};
  alignas(64) std::atomic<std::uint64_t> sent_{0};  // the sending side's
  std::atomic<bool> wanted_room_{false};
};

}  // namespace viaduct::nic
