// The endpoints of an adapter: which there are, which frame is for which, and who moves it there.
//
// Frames come from the processor of Receive Complete (sort), a batch at a time. Depending on the delivery they are
// moved there and then, or handed over to the processor of a queue. Frames that endpoints send are taken by the
// processor of Send Data Ready (drain), endpoint by endpoint, starting where the last turn ended.
#pragma once

#include <viaduct/nic_endpoint.hpp>

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "nic/endpoint/delivery_processor.hpp"
#include "nic/endpoint/port.hpp"
#include "nic/firmware/steering_table.hpp"

namespace viaduct::nic {

class EndpointSwitch {
 public:
  static constexpr unsigned kMostEndpoints = 256;
  // Where a frame is that was handed over; 0: it may go back to its MAC.
  using Ticket = std::uint64_t;

  struct Options {
    EndpointPlace place;
    Delivery delivery = Delivery::together;
    unsigned queues = 1;
    std::vector<int> cores;  // of the queues' processors
    std::uint64_t spin_us = 0;
  };
  EndpointSwitch(const Options& options, const SteeringTable& steering);
  EndpointSwitch(const EndpointSwitch&) = delete;
  EndpointSwitch& operator=(const EndpointSwitch&) = delete;

  // From any thread. An id of 0: the lowest that is free, told in `opening`. EADDRINUSE, ENOSPC.
  Result<Port*> open(Port::Opening& opening);
  void close(Port& port);

  // The processor of Receive Complete. `taken[i]` is set for frames that are an endpoint's, with a ticket each.
  void sort(std::span<const Frame> frames, std::span<FrameFate> fates, std::span<Ticket> tickets);
  bool is_done(Ticket ticket) const {
    return ticket == 0 ||
           static_cast<std::int32_t>(processors_[(ticket >> 32) - 1]->done() - static_cast<std::uint32_t>(ticket)) >= 0;
  }

  // The processor that sends; `frames` taken by the MAC.
  std::size_t drain(Mac& mac, std::uint64_t& bytes);
  bool is_full() const { return full_; }  // the MAC took less than there was in the last turn
  bool arm();                             // false: there is something to send

  // Any thread, now and then.
  void publish(const Mac& mac);

 private:
  Port* find(std::uint16_t id) const { return by_id_[id].load(std::memory_order_acquire); }
  void deliver_to_all(const Frame& frame);
  void deliver_here(Port& port, std::uint16_t id, std::span<const Frame> frames);
  Ticket hand_over(Port& port, std::uint16_t id, const Frame& frame);

  const Options options_;
  const SteeringTable& steering_;
  std::mutex opening_;
  std::unique_ptr<std::atomic<Port*>[]> by_id_;
  std::array<std::unique_ptr<Port>, kMostEndpoints> ports_;  // made when first needed, kept
  std::atomic<unsigned> used_{0};                            // places of ports_ that have been made
  std::vector<std::unique_ptr<DeliveryProcessor>> processors_;
  // The sorter's.
  unsigned turn_ = 0;  // round robin
  // The sender's.
  unsigned next_ = 0;
  bool full_ = false;
};

}  // namespace viaduct::nic
