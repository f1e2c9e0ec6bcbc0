// The GPU channel on the fake driver.
#include "copy/cuda_channel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "copy/fake_cuda/fake_gpu.hpp"

namespace viaduct::copy {
namespace {

using testing::copy_by;
using testing::fake;
using ::testing::HasSubstr;
using testing::Mapping;
using testing::OnFakeGpu;
using testing::operations;
using testing::Submitted;
using viaduct::testing::Child;
using viaduct::testing::HangGuard;

using Bytes = std::vector<unsigned char>;

Bytes counting(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 31 + (i >> 8) * 7 + (i >> 16));
  return bytes;
}

// Memory of the fake device.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t size) : driver_(*CudaDriver::load(FAKE_CUDA_LIBRARY)) {
    EXPECT_EQ(driver_.init(0), 0);
    EXPECT_EQ(driver_.device_get(&device_, 0), 0);
    EXPECT_EQ(driver_.primary_retain(&context_, device_), 0);
    const CudaScope scope(driver_, context_);
    EXPECT_EQ(driver_.mem_alloc(&address_, size), 0);
  }
  ~DeviceMemory() {
    free();
    (void)driver_.primary_release(device_);
  }
  void free() {
    const CudaScope scope(driver_, context_);
    if (address_ != 0) {
      EXPECT_EQ(driver_.mem_free(address_), 0);
    }
    address_ = 0;
  }
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  CudaDriver driver_;
  CudaDevice device_ = 0;
  CudaContext context_ = nullptr;
  CudaAddress address_ = 0;
};

class CudaChannelTest : public OnFakeGpu {
 protected:
  HangGuard guard_;
};

// ---- copies

TEST_F(CudaChannelTest, CopiesEverySizeAtEveryOffset) {
  const auto gpu = channel();
  const std::size_t most = std::size_t{40} << 20;
  const Bytes source = counting(most + 64);
  Bytes target(most + 64);
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{2}, std::size_t{63}, std::size_t{4096}, std::size_t{4097}, std::size_t{65535},
        std::size_t{65537}, std::size_t{1000003}, std::size_t{8388609}, most - 1, most})
    for (const auto& [from, to] : {std::pair{0, 0}, std::pair{1, 0}, std::pair{17, 63}}) {
      if (size > 9'000'000 && from == 1) continue;
      std::fill(target.begin(), target.end(), static_cast<unsigned char>(0xee));
      ASSERT_EQ(copy_by(*gpu, source.data() + from, target.data() + to, size), 0);
      ASSERT_EQ(std::memcmp(target.data() + to, source.data() + from, size), 0) << size;
      ASSERT_TRUE(to == 0 || target[static_cast<std::size_t>(to) - 1] == 0xee);
      ASSERT_EQ(target[static_cast<std::size_t>(to) + size], 0xee);
    }
  EXPECT_EQ(gpu->queued_bytes(), 0u);
}

TEST_F(CudaChannelTest, NothingIsAnOperationToo) {
  const auto gpu = channel();
  int byte = 0;
  EXPECT_EQ(copy_by(*gpu, &byte, &byte, 0), 0);
}

