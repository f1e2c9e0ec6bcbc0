// What every VIPL program begins with: an adapter, a protection tag, registered memory, connections.
#pragma once

#include <viaduct/vipl.h>

#include <string>

#include "bench/conduit.hpp"

namespace viaduct::bench {

class ViplAdapter {
 public:
  void open();
  void close();

  VIP_MEM_HANDLE register_memory(void* at, std::size_t size);
  void deregister_memory(void* at, VIP_MEM_HANDLE handle);
  VIP_VI_HANDLE create_vi(VIP_RELIABILITY_LEVEL level, std::size_t max_transfer, VIP_CQ_HANDLE receives);
  // `here` waits and `there` asks for it: on this host, or at an IPv4 address.
  void connect(VIP_VI_HANDLE vi, Conduit::Side side, const std::string& name, const std::string& host = {});
  VIP_NIC_HANDLE nic() const { return nic_; }

 private:
  VIP_NIC_HANDLE nic_ = nullptr;
  VIP_PROTECTION_HANDLE tag_ = nullptr;
};

// Ends the benchmark unless a VIPL function succeeded.
void must(VIP_RETURN result, const char* function);

}  // namespace viaduct::bench
