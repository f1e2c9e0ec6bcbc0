// A VIPL program for tests: an adapter, a protection tag, registered memory with descriptors and data in it, and the
// calls that every such program makes.
#pragma once

#include <gtest/gtest.h>
#include <viaduct/adma.h>
#include <viaduct/vipl.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/child.hpp"
#include "base/counters.hpp"
#include "base/fd.hpp"

namespace viaduct::vipl::testing {

using viaduct::testing::Child;
using viaduct::testing::HangGuard;
using viaduct::testing::kSanitized;

constexpr VIP_ULONG kSoon = 20'000;  // milliseconds: longer than anything takes that works

// A token that one process hands to another; take() waits for it.
class Baton {
 public:
  Baton() : pipe_(std::move(*make_pipe())) {}
  void give() { EXPECT_EQ(::write(pipe_.second.get(), "x", 1), 1); }
  bool take() {
    char token;
    return ::read(pipe_.first.get(), &token, 1) == 1;
  }

 private:
  FdPair pipe_;
};

// An address of this host: host bytes as the adapter says, then the discriminator.
class NetAddress {
 public:
  NetAddress(VIP_NIC_HANDLE nic, std::string_view discriminator) {
    VIP_NIC_ATTRIBUTES attributes;
    if (VipQueryNic(nic, &attributes) != VIP_SUCCESS) std::abort();
    get()->HostAddressLen = attributes.NicAddressLen;
    get()->DiscriminatorLen = static_cast<VIP_UINT16>(discriminator.size());
    std::memcpy(bytes(), attributes.LocalNicAddress, attributes.NicAddressLen);
    std::memcpy(bytes() + attributes.NicAddressLen, discriminator.data(), discriminator.size());
  }
  NetAddress() = default;
  VIP_NET_ADDRESS* get() { return reinterpret_cast<VIP_NET_ADDRESS*>(memory_); }
  VIP_UINT8* bytes() { return memory_ + offsetof(VIP_NET_ADDRESS, HostAddress); }
  std::string discriminator() {
    return {reinterpret_cast<char*>(bytes()) + get()->HostAddressLen, get()->DiscriminatorLen};
  }

 private:
  alignas(8) VIP_UINT8 memory_[256] = {};
};

// Different in every test of every run: nobody meets somebody else's server.
inline std::string own_name(std::string_view what) {
  return std::string(what) + "." + std::to_string(::getpid());
}

struct ViOptions {
  VIP_RELIABILITY_LEVEL level = VIP_SERVICE_RELIABLE_DELIVERY;
  VIP_ULONG max_transfer = 65536;
  VIP_CQ_HANDLE send_cq = nullptr;
  VIP_CQ_HANDLE receive_cq = nullptr;
  bool rdma_write = false;
  bool rdma_read = false;
};

struct Segment {
  std::size_t offset;
  std::uint32_t length;
};

class Program {
 public:
  static constexpr std::size_t kDescriptorRoom = 4096 + 64;  // each may have all the segments there can be
  static constexpr std::size_t kDescriptors = 64;

