// RDMA: both ways, on every path into the other's memory, with nobody's help there; and what must not happen.
#include <sys/mman.h>
#include <viaduct/adma.h>

#include <thread>

#include "via/port/remote_port.hpp"
#include "via/vipl/memory.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr std::uint32_t kLength = 700'000;

// What a target tells its initiator about its memory, through memory they share.
struct Offer {
  std::uint64_t address = 0;
  VIP_MEM_HANDLE handle = 0;
};

enum class Path { mapped, cma, message };

std::string name_of(Path path) {
  return path == Path::mapped ? "mapped" : path == Path::cma ? "cma" : "message";
}

// Memory of the target, on the path that it makes for.
class TargetMemory {
 public:
  TargetMemory(Program& program, Path path, std::size_t length = kLength) : program_(program), length_(length) {
    owned_ = path == Path::mapped;
    memory_ = static_cast<std::byte*>(owned_ ? adma_alloc(length) : std::malloc(length));
    std::memset(memory_, 0, length);
    VIP_MEM_ATTRIBUTES attributes{program.tag, 1, 1};
    if (VipRegisterMem(program.nic, memory_, length, &attributes, &handle_) != VIP_SUCCESS) std::abort();
  }
  ~TargetMemory() {
    (void)VipDeregisterMem(program_.nic, memory_, handle_);
    owned_ ? adma_free(memory_) : std::free(memory_);
  }
  std::byte* data() const { return memory_; }
  Offer offer() const { return {reinterpret_cast<std::uint64_t>(memory_), handle_}; }

 private:
  Program& program_;
  std::size_t length_;
  bool owned_;
  std::byte* memory_;
  VIP_MEM_HANDLE handle_ = 0;
};

template <class T>
T* shared() {
  void* const memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) T;
}

struct Case {
  Path path;
  VIP_RELIABILITY_LEVEL level;
};

class ViplRdma : public ::testing::TestWithParam<Case> {
 protected:
  ViOptions options() const {
    return {.level = GetParam().level, .max_transfer = 1 << 20, .rdma_write = true, .rdma_read = true};
  }
  // By message there is no other way than the one that is left.
  void forbid_cma() const {
    if (GetParam().path == Path::message) copy::PeerMemory::forbid_cma();
  }
  static std::uint64_t used(Path path) {
    return counter(path == Path::mapped ? "via.rdma_mapped"
                   : path == Path::cma  ? "via.rdma_cma"
                                        : "via.rdma_by_message")
        .get();
  }
  HangGuard guard_;
};

INSTANTIATE_TEST_SUITE_P(OnEveryPath, ViplRdma,
                         ::testing::Values(Case{Path::mapped, VIP_SERVICE_RELIABLE_DELIVERY},
                                           Case{Path::mapped, VIP_SERVICE_RELIABLE_RECEPTION},
                                           Case{Path::cma, VIP_SERVICE_RELIABLE_DELIVERY},
                                           Case{Path::cma, VIP_SERVICE_RELIABLE_RECEPTION},
                                           Case{Path::message, VIP_SERVICE_RELIABLE_DELIVERY},
                                           Case{Path::message, VIP_SERVICE_RELIABLE_RECEPTION}),
                         [](const auto& one) {
                           return name_of(one.param.path) + "_level" + std::to_string(one.param.level);
                         });

