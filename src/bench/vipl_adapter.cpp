#include "bench/vipl_adapter.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstring>

#include "base/clock.hpp"

namespace viaduct::bench {

namespace {

constexpr VIP_ULONG kSoon = 20'000;

struct NetAddress {
  alignas(8) VIP_UINT8 memory[256] = {};
  VIP_NET_ADDRESS* get() { return reinterpret_cast<VIP_NET_ADDRESS*>(memory); }
};

NetAddress address_of(VIP_NIC_HANDLE nic, const std::string& discriminator) {
  VIP_NIC_ATTRIBUTES attributes;
  must(VipQueryNic(nic, &attributes), "VipQueryNic");
  NetAddress address;
  address.get()->HostAddressLen = attributes.NicAddressLen;
  address.get()->DiscriminatorLen = static_cast<VIP_UINT16>(discriminator.size());
  VIP_UINT8* const bytes = address.memory + offsetof(VIP_NET_ADDRESS, HostAddress);
  std::memcpy(bytes, attributes.LocalNicAddress, attributes.NicAddressLen);
  std::memcpy(bytes + attributes.NicAddressLen, discriminator.data(), discriminator.size());
  return address;
}

}  // namespace

void must(VIP_RETURN result, const char* function) {
  if (result != VIP_SUCCESS) give_up(fmt::format("{} returned {}", function, static_cast<int>(result)));
}

void ViplAdapter::open() {
  must(VipOpenNic("viaduct", &nic_), "VipOpenNic");
  const auto ignore = [](VIP_PVOID, VIP_ERROR_DESCRIPTOR*) {};  // at the end either side may be the first to go
  must(VipErrorCallback(nic_, nullptr, ignore), "VipErrorCallback");
  must(VipCreatePtag(nic_, &tag_), "VipCreatePtag");
}

void ViplAdapter::close() {
  must(VipDestroyPtag(nic_, tag_), "VipDestroyPtag");
  must(VipCloseNic(nic_), "VipCloseNic");
}

VIP_MEM_HANDLE ViplAdapter::register_memory(void* at, std::size_t size) {
  VIP_MEM_ATTRIBUTES attributes{tag_, VIP_TRUE, VIP_TRUE};
  VIP_MEM_HANDLE handle = 0;
  must(VipRegisterMem(nic_, at, size, &attributes, &handle), "VipRegisterMem");
  return handle;
}

void ViplAdapter::deregister_memory(void* at, VIP_MEM_HANDLE handle) {
  must(VipDeregisterMem(nic_, at, handle), "VipDeregisterMem");
}

VIP_VI_HANDLE ViplAdapter::create_vi(VIP_RELIABILITY_LEVEL level, std::size_t max_transfer, VIP_CQ_HANDLE receives) {
  VIP_VI_ATTRIBUTES attributes{level, max_transfer, nullptr, tag_, VIP_TRUE, VIP_TRUE};
  VIP_VI_HANDLE vi = nullptr;
  must(VipCreateVi(nic_, &attributes, nullptr, receives, &vi), "VipCreateVi");
  return vi;
}

void ViplAdapter::connect(VIP_VI_HANDLE vi, Conduit::Side side, const std::string& name, const std::string& host) {
  NetAddress server = address_of(nic_, name);
  VIP_VI_ATTRIBUTES theirs;
  if (side == Conduit::Side::there) {
    if (!host.empty()) (void)::inet_pton(AF_INET, host.c_str(), server.memory + offsetof(VIP_NET_ADDRESS, HostAddress));
    NetAddress client = address_of(nic_, name + "c");
    VIP_RETURN said;
    const std::uint64_t end = Clock::steady().now_ns() + std::uint64_t{kSoon} * 1'000'000;
    do {  // on another host nobody may have the name yet
      said = VipConnectRequest(vi, client.get(), server.get(), kSoon, &theirs);
    } while (!host.empty() && (said == VIP_NO_MATCH || said == VIP_TIMEOUT) && Clock::steady().now_ns() < end);
    return must(said, "VipConnectRequest");
  }
  NetAddress client;
  VIP_CONN_HANDLE request = nullptr;
  must(VipConnectWait(nic_, server.get(), kSoon, client.get(), &theirs, &request), "VipConnectWait");
  must(VipConnectAccept(request, vi), "VipConnectAccept");
}

}  // namespace viaduct::bench
