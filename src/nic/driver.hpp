// Driver: the Host of nic.hpp. Rings in region 0 of host memory, buffers in region 1, mailboxes in the registers.
//
// It keeps the indices it writes in private memory. Of what the adapter writes it reads indices (acquire, so that what
// they cover is there) and return descriptors.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>

#include "base/segment.hpp"
#include "base/spin_lock.hpp"
#include "base/waiter.hpp"
#include "nic/host_memory.hpp"
#include "nic/registers.hpp"

namespace viaduct::nic {

struct DriverOptions {
  unsigned queues = 1;
  std::uint32_t max_frame = kStandardFrame;
  std::uint32_t receive_buffer = kStandardFrame;
  std::uint32_t mini_buffer = 128;
  bool direct_send_consumer = false;
  const Clock* clock = nullptr;
};

// Where the firmware is the caller's to run (Partition::inlined).
class InlinedFirmware {
 public:
  virtual ~InlinedFirmware() = default;
  virtual bool poll() = 0;  // one turn; false: there was nothing to do
  // Until something has come for the firmware, or an interrupt was raised by another thread that runs it.
  virtual Sleeper& sleeper() = 0;
};

class Driver final : public Host {
 public:
  // Registers its memory, fills the receive rings and writes their mailboxes. `doorbell` wakes a sleeping processor;
  // `inlined` null: the firmware runs by itself.
  static Result<std::unique_ptr<Driver>> create(Registers& registers, HostMemory& memory, const DriverOptions& options,
                                                std::function<void()> doorbell, InlinedFirmware* inlined);
  HostAddress rings() const { return rings_at_; }
  HostAddress send_buffers() const { return send_buffers_at_; }
  HostRings& host_rings() { return *rings_; }  // for tests that play a bad driver

  std::optional<std::uint64_t> register_memory(void* memory, std::size_t size) override;
  bool unregister_memory(std::uint64_t address) override;
  bool send(std::span<const Fragment> fragments, std::uint64_t cookie) override;
  bool send_copy(std::span<const std::byte> frame) override;
  void ring() override;
  std::size_t reclaim(std::span<std::uint64_t> cookies) override;
  std::uint32_t send_space() override;
  std::size_t receive(unsigned queue, std::span<Packet> packets) override;
  void give_back(const Packet& packet) override;
  void post() override;
  bool wait(unsigned queue, std::uint64_t timeout_ns) override;
  bool command(Command command, std::uint32_t argument) override;
  Counters counters() const override;

 private:
  static constexpr std::uint32_t kPostEvery = 32;  // buffers given back before the adapter is told unasked

  Driver(Registers& registers, HostMemory& memory, const DriverOptions& options)
      : registers_(registers), memory_(memory), options_(options) {}
  Status allocate();
  void fill_rings();

  struct Buffer {
    HostAddress address;
    std::byte* data;
    std::uint32_t length;
    std::uint8_t ring;
  };
  bool has_something(unsigned queue) const;
  std::uint32_t send_consumer() const;
  void put(HostAddress address, std::uint32_t length, bool end, std::uint64_t cookie, bool silent);
  bool take_return(unsigned queue, const ReturnDescriptor& entry, Packet& packet);
  bool hand_over(std::uint32_t buffer, bool to_adapter);
  void give_back_buffer(std::uint32_t buffer);
  void post_locked();

  Registers& registers_;
  HostMemory& memory_;
  const DriverOptions options_;
  std::function<void()> doorbell_;
  InlinedFirmware* inlined_ = nullptr;
  Segment ring_segment_, buffer_segment_;
  HostRings* rings_ = nullptr;
  HostAddress rings_at_ = 0;

  // The sending thread's.
  struct Sent {
    std::uint64_t cookie;
    bool end, silent;
  };
  alignas(64) std::uint32_t send_producer_ = 0;
  std::uint32_t send_rung_ = 0;       // as the mailbox says
  std::uint32_t send_reclaimed_ = 0;  // descriptors whose cookies have been given out
  std::uint32_t send_known_ = 0;      // the consumer index as last read
  std::array<Sent, kSendRing> sent_{};
  std::byte* send_buffers_ = nullptr;
  HostAddress send_buffers_at_ = 0;
  std::uint32_t send_stride_ = 0;
  std::atomic<std::uint64_t> packets_sent_{0}, packets_reclaimed_{0};

  // Each receiving thread's.
  struct alignas(64) Queue {
    std::uint32_t consumer = 0;
    std::atomic<std::uint64_t> received{0}, refused{0}, bad{0};
    std::unique_ptr<Waiter> waiter;
  };
  std::array<Queue, kMostQueues> queues_;

  // Posting: any receiving thread's, under the lock.
  alignas(64) SpinLock posting_;
  std::uint32_t posted_[kBufferRings] = {};
  std::uint32_t unposted_ = 0;
  std::unique_ptr<Buffer[]> buffers_;
  std::unique_ptr<std::atomic<bool>[]> with_adapter_;  // per buffer: one that comes back twice is not used twice
};

}  // namespace viaduct::nic