// The initiator runs in a child that may shut a path for itself. The target does nothing while
// its memory is written and read, except on the path that needs its library.
TEST_P(ViplRdma, WritesAndReads) {
  const std::string name = own_name("rdma") + name_of(GetParam().path);
  Offer* const offer = shared<Offer>();
  Baton go, written, verified, finished;
  Child initiator([&] {
    forbid_cma();
    Program program(2 * kLength);
    const VIP_VI_HANDLE vi = program.make_vi(options());
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    CHILD_EXPECT(go.take());
    fill(program.data(), kLength, 1);
    CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(0, VIP_CONTROL_OP_RDMAWRITE, offer->address, offer->handle,
                                                            {{0, 100}, {100, kLength - 100}})) == VIP_SUCCESS);
    CHILD_EXPECT(sent(vi) == program.descriptor(0));
    CHILD_EXPECT(program.descriptor(0)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
    // Into the middle, from an odd place.
    CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(1, VIP_CONTROL_OP_RDMAWRITE, offer->address + 333,
                                                            offer->handle, {{kLength - 7, 3}})) == VIP_SUCCESS);
    CHILD_EXPECT(sent(vi) == program.descriptor(1));
    written.give();
    if (GetParam().path != Path::message) CHILD_EXPECT(verified.take());
    CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(2, VIP_CONTROL_OP_RDMAREAD, offer->address, offer->handle,
                                                            {{kLength, 1}, {kLength + 1, kLength - 1}})) ==
                 VIP_SUCCESS);
    CHILD_EXPECT(sent(vi) == program.descriptor(2));
    CHILD_EXPECT(program.descriptor(2)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ));
    for (const Path path : {Path::mapped, Path::cma, Path::message})
      CHILD_EXPECT(path == GetParam().path ? used(path) >= 3 : used(path) == 0);
    CHILD_EXPECT(std::memcmp(program.data(kLength), program.data(), 333) == 0);
    CHILD_EXPECT(std::memcmp(program.data(kLength + 333), program.data(kLength - 7), 3) == 0);
    CHILD_EXPECT(std::memcmp(program.data(kLength + 336), program.data(336), kLength - 336) == 0);
    finished.give();
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi(options());
  TargetMemory memory(program, GetParam().path);
  *offer = memory.offer();
  ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
  std::thread library;
  std::atomic<bool> over{false};
  if (GetParam().path == Path::message)
    library = std::thread([&] {
      while (!over) (void)program.state(vi);
    });
  go.give();
  ASSERT_TRUE(written.take());
  if (GetParam().path != Path::message) {
    EXPECT_TRUE(filled(memory.data(), 333, 1)) << "it is there without a call of ours";
    verified.give();
  }
  ASSERT_TRUE(finished.take());
  over = true;
  if (library.joinable()) library.join();
  EXPECT_EQ(initiator.wait(), 0);
}