  // `provider`: its memory is the provider's, which other processes can map.
  explicit Program(std::size_t data_bytes = std::size_t{1} << 20, bool rdma = true, bool provider = false)
      : bytes_(data_bytes), provider_(provider) {
    check(VipOpenNic("viaduct", &nic));
    check(VipCreatePtag(nic, &tag));
    memory_ = static_cast<std::byte*>(provider ? adma_alloc(size()) : std::aligned_alloc(4096, size()));
    std::memset(memory_, 0, size());
    VIP_MEM_ATTRIBUTES attributes{tag, rdma, rdma};
    check(VipRegisterMem(nic, memory_, size(), &attributes, &handle));
  }
  ~Program() {
    for (const VIP_VI_HANDLE vi : vis_) {
      (void)VipDisconnect(vi);
      (void)VipDestroyVi(vi);
    }
    for (const VIP_CQ_HANDLE cq : cqs_) (void)VipDestroyCQ(cq);
    (void)VipDeregisterMem(nic, memory_, handle);
    (void)VipDestroyPtag(nic, tag);
    (void)VipCloseNic(nic);
    provider_ ? adma_free(memory_) : std::free(memory_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  VIP_NIC_HANDLE nic = nullptr;
  VIP_PROTECTION_HANDLE tag = nullptr;
  VIP_MEM_HANDLE handle = 0;

  VIP_VI_ATTRIBUTES attributes(const ViOptions& options) const {
    return {options.level, options.max_transfer, nullptr, tag, options.rdma_write, options.rdma_read};
  }
  VIP_VI_HANDLE make_vi(const ViOptions& options = {}) {
    VIP_VI_ATTRIBUTES wanted = attributes(options);
    VIP_VI_HANDLE vi = nullptr;
    check(VipCreateVi(nic, &wanted, options.send_cq, options.receive_cq, &vi));
    vis_.push_back(vi);
    return vi;
  }
  VIP_CQ_HANDLE make_cq(VIP_ULONG entries = 64) {
    VIP_CQ_HANDLE cq = nullptr;
    check(VipCreateCQ(nic, entries, &cq));
    cqs_.push_back(cq);
    return cq;
  }
  void forget(VIP_VI_HANDLE vi) { std::erase(vis_, vi); }
  void destroy(VIP_CQ_HANDLE cq) {
    std::erase(cqs_, cq);
    check(VipDestroyCQ(cq));
  }
  const std::vector<VIP_VI_HANDLE>& vis() const { return vis_; }

  std::byte* data(std::size_t offset = 0) const { return memory_ + kDescriptors * kDescriptorRoom + offset; }
  VIP_DESCRIPTOR* descriptor(std::size_t index) const {
    return reinterpret_cast<VIP_DESCRIPTOR*>(memory_ + index * kDescriptorRoom);
  }

  VIP_DESCRIPTOR* prepare(std::size_t index, std::initializer_list<Segment> segments, VIP_UINT16 control = 0,
                          VIP_UINT32 immediate = 0) {
    return prepare(index, std::vector<Segment>(segments), control, immediate);
  }
  VIP_DESCRIPTOR* prepare(std::size_t index, const std::vector<Segment>& segments, VIP_UINT16 control = 0,
                          VIP_UINT32 immediate = 0) {
    VIP_DESCRIPTOR* const made = descriptor(index);
    std::memset(made, 0, sizeof *made);
    made->CS.Control = control;
    made->CS.ImmediateData = immediate;
    const bool rdma = (control & VIP_CONTROL_OP_MASK) != 0;
    auto* segment = reinterpret_cast<VIP_DATA_SEGMENT*>(reinterpret_cast<std::byte*>(made) + 32) + (rdma ? 1 : 0);
    for (const Segment& one : segments) {
      segment->Data.Address = data(one.offset);
      segment->Handle = handle;
      segment->Length = one.length;
      ++segment;
      made->CS.Length += one.length;
    }
    made->CS.SegCount = static_cast<VIP_UINT16>(segments.size() + (rdma ? 1 : 0));
    return made;
  }
  VIP_DESCRIPTOR* prepare_rdma(std::size_t index, VIP_UINT16 control, std::uint64_t remote,
                               VIP_MEM_HANDLE remote_handle, std::initializer_list<Segment> segments,
                               VIP_UINT32 immediate = 0) {
    VIP_DESCRIPTOR* const made = prepare(index, segments, control, immediate);
    made->DS[0].Remote.Data.AddressBits = remote;
    made->DS[0].Remote.Handle = remote_handle;
    made->DS[0].Remote.Reserved = 0;
    return made;
  }

  VIP_RETURN post_send(VIP_VI_HANDLE vi, VIP_DESCRIPTOR* descriptor) { return VipPostSend(vi, descriptor, handle); }
  VIP_RETURN post_receive(VIP_VI_HANDLE vi, VIP_DESCRIPTOR* descriptor) { return VipPostRecv(vi, descriptor, handle); }
  VIP_RETURN post_receive(VIP_VI_HANDLE vi, std::size_t index, std::size_t offset, std::uint32_t length) {
    return post_receive(vi, prepare(index, {{offset, length}}));
  }
  VIP_RETURN post_send(VIP_VI_HANDLE vi, std::size_t index, std::size_t offset, std::uint32_t length) {
    return post_send(vi, prepare(index, {{offset, length}}));
  }

  // Connecting under a name that both sides know.
  VIP_RETURN serve(std::string_view name, VIP_VI_HANDLE vi, VIP_ULONG timeout = kSoon) {
    NetAddress local(nic, name), remote;
    VIP_VI_ATTRIBUTES theirs;
    VIP_CONN_HANDLE connection = nullptr;
    const VIP_RETURN waited = VipConnectWait(nic, local.get(), timeout, remote.get(), &theirs, &connection);
    return waited != VIP_SUCCESS ? waited : VipConnectAccept(connection, vi);
  }
  VIP_RETURN request(std::string_view name, VIP_VI_HANDLE vi, VIP_ULONG timeout = kSoon) {
    NetAddress local(nic, "client"), remote(nic, name);
    VIP_VI_ATTRIBUTES theirs;
    return VipConnectRequest(vi, local.get(), remote.get(), timeout, &theirs);
  }
  VIP_RETURN meet(std::string_view local_name, std::string_view remote_name, VIP_VI_HANDLE vi,
                  VIP_ULONG timeout = kSoon) {
    NetAddress local(nic, local_name), remote(nic, remote_name);
    VIP_VI_ATTRIBUTES theirs;
    const VIP_RETURN asked = VipConnectPeerRequest(vi, local.get(), remote.get(), timeout);
    return asked != VIP_SUCCESS ? asked : VipConnectPeerWait(vi, &theirs);
  }

  VIP_VI_STATE state(VIP_VI_HANDLE vi) {
    VIP_VI_STATE state = VIP_STATE_IDLE;
    check(VipQueryVi(vi, &state, nullptr, nullptr, nullptr));
    return state;
  }

 private:
  std::size_t size() const { return (kDescriptors * kDescriptorRoom + bytes_ + 4095) / 4096 * 4096; }
  static void check(VIP_RETURN result) {
    if (result == VIP_SUCCESS) return;
    std::fprintf(stderr, "VIPL said %d\n", result);
    std::abort();
  }

  std::size_t bytes_;
  bool provider_;
  std::byte* memory_ = nullptr;
  std::vector<VIP_VI_HANDLE> vis_;
  std::vector<VIP_CQ_HANDLE> cqs_;
};

// Two VIs of one program, connected to each other by one thread.
inline void connect_here(Program& program, VIP_VI_HANDLE a, VIP_VI_HANDLE b) {
  static std::atomic<int> number{0};
  const std::string name = own_name("here") + "." + std::to_string(++number);
  NetAddress first(program.nic, name + ".a"), second(program.nic, name + ".b");
  ASSERT_EQ(VipConnectPeerRequest(a, first.get(), second.get(), kSoon), VIP_SUCCESS);
  ASSERT_EQ(VipConnectPeerRequest(b, second.get(), first.get(), kSoon), VIP_SUCCESS);
  VIP_RETURN done_a = VIP_NOT_DONE, done_b = VIP_NOT_DONE;
  while (done_a == VIP_NOT_DONE || done_b == VIP_NOT_DONE) {
    if (done_a == VIP_NOT_DONE) done_a = VipConnectPeerDone(a, nullptr);
    if (done_b == VIP_NOT_DONE) done_b = VipConnectPeerDone(b, nullptr);
  }
  ASSERT_EQ(done_a, VIP_SUCCESS);
  ASSERT_EQ(done_b, VIP_SUCCESS);
}

// Errors that the error callback was told, in order.
struct ErrorLog {
  std::vector<VIP_ERROR_DESCRIPTOR> errors;
  static void handler(VIP_PVOID context, VIP_ERROR_DESCRIPTOR* error) {
    static_cast<ErrorLog*>(context)->errors.push_back(*error);
  }
  void listen(VIP_NIC_HANDLE nic) { EXPECT_EQ(VipErrorCallback(nic, this, handler), VIP_SUCCESS); }
  bool has(VIP_ERROR_CODE code) const {
    for (const VIP_ERROR_DESCRIPTOR& error : errors)
      if (error.ErrorCode == code) return true;
    return false;
  }
};

template <class Done>
VIP_DESCRIPTOR* poll_until(Done done, VIP_VI_HANDLE vi, VIP_RETURN expected = VIP_SUCCESS) {
  VIP_DESCRIPTOR* descriptor = nullptr;
  VIP_RETURN result;
  while ((result = done(vi, &descriptor)) == VIP_NOT_DONE) {
  }
  EXPECT_EQ(result, expected);
  return descriptor;
}
inline VIP_DESCRIPTOR* sent(VIP_VI_HANDLE vi, VIP_RETURN expected = VIP_SUCCESS) {
  return poll_until(VipSendDone, vi, expected);
}
inline VIP_DESCRIPTOR* received(VIP_VI_HANDLE vi, VIP_RETURN expected = VIP_SUCCESS) {
  return poll_until(VipRecvDone, vi, expected);
}

inline void fill(std::byte* bytes, std::size_t length, unsigned seed) {
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>((i * 131 + seed * 7919 + (i >> 8)) & 0xff);
}
inline bool filled(const std::byte* bytes, std::size_t length, unsigned seed) {
  for (std::size_t i = 0; i < length; ++i)
    if (bytes[i] != static_cast<std::byte>((i * 131 + seed * 7919 + (i >> 8)) & 0xff)) return false;
  return true;
}

}  // namespace viaduct::vipl::testing
