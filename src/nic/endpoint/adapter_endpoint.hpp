// An endpoint of an adapter in this process. What stands behind its rings is told by an AdapterTurns: the processors of
// the adapter, or, where the firmware runs inline, whoever calls.
#pragma once

#include <viaduct/nic_endpoint.hpp>

#include <atomic>

#include "nic/endpoint/endpoint_switch.hpp"
#include "nic/endpoint/rings.hpp"

namespace viaduct::nic {

class AdapterTurns {
 public:
  virtual ~AdapterTurns() = default;
  virtual bool inlined() const = 0;
  virtual void frames_wait() = 0;  // in a send ring
  virtual void turn() = 0;         // inlined only: the firmware, unless somebody runs it just now
  // Inlined only: straight to the MAC, if nobody runs the firmware just now.
  virtual std::size_t send_now(std::span<const Frame> frames) = 0;
  virtual int core_of(std::uint16_t id) const = 0;
};

class AdapterEndpoint final : public Endpoint {
 public:
  AdapterEndpoint(AdapterTurns& adapter, EndpointSwitch& among, Port& port, std::uint16_t id, Mac& mac,
                  EndpointRings rings, WakeDescriptor wake);
  ~AdapterEndpoint() override { among_.close(port_); }

  std::uint16_t id() const override { return id_; }
  MacAddress address() const override { return mac_.address(); }
  std::uint32_t max_frame() const override { return mac_.max_frame(); }
  Mac& mac() override { return mac_; }
  int core() const override { return adapter_.core_of(id_); }

  std::size_t send(std::span<const Frame> frames) override;
  std::size_t receive(std::span<Packet> packets) override;
  void give_back(std::span<const Packet> packets) override;

  int descriptor() const override { return wake_.get(); }
  bool arm() override;
  void disarm() override;
  void set_next_due(std::uint64_t ns) override { next_due_ns_ = ns; }
  void wake() override { wake_.ring(rings_.memory().user_word); }
  EndpointCounters counters() const override;

 private:
  bool something_to_do();

  AdapterTurns& adapter_;
  EndpointSwitch& among_;
  Port& port_;
  const std::uint16_t id_;
  Mac& mac_;
  EndpointRings rings_;
  WakeDescriptor wake_;
  // The receiving side's.
  std::uint64_t next_due_ns_ = UINT64_MAX;
  bool watches_room_ = false;

  alignas(64) std::atomic<std::uint64_t> received_{0}, returned_{0};
  alignas(64) std::atomic<std::uint64_t> sent_{0};  // the sending side's
  std::atomic<bool> wanted_room_{false};
};

}  // namespace viaduct::nic