TEST_P(ViplRdma, ImmediateDataTakesAReceiveDescriptor) {
  const std::string name = own_name("imm") + name_of(GetParam().path);
  Offer* const offer = shared<Offer>();
  Baton go;
  Child initiator([&] {
    forbid_cma();
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi(options());
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    CHILD_EXPECT(go.take());
    for (const std::uint32_t length : {0u, 8u, 200'000u}) {
      fill(program.data(), length, length);
      CHILD_EXPECT(program.post_send(
                       vi, program.prepare_rdma(0, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, offer->address,
                                                offer->handle, {{0, length}}, length + 1)) == VIP_SUCCESS);
      CHILD_EXPECT(sent(vi) == program.descriptor(0));
    }
    CHILD_EXPECT(program.post_receive(vi, 5, 0, 8) == VIP_SUCCESS);
    CHILD_EXPECT(received(vi) == program.descriptor(5));  // the target has seen everything
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi(options());
  TargetMemory memory(program, GetParam().path);
  *offer = memory.offer();
  for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(program.post_receive(vi, i, 0, 4), VIP_SUCCESS);
  ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
  go.give();
  std::size_t index = 0;
  for (const std::uint32_t length : {0u, 8u, 200'000u}) {
    VIP_DESCRIPTOR* const descriptor = received(vi);
    ASSERT_EQ(descriptor, program.descriptor(index++));
    EXPECT_EQ(descriptor->CS.Status,
              unsigned{VIP_STATUS_DONE | VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_IMMEDIATE});
    EXPECT_EQ(descriptor->CS.ImmediateData, length + 1);
    EXPECT_EQ(descriptor->CS.Length, length);
    if (index == 3) {
      EXPECT_TRUE(filled(memory.data(), length, length));
    }
  }
  ASSERT_EQ(program.post_send(vi, 9, 0, 8), VIP_SUCCESS);
  EXPECT_EQ(sent(vi), program.descriptor(9));
  EXPECT_EQ(initiator.wait(), 0);
}

// Reads and fenced sends in one queue come back in order, and a fenced send leaves after the read has its bytes.
TEST_P(ViplRdma, AFenceWaitsForReads) {
  const std::string name = own_name("fence") + name_of(GetParam().path);
  Offer* const offer = shared<Offer>();
  Baton go;
  Child initiator([&] {
    forbid_cma();
    Program program(2 * kLength);
    const VIP_VI_HANDLE vi = program.make_vi(options());
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    CHILD_EXPECT(go.take());
    // The send gives away what the read brings: without the fence it would leave too early.
    CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(0, VIP_CONTROL_OP_RDMAREAD, offer->address, offer->handle,
                                                            {{0, kLength}})) == VIP_SUCCESS);
    CHILD_EXPECT(program.post_send(vi, program.prepare(1, {{kLength - 64, 64}}, VIP_CONTROL_QFENCE)) == VIP_SUCCESS);
    CHILD_EXPECT(sent(vi) == program.descriptor(0));
    CHILD_EXPECT(sent(vi) == program.descriptor(1));
    CHILD_EXPECT(program.post_receive(vi, 5, 0, 8) == VIP_SUCCESS);
    CHILD_EXPECT(received(vi, VIP_DESCRIPTOR_ERROR) == program.descriptor(5));
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi(options());
  TargetMemory memory(program, GetParam().path);
  fill(memory.data(), kLength, 4);
  *offer = memory.offer();
  ASSERT_EQ(program.post_receive(vi, 0, 0, 64), VIP_SUCCESS);
  ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
  go.give();
  EXPECT_EQ(received(vi), program.descriptor(0));
  EXPECT_EQ(std::memcmp(program.data(), memory.data() + kLength - 64, 64), 0);
  EXPECT_EQ(VipDisconnect(vi), VIP_SUCCESS);
  EXPECT_EQ(initiator.wait(), 0);
}

// ---- what is not permitted

struct Violation {
  const char* name;
  bool write;
  // Changes the offer, or the target's memory or VI, so that the operation is not allowed.
  void (*spoil)(Program& target, ViOptions& vi, TargetMemory& memory, Offer& offer, std::uint32_t& length);
};

void set_attributes(Program& target, TargetMemory& memory, VIP_MEM_ATTRIBUTES attributes) {
  const Offer offer = memory.offer();
  if (VipSetMemAttributes(target.nic, memory.data(), offer.handle, &attributes) != VIP_SUCCESS) std::abort();
}

const Violation kViolations[] = {
    {"handle", true, [](Program&, ViOptions&, TargetMemory&, Offer& offer, std::uint32_t&) { offer.handle += 1; }},
    {"below", true, [](Program&, ViOptions&, TargetMemory&, Offer& offer, std::uint32_t&) { offer.address -= 1; }},
    {"beyond", true,
     [](Program&, ViOptions&, TargetMemory&, Offer& offer, std::uint32_t& length) {
       offer.address += kLength - length + 1;
     }},
    {"wrapping", false,
     [](Program&, ViOptions&, TargetMemory&, Offer& offer, std::uint32_t&) { offer.address = ~std::uint64_t{0} - 3; }},
    {"tag", true,
     [](Program& target, ViOptions&, TargetMemory& memory, Offer&, std::uint32_t&) {
       set_attributes(target, memory, {nullptr, 1, 1});
     }},
    {"memory_not_enabled_for_writes", true,
     [](Program& target, ViOptions&, TargetMemory& memory, Offer&, std::uint32_t&) {
       set_attributes(target, memory, {target.tag, 0, 1});
     }},
    {"memory_not_enabled_for_reads", false,
     [](Program& target, ViOptions&, TargetMemory& memory, Offer&, std::uint32_t&) {
       set_attributes(target, memory, {target.tag, 1, 0});
     }},
    {"vi_not_enabled_for_writes", true,
     [](Program&, ViOptions& vi, TargetMemory&, Offer&, std::uint32_t&) { vi.rdma_write = false; }},
    {"vi_not_enabled_for_reads", false,
     [](Program&, ViOptions& vi, TargetMemory&, Offer&, std::uint32_t&) { vi.rdma_read = false; }},
};

class ViplRdmaViolation : public ::testing::TestWithParam<Violation> {};
INSTANTIATE_TEST_SUITE_P(OfEveryKind, ViplRdmaViolation, ::testing::ValuesIn(kViolations),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(ViplRdmaViolation, BreaksTheConnectionAndTouchesNothing) {
  HangGuard guard;
  const Violation& violation = GetParam();
  const VIP_ERROR_CODE code = violation.write ? VIP_ERROR_RDMAW_PROT : VIP_ERROR_RDMAR_PROT;
  const std::string name = own_name("violation");
  Offer* const offer = shared<Offer>();
  std::uint32_t* const length = shared<std::uint32_t>();
  *length = 64;
  Baton go;
  Child initiator([&] {
    Program program;
    ErrorLog errors;
    errors.listen(program.nic);
    const VIP_VI_HANDLE vi = program.make_vi({.rdma_write = true, .rdma_read = true});
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    CHILD_EXPECT(go.take());
    fill(program.data(), 4096, 1);
    const VIP_UINT16 operation = violation.write ? VIP_CONTROL_OP_RDMAWRITE : VIP_CONTROL_OP_RDMAREAD;
    CHILD_EXPECT(program.post_receive(vi, 1, 8192, 8) == VIP_SUCCESS);
    CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(0, operation, offer->address, offer->handle,
                                                            {{0, *length}})) == VIP_SUCCESS);
    CHILD_EXPECT(sent(vi, VIP_DESCRIPTOR_ERROR) == program.descriptor(0));
    CHILD_EXPECT((program.descriptor(0)->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_RDMA_PROT_ERROR);
    CHILD_EXPECT(filled(program.data(), 4096, 1));
    CHILD_EXPECT(errors.errors.size() == 1 && errors.errors[0].ErrorCode == code);
    CHILD_EXPECT(errors.errors[0].DescriptorPtr == program.descriptor(0));
    CHILD_EXPECT(received(vi, VIP_DESCRIPTOR_ERROR) == program.descriptor(1));  // flushed
    CHILD_EXPECT(program.state(vi) == VIP_STATE_ERROR);
    return 0;
  });
  Program program;
  ErrorLog errors;
  errors.listen(program.nic);
  TargetMemory memory(program, Path::cma);
  ViOptions options{.rdma_write = true, .rdma_read = true};
  *offer = memory.offer();
  violation.spoil(program, options, memory, *offer, *length);
  const VIP_VI_HANDLE vi = program.make_vi(options);
  ASSERT_EQ(program.post_receive(vi, 0, 0, 16), VIP_SUCCESS);
  ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
  go.give();
  EXPECT_EQ(received(vi, VIP_DESCRIPTOR_ERROR), program.descriptor(0)) << "flushed";
  EXPECT_EQ(program.state(vi), VIP_STATE_ERROR);
  ASSERT_EQ(errors.errors.size(), 1u);
  EXPECT_EQ(errors.errors[0].ErrorCode, code);
  EXPECT_EQ(errors.errors[0].ViHandle, vi);
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + kLength, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(initiator.wait(), 0);
}

// A peer cannot change what is registered: it sees the table and cannot write there.
TEST(ViplRdmaTable, IsReadOnlyForPeers) {
  auto table = Registrations::make();
  ASSERT_TRUE(table.ok());
  const Fd copy(::dup((*table)->segment().fd()));
  void* const writable = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, copy.get(), 0);
  EXPECT_EQ(writable, MAP_FAILED);
  EXPECT_LT(::pwrite(copy.get(), "x", 1, 4096), 0);
  void* const readable = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, copy.get(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_NE(::mprotect(readable, 4096, PROT_READ | PROT_WRITE), 0);
  ::munmap(readable, 4096);
}

// Once VipDeregisterMem has returned, nobody writes there.
TEST(ViplRdmaTable, DeregisteringEndsWritesThatAreUnderWay) {
  HangGuard guard;
  const std::string name = own_name("deregister");
  constexpr std::uint32_t kBig = 4u << 20;
  Offer* const offer = shared<Offer>();
  Baton go;
  Child initiator([&] {
    Program program(kBig);
    const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kBig});
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    CHILD_EXPECT(go.take());
    for (VIP_RETURN result = VIP_SUCCESS; result == VIP_SUCCESS;) {
      CHILD_EXPECT(program.post_send(vi, program.prepare_rdma(0, VIP_CONTROL_OP_RDMAWRITE, offer->address,
                                                              offer->handle, {{0, kBig}})) == VIP_SUCCESS);
      VIP_DESCRIPTOR* descriptor = nullptr;
      result = VipSendDone(vi, &descriptor);
      for (std::uint32_t i = 0; i < kBig; i += 4096)
        program.data()[i] = static_cast<std::byte>(~static_cast<int>(program.data()[i]));
    }
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kBig, .rdma_write = true});
  std::vector<std::byte> memory(kBig);
  VIP_MEM_ATTRIBUTES attributes{program.tag, 1, 0};
  ASSERT_EQ(VipRegisterMem(program.nic, memory.data(), kBig, &attributes, &offer->handle), VIP_SUCCESS);
  offer->address = reinterpret_cast<std::uint64_t>(memory.data());
  ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
  go.give();
  const volatile std::byte* const last = &memory[kBig - 4096];
  while (*last == std::byte{0}) std::this_thread::yield();
  ASSERT_EQ(VipDeregisterMem(program.nic, memory.data(), offer->handle), VIP_SUCCESS);
  const std::vector<std::byte> then = memory;
  EXPECT_EQ(initiator.wait(), 0) << "it finds out that it may no longer";
  EXPECT_TRUE(then == memory);
}

}  // namespace
}  // namespace viaduct::vipl::testing
