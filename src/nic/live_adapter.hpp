// LiveAdapter: the Adapter of nic.hpp. Owns everything, and the threads of its processors.
#pragma once

#include <thread>
#include <vector>

#include "base/counters.hpp"
#include "base/fd.hpp"
#include "nic/driver.hpp"
#include "nic/endpoint/adapter_endpoint.hpp"
#include "nic/endpoint/doorbells.hpp"
#include "nic/firmware/dispatch.hpp"
#include "nic/live_hardware.hpp"
#include "nic/null_host.hpp"

namespace viaduct::nic {

class LiveAdapter final : public Adapter, private InlinedFirmware, private AdapterTurns {
 public:
  static Result<std::unique_ptr<LiveAdapter>> create(Config config, std::unique_ptr<Mac> mac);
  ~LiveAdapter() override;

  Host& host() override { return *driver_; }
  Mac& mac() override { return *mac_; }
  std::unique_ptr<Endpoint> open_endpoint(const EndpointOptions& options, Failure& why) override;
  bool poll() override;
  Reading statistics() const override;
  std::vector<TraceEntry> trace() const override;
  int core_of_queue(unsigned queue) const override;

  Driver& driver() { return *driver_; }
  Registers& registers() { return *registers_; }

  // An endpoint's place in the adapter, whoever its user is: memory made, frames steered. `opening` tells the id, and
  // `memory` the descriptor of the memory, which is the port's.
  Result<Port*> open_port(const EndpointOptions& options, Port::Opening& opening, int* memory = nullptr);
  EndpointSwitch* endpoints() { return endpoints_.get(); }
  Doorbells& doorbells() { return doorbells_; }
  int core_of(std::uint16_t id) const override;

 private:
  // Padded: each is its own thread's.
  struct alignas(64) Place {
    Processor cpu;
    std::thread thread;
  };

  // Partition inlined: the MAC's descriptor, the next timer, and a bell for interrupts that another thread raises.
  class CallersSleep final : public Sleeper {
   public:
    explicit CallersSleep(LiveAdapter& adapter) : adapter_(adapter) {}
    SleepResult sleep(WaitWord& word, std::uint32_t armed, Deadline deadline, const Clock& clock) override;

   private:
    LiveAdapter& adapter_;
  };

  LiveAdapter(Config config, std::unique_ptr<Mac> mac) : config_(std::move(config)), mac_(std::move(mac)) {}
  Sleeper& sleeper() override { return callers_sleep_; }
  Status settle_partition();
  Status make_parts();
  Status make_endpoints(StatisticsBlock& block);
  Status start();
  void run(Place& place);
  unsigned turn(Place& place);
  void doze(Place& place);
  void publish();

  // Partition inlined: whoever calls runs the firmware, one at a time. Whoever finds it running leaves word.
  bool inlined() const override { return config_.partition == Partition::inlined; }
  void frames_wait() override;
  void turn() override;
  std::size_t send_now(std::span<const Frame> frames) override;

  Config config_;
  std::unique_ptr<Mac> mac_;
  unsigned processors_ = 1;
  Assignment processor_of_{};
  std::unique_ptr<Registers> registers_;
  std::unique_ptr<HostMemory> memory_;
  Segment statistics_segment_;
  std::unique_ptr<Doze> doze_;
  Doorbells doorbells_;
  std::unique_ptr<LiveHardware> hardware_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Firmware<LiveHardware>> firmware_;
  std::unique_ptr<EndpointSwitch> endpoints_;
  std::unique_ptr<HandlerPort> handler_;
  std::optional<NullHost> null_host_;
  std::vector<Place> places_;
  Fd bell_;  // this and the next four: partition inlined
  SpinLock turning_;
  std::atomic<bool> wanted_{false};          // a turn, by somebody who found the lock taken
  std::atomic<bool> turned_in_vain_{false};  // the last turn found nothing
  CallersSleep callers_sleep_{*this};
  std::atomic<bool> stopping_{false};
  Totals published_;  // as added to the process's counters: by the processor of Mailbox
};

}  // namespace viaduct::nic