TEST_F(CudaChannelTest, SourceAndDestinationMayShareAPage) {
  const auto gpu = channel();
  Bytes bytes = counting(100'000);
  const Bytes before = bytes;
  ASSERT_EQ(copy_by(*gpu, bytes.data() + 10, bytes.data() + 50'001, 49'990), 0);
  EXPECT_EQ(std::memcmp(bytes.data() + 50'001, before.data() + 10, 49'990), 0);
  EXPECT_EQ(std::memcmp(bytes.data(), before.data(), 50'001), 0);
}

TEST_F(CudaChannelTest, ABatchIsOneOperation) {
  const auto gpu = channel();
  const Bytes source = counting(1'000'000);
  Bytes target(source.size());
  std::vector<Piece> pieces;
  std::size_t at = 0;
  for (std::size_t length = 1; at + length <= source.size(); at += length, length = length * 3 / 2 + 1)
    pieces.push_back({source.data() + at, target.data() + at, length});
  pieces.push_back({nullptr, nullptr, 0});
  Submitted submitted(*gpu, pieces);
  EXPECT_EQ(submitted.wait(), 0);
  EXPECT_EQ(std::memcmp(target.data(), source.data(), at), 0);
}

TEST_F(CudaChannelTest, WhatItDoesNotDo) {
  const auto gpu = channel();
  OperationRecord record;
  EXPECT_TRUE(gpu->accepts(record));
  record.manner.overlapping = true;
  EXPECT_FALSE(gpu->accepts(record));
  record.manner = {.work = Work::fill};
  EXPECT_FALSE(gpu->accepts(record));
  EXPECT_FALSE(gpu->help(record));
}

TEST_F(CudaChannelTest, ManyThreadsSubmit) {
  const auto gpu = channel();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      const Bytes source = counting(200'000);
      for (int round = 0; round < viaduct::testing::rounds(60); ++round) {
        Bytes target(source.size());
        if (copy_by(*gpu, source.data(), target.data(), source.size()) != 0 || target != source) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CudaChannelTest, OperationsThatSharePagesWaitForEachOther) {
  const auto gpu = channel();
  fake().set_copy_delay_us(200);
  const Bytes source = counting(1'000'000);
  Bytes target(source.size());
  std::vector<std::unique_ptr<Submitted>> submitted;
  const std::size_t step = 99'999;  // each shares a page with the one before
  for (std::size_t at = 0; at + step <= source.size(); at += step)
    submitted.push_back(std::make_unique<Submitted>(*gpu, source.data() + at, target.data() + at, step));
  for (const auto& each : submitted) EXPECT_EQ(each->wait(), 0);
  EXPECT_EQ(std::memcmp(target.data(), source.data(), step * submitted.size()), 0);
}

// ---- the pipeline

TEST_F(CudaChannelTest, BothDirectionsRunAtOnce) {
  const auto gpu = channel();
  fake().set_copy_delay_us(1000);
  const Bytes source = counting(4'000'000);
  Bytes target(source.size());
  ASSERT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), 0);
  EXPECT_EQ(target, source);
  EXPECT_GE(fake().both_ways(), 4);
  EXPECT_GE(fake().most_pending(), 4);
}

TEST_F(CudaChannelTest, ALongCopyIsCutIntoFewChunks) {
  const CudaTuning tuning;
  EXPECT_EQ(tuning.chunk_for(1), tuning.least_chunk);
  EXPECT_EQ(tuning.chunk_for(std::size_t{32} << 20), std::size_t{4} << 20);
  EXPECT_EQ(tuning.chunk_for(std::size_t{1} << 30), tuning.most_chunk);
  const auto gpu = channel();
  const Mapping source(std::size_t{2} << 20), target(std::size_t{2} << 20);
  ASSERT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), 0);
  EXPECT_EQ(fake().calls("cuMemcpyHtoDAsync"), 8);
}

TEST_F(CudaChannelTest, BytesBecomeReadyFromTheStart) {
  const auto gpu = channel();
  fake().set_copy_delay_us(2000);
  const Bytes source = counting(2'000'000);
  Bytes target(source.size());
  Submitted submitted(*gpu, source.data(), target.data(), source.size());
  std::size_t before = 0;
  int steps = 0;
  while (!submitted.record().finished()) {
    const std::size_t ready = submitted.record().ready_bytes();
    ASSERT_GE(ready, before);
    ASSERT_EQ(std::memcmp(target.data() + before, source.data() + before, ready - before), 0);
    steps += ready > before;
    before = ready;
    ::sched_yield();
  }
  EXPECT_EQ(submitted.wait(), 0);
  EXPECT_GE(steps, 3);
}

TEST_F(CudaChannelTest, ItEndsWithEverythingDone) {
  auto gpu = channel();
  fake().set_copy_delay_us(300);
  const Bytes source = counting(500'000);
  std::vector<Bytes> targets(20, Bytes(source.size()));
  std::vector<std::unique_ptr<Submitted>> submitted;
  for (Bytes& target : targets)
    submitted.push_back(std::make_unique<Submitted>(*gpu, source.data(), target.data(), source.size()));
  gpu.reset();
  for (const auto& each : submitted) {
    EXPECT_TRUE(each->record().finished());
    EXPECT_EQ(each->wait(), 0);
  }
  for (const Bytes& target : targets) EXPECT_EQ(target, source);
  EXPECT_EQ(fake().registered(), 0);
}

// ---- device memory

TEST_F(CudaChannelTest, CopiesToFromAndWithinTheDevice) {
  const auto gpu = channel();
  const Bytes source = counting(3'000'001);
  Bytes target(source.size());
  const DeviceMemory first(source.size()), second(source.size() + 7);
  EXPECT_EQ(copy_by(*gpu, source.data(), first.data(), source.size()), 0);
  EXPECT_EQ(copy_by(*gpu, first.data(), second.data() + 7, source.size()), 0);
  EXPECT_EQ(copy_by(*gpu, second.data() + 7, target.data(), source.size()), 0);
  EXPECT_EQ(target, source);
}

TEST_F(CudaChannelTest, TellsDeviceMemory) {
  const auto gpu = channel();
  const DeviceMemory device(4096);
  Bytes host(4096);
  OperationRecord record;
  record.source = reinterpret_cast<const std::byte*>(host.data());
  record.destination = reinterpret_cast<std::byte*>(host.data());
  EXPECT_FALSE(gpu->touches_device(record));
  record.destination = device.data() + 100;
  EXPECT_TRUE(gpu->touches_device(record));
  record.pieces = {{host.data(), host.data(), 1}, {device.data(), host.data(), 1}};
  EXPECT_TRUE(gpu->touches_device(record));
}

TEST_F(CudaChannelTest, DeviceMemoryThatIsNoMoreIsAFault) {
  const auto gpu = channel();
  Bytes host(100'000);
  DeviceMemory device(host.size());
  std::byte* const gone = device.data();
  device.free();
  EXPECT_EQ(copy_by(*gpu, host.data(), gone, host.size()), EFAULT);
  EXPECT_EQ(copy_by(*gpu, gone, host.data(), host.size()), EFAULT);
  EXPECT_EQ(copy_by(*gpu, gone, gone + 50'000, 1000), EFAULT);
  EXPECT_EQ(copy_by(*gpu, host.data(), host.data() + 50'000, 50'000), 0);
}

TEST_F(CudaChannelTest, CopyingBeyondADeviceAllocationFailsOnlyThatOperation) {
  const auto gpu = channel();
  Bytes host(100'000);
  const DeviceMemory device(50'000);
  EXPECT_EQ(copy_by(*gpu, host.data(), device.data(), host.size()), EIO);
  EXPECT_EQ(copy_by(*gpu, host.data(), device.data(), 50'000), 0);
}

// ---- memory that cannot be pinned

TEST_F(CudaChannelTest, RefusedPinsGoThroughTheBounceBuffer) {
  for (const int refused : {1, 2}) {  // the source or the destination, whichever is first; both
    fake().reset();
    const auto gpu = channel();
    const Mapping source(std::size_t{3} << 20), target(std::size_t{3} << 20);
    const Bytes bytes = counting(source.size());
    std::memcpy(source.data(), bytes.data(), bytes.size());
    fake().fail("cuMemHostRegister", 1, refused, 2);
    ASSERT_EQ(copy_by(*gpu, source.data() + 3, target.data(), source.size() - 3), 0);
    EXPECT_EQ(std::memcmp(target.data(), bytes.data() + 3, bytes.size() - 3), 0);
  }
}

TEST_F(CudaChannelTest, NoPinnedMemoryAtAllFailsTheOperation) {
  const auto gpu = channel();
  const Mapping memory(100'000);
  fake().fail("cuMemHostRegister", 1, 1000, 2);
  EXPECT_EQ(copy_by(*gpu, memory.data(), memory.data() + 50'000, 50'000), ENOMEM);
  fake().reset();
  EXPECT_EQ(copy_by(*gpu, memory.data(), memory.data() + 50'000, 50'000), 0);
}

TEST_F(CudaChannelTest, WildAddressesAreFaultsNotSignals) {
  const auto gpu = channel();
  const Mapping memory(100'000);
  Bytes host(100'000);
  unsigned char* const wild = memory.data();
  ASSERT_EQ(::mprotect(wild, memory.size(), PROT_NONE), 0);
  EXPECT_EQ(copy_by(*gpu, wild, host.data(), host.size()), EFAULT);
  EXPECT_EQ(copy_by(*gpu, host.data(), wild, host.size()), EFAULT);
}

TEST_F(CudaChannelTest, MemoryTheProgramPinnedIsUsedAsItIs) {
  const auto gpu = channel();
  const auto driver = CudaDriver::load(FAKE_CUDA_LIBRARY);
  const Mapping source(1 << 20), target(1 << 20);
  source.fill(5);
  CudaDevice device = 0;
  CudaContext context = nullptr;
  ASSERT_EQ(driver->primary_retain(&context, device), 0);
  {
    const CudaScope scope(*driver, context);
    ASSERT_EQ(driver->host_register(source.data(), source.size(), 0), 0);
    ASSERT_EQ(driver->host_register(target.data(), target.size() / 2, 0), 0);  // half: that must be bounced
  }
  EXPECT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), 0);
  EXPECT_TRUE(target.holds(5));
  const CudaScope scope(*driver, context);
  EXPECT_EQ(driver->host_unregister(source.data()), 0);
  EXPECT_EQ(driver->host_unregister(target.data()), 0);
  EXPECT_EQ(driver->primary_release(device), 0);
}

TEST_F(CudaChannelTest, StableMemoryStaysPinnedUntilRetracted) {
  CudaSettings with = settings();
  with.keep = PinCache::Keep::stable;
  const auto gpu = channel(with);
  const Mapping memory(1 << 20);
  gpu->declare_stable(memory.data(), memory.size());
  for (int round = 0; round < 5; ++round) EXPECT_EQ(copy_by(*gpu, memory.data(), memory.data() + 500'000, 500'000), 0);
  EXPECT_EQ(fake().calls("cuMemHostRegister"), 1);
  gpu->retract(memory.data(), memory.size());
  while (fake().registered() != 0) ::sched_yield();
}

// ---- faults of the driver

TEST_F(CudaChannelTest, AFailingCallFailsOneOperation) {
  for (const char* function :
       {"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery"}) {
    SCOPED_TRACE(function);
    for (const int which : {1, 2, 3, 7}) {
      fake().reset();
      const auto gpu = channel();
      const Bytes source = counting(2'000'000);
      Bytes target(source.size());
      ::testing::internal::CaptureStderr();
      fake().fail(function, which, 1, 999);
      EXPECT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), EIO) << which;
      EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("CUDA_ERROR_UNKNOWN"));
      EXPECT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), 0) << which;
      EXPECT_EQ(target, source);
    }
  }
}

TEST_F(CudaChannelTest, ALostContextDisablesTheChannelOnce) {
  const auto gpu = channel();
  const Bytes source = counting(2'000'000);
  Bytes target(source.size());
  ::testing::internal::CaptureStderr();
  fake().fail("cuMemcpyDtoHAsync", 3, 1'000'000, 700);
  EXPECT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), EIO);
  EXPECT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), EIO);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("its context is lost: CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_FALSE(gpu->accepts(OperationRecord()));
}

TEST_F(CudaChannelTest, SetUpSaysWhatFailed) {
  for (const char* function : {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute",
                               "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemAlloc", "cuEventCreate"}) {
    SCOPED_TRACE(function);
    fake().reset();
    fake().fail(function, 1, 100, 999);
    const auto made = make_cuda_channel(settings(), operations());
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code(), ENODEV);
    EXPECT_THAT(made.error().message(), HasSubstr(std::string(function) + ": CUDA_ERROR_UNKNOWN"));
  }
}

TEST_F(CudaChannelTest, LittleDeviceMemoryMeansShortChunks) {
  CudaSettings with = settings();
  fake().fail("cuMemAlloc", 1, 2, 2);
  const auto gpu = channel(with);
  const Bytes source = counting(5'000'000);
  Bytes target(source.size());
  EXPECT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), 0);
  EXPECT_EQ(target, source);
  EXPECT_GE(fake().calls("cuMemcpyHtoDAsync"), 5'000'000 / (256 << 10));
}

