// The user's side of an endpoint's memory. The adapter may be another process: what it writes is checked as far as
// following it could reach outside the memory.
//
// The sending half and the receiving half each belong to one thread at a time.
#pragma once

#include <viaduct/nic_endpoint.hpp>

#include <vector>

#include "nic/endpoint/memory.hpp"

namespace viaduct::nic {

class EndpointRings {
 public:
  EndpointRings() = default;
  explicit EndpointRings(const EndpointView& view) : view_(view), is_out_(view.geometry.buffers, 0) {}

  // Sending half. One that is too long is taken and lost.
  std::size_t send(std::span<const Frame> frames);
  // From either half.
  std::uint32_t unsent() const {
    return view_.memory->send_producer.load(std::memory_order_relaxed) -
           view_.memory->send_consumer.load(std::memory_order_acquire);  // A4
  }
  bool has_room() const { return unsent() < view_.geometry.sends; }

  // Receiving half.
  bool something_came() const { return view_.memory->return_producer.load(std::memory_order_acquire) != consumer_; }
  // `mark` is set in the number of each buffer.
  std::size_t receive(std::span<Packet> packets, std::uint32_t mark = 0);
  bool give_back(std::uint32_t buffer);  // false: it is not out
  void post();                           // what was given back may be filled
  std::uint32_t out() const { return out_; }

  EndpointMemory& memory() const { return *view_.memory; }
  const EndpointGeometry& geometry() const { return view_.geometry; }

 private:
  EndpointView view_;
  // Sending half.
  std::uint32_t send_producer_ = 0;
  // Receiving half.
  alignas(64) std::uint32_t consumer_ = 0;
  std::uint32_t free_producer_ = 0;
  std::uint32_t out_ = 0;
  std::vector<std::uint8_t> is_out_;  // per buffer
};

}  // namespace viaduct::nic