TEST_F(CudaChannelTest, NoDevice) {
  fake().set_devices(0);
  const auto made = make_cuda_channel(settings(), operations());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ENODEV);
  EXPECT_EQ(made.error().message(), "the NVIDIA driver sees no GPU");
}

TEST_F(CudaChannelTest, NoCopyEngine) {
  fake().set_copy_engines(0);
  EXPECT_EQ(make_cuda_channel(settings(), operations()).error().message(), "Fake GPU has no copy engine");
}

TEST_F(CudaChannelTest, SaysWhatItRunsOn) {
  const auto gpu = channel();
  EXPECT_EQ(gpu->name(), "cuda 0");
  EXPECT_EQ(gpu->choice(), Choice::cuda);
  EXPECT_EQ(gpu->detail(), "Fake GPU, 2 copy engines; up to 1024 MB stay pinned, watched by userfaultfd");
}

TEST_F(CudaChannelTest, MeasuresItsCost) {
  CudaSettings with = settings();
  with.measure = true;
  fake().set_copy_delay_us(500);
  const auto gpu = channel(with);
  EXPECT_GE(gpu->cost(false).start_ns, 500'000);  // in and out
  EXPECT_GT(gpu->cost(false).ns_per_byte, 0);
  EXPECT_LT(gpu->cost(false).of(1 << 20), 1e9);
  while (fake().registered() != 0) ::sched_yield();  // what it measured with is not kept
}

// ---- loading

TEST(CudaDriverTest, NoLibrary) {
  const auto driver = CudaDriver::load("libcuda-that-is-not-there.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code(), ENODEV);
  EXPECT_EQ(driver.error().message(), "no NVIDIA driver (libcuda-that-is-not-there.so.1 not found)");
}

TEST(CudaDriverTest, ALibraryThatIsNotOne) {
  const auto driver = CudaDriver::load("/etc/passwd");
  ASSERT_FALSE(driver);
  EXPECT_THAT(driver.error().message(), HasSubstr("NVIDIA driver: /etc/passwd"));
}

TEST(CudaDriverTest, AnOldLibrary) {
  const auto driver = CudaDriver::load(FAKE_CUDA_OLD_LIBRARY);
  ASSERT_FALSE(driver);
  EXPECT_THAT(driver.error().message(), HasSubstr("lacks the function cuDeviceGetCount"));
}

// ---- the program around it

TEST_F(CudaChannelTest, SeesWhetherTheProgramUsesCuda) {
  EXPECT_FALSE(CudaUse("libcuda-that-is-not-there.so.1").by_program());
  CudaUse use(FAKE_CUDA_LIBRARY);
  EXPECT_FALSE(use.by_program());  // loaded by the tests, but nobody has a context
  {
    const DeviceMemory device(4096);
    EXPECT_TRUE(use.by_program());
  }
  EXPECT_FALSE(use.by_program());
}

TEST_F(CudaChannelTest, SeesADriverThatIsLoadedLater) {
  CudaUse use(FAKE_CUDA_OLD_LIBRARY);
  EXPECT_FALSE(use.by_program());
  void* const handle = ::dlopen(FAKE_CUDA_OLD_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  EXPECT_FALSE(use.by_program()) << "it lacks what would tell";
  ::dlclose(handle);
}

TEST_F(CudaChannelTest, TheCallersContextStaysCurrent) {
  const auto driver = CudaDriver::load(FAKE_CUDA_LIBRARY);
  const auto gpu = channel();
  CudaContext current = nullptr;
  ASSERT_EQ(driver->pop_current(&current), 0);
  EXPECT_EQ(current, nullptr);
}

TEST_F(CudaChannelTest, AChildLeavesItAlone) {
  auto gpu = channel();
  const Bytes source = counting(100'000);
  Bytes target(source.size());
  EXPECT_EQ(copy_by(*gpu, source.data(), target.data(), source.size()), 0);
  Child child([&] {
    const int before = fake().calls("cuMemHostUnregister") + fake().calls("cuStreamDestroy");
    gpu.reset();
    CHILD_EXPECT(fake().calls("cuMemHostUnregister") + fake().calls("cuStreamDestroy") == before);
    const auto made = make_cuda_channel(settings(), operations());
    CHILD_EXPECT(!made && made.error().message() == "cuInit: CUDA_ERROR_NOT_INITIALIZED (CUDA_ERROR_NOT_INITIALIZED)");
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  Bytes again(source.size());
  EXPECT_EQ(copy_by(*gpu, source.data(), again.data(), source.size()), 0);
  EXPECT_EQ(again, source);
}

}  // namespace
}  // namespace viaduct::copy
