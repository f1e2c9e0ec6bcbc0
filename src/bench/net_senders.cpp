#include "bench/net_senders.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/clock.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/net_paths.hpp"
#include "bench/partner.hpp"
#include "bench/vipl_adapter.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint32_t kSenders = 8, kUnderWay = 4;
constexpr std::size_t kWrite = 256 << 10;
constexpr std::uint64_t kBeforeStart = 10'000'000;  // ns: until all have heard of it
constexpr VIP_ULONG kSoon = 20'000;

std::uint64_t now() {
  return Clock::steady().now_ns();
}

struct Shared {  // by all processes
  std::atomic<std::uint64_t> start, end;
  std::atomic<std::uint64_t> bytes[kSenders], done[kSenders];
};

struct Target {
  std::uint64_t address;
  VIP_MEM_HANDLE handle;
  VIP_UINT32 unused;
};

Memory make_memory(std::size_t size) {
  auto memory = Memory::make(size);
  if (!memory) give_up("no memory");
  return std::move(*memory);
}

// In a process of its own. Its descriptors and its data are in one piece of memory.
class Sender {
 public:
  Sender(TwoEnds hosts, std::uint32_t index, std::string name)
      : hosts_(std::move(hosts)), index_(index), name_(std::move(name)) {}

  Status prepare() { return meeting_.prepare(); }
  // At the other host's process.
  void expect(ViplAdapter& adapter, VIP_VI_HANDLE vi, const Target& target) {
    meeting_.choose(Conduit::Side::here);
    adapter.connect(vi, Conduit::Side::here, name_, hosts_.near);
    meeting_.tell(&target, sizeof target);
  }
  void open() {
    meeting_.choose(Conduit::Side::there);
    hosts_.enter(false);
    adapter_.open();
    memory_.emplace(make_memory(kPlaceOfData + kWrite));
    std::memset(memory_->data(), 0, kPlaceOfData);
    handle_ = adapter_.register_memory(memory_->data(), kPlaceOfData + kWrite);
    vi_ = adapter_.create_vi(VIP_SERVICE_RELIABLE_DELIVERY, kWrite, nullptr);
    adapter_.connect(vi_, Conduit::Side::there, name_, hosts_.near);
    meeting_.hear(&target_, sizeof target_);
  }
  void send(Shared& shared) {
    while (now() < shared.start.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::uint64_t end = shared.end.load();
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < kUnderWay; ++i) post(descriptor(i));
    for (std::uint32_t left = kUnderWay; left > 0;) {
      VIP_DESCRIPTOR* done = nullptr;
      must(VipSendWait(vi_, kSoon, &done), "VipSendWait");
      bytes += kWrite;
      if (now() < end) {
        post(done);
      } else {
        --left;
      }
    }
    shared.bytes[index_] = bytes;
    shared.done[index_] = now();
  }

 private:
  static constexpr std::size_t kPlaceOfData = 4096;

  VIP_DESCRIPTOR* descriptor(std::uint32_t i) { return reinterpret_cast<VIP_DESCRIPTOR*>(memory_->data()) + i; }
  void post(VIP_DESCRIPTOR* descriptor) {
    descriptor->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
    descriptor->CS.SegCount = 2;
    descriptor->CS.Length = kWrite;
    descriptor->DS[0].Remote = {{.AddressBits = target_.address}, target_.handle, 0};
    descriptor->DS[1].Local = {{.Address = memory_->data() + kPlaceOfData}, handle_, static_cast<VIP_UINT32>(kWrite)};
    must(VipPostSend(vi_, descriptor, handle_), "VipPostSend");
  }

  const TwoEnds hosts_;
  const std::uint32_t index_;
  const std::string name_;
  Meeting meeting_;
  ViplAdapter adapter_;
  std::optional<Memory> memory_;
  VIP_MEM_HANDLE handle_ = 0;
  VIP_VI_HANDLE vi_ = nullptr;
  Target target_{};
};

// The process that they send to, and they.
class Receiver {
 public:
  static Result<Receiver*> make(const TwoNetworks& networks, unsigned milliseconds) {
    auto* const receiver = new Receiver(hosts_of(networks, 0), milliseconds);  // as long as the process
    void* const page = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return Error::from_errno("share a page with senders");
    receiver->shared_ = new (page) Shared{};
    for (std::uint32_t i = 0; i < kSenders; ++i) {
      receiver->senders_.push_back(std::make_unique<Sender>(receiver->hosts_, i, fmt::format("bench.many.{}", i)));
      Sender& sender = *receiver->senders_.back();
      VIADUCT_CHECK(sender.prepare());
      VIADUCT_TRY(Partner partner,
                  Partner::fork(placement().theirs, [&sender, shared = receiver->shared_](std::uint64_t what) {
                    what == kOpen ? sender.open() : sender.send(*shared);
                  }));
      receiver->partners_.push_back(std::move(partner));
    }
    return receiver;
  }

  // All together, and the slowest of them as if it were all of them.
  std::pair<double, double> measure(std::uint32_t senders) {
    open();
    shared_->start = now() + kBeforeStart;
    shared_->end = shared_->start + std::uint64_t{milliseconds_} * 1'000'000;
    for (std::uint32_t i = 0; i < senders; ++i) partners_[i].start(kSend);
    for (std::uint32_t i = 0; i < senders; ++i) finish(partners_[i]);
    std::uint64_t sum = 0, least = UINT64_MAX, last = 0;
    for (std::uint32_t i = 0; i < senders; ++i) {
      sum += shared_->bytes[i];
      least = std::min<std::uint64_t>(least, shared_->bytes[i]);
      last = std::max<std::uint64_t>(last, shared_->done[i]);
    }
    const double ns = static_cast<double>(last - shared_->start);
    return {static_cast<double>(sum) * 8 / ns, static_cast<double>(least) * senders * 8 / ns};
  }

 private:
  static constexpr std::uint64_t kOpen = 0, kSend = 1;

  Receiver(TwoEnds hosts, unsigned milliseconds) : hosts_(std::move(hosts)), milliseconds_(milliseconds) {}

  // Only now, since what is open is not taken along by a fork.
  void open() {
    if (memory_) return;
    hosts_.enter(true);
    adapter_.open();
    must(VipCreateCQ(adapter_.nic(), 64, &cq_), "VipCreateCQ");
    memory_.emplace(make_memory(kSenders * kWrite));
    const VIP_MEM_HANDLE handle = adapter_.register_memory(memory_->data(), kSenders * kWrite);
    for (std::uint32_t i = 0; i < kSenders; ++i) {
      partners_[i].start(kOpen);
      const VIP_VI_HANDLE vi = adapter_.create_vi(VIP_SERVICE_RELIABLE_DELIVERY, kWrite, cq_);
      senders_[i]->expect(adapter_, vi, {reinterpret_cast<std::uint64_t>(memory_->data() + i * kWrite), handle, 0});
      finish(partners_[i]);
    }
  }
  // What they write goes on while this process looks.
  void finish(Partner& partner) {
    VIP_VI_HANDLE vi = nullptr;
    VIP_BOOLEAN receive = VIP_FALSE;
    while (!partner.has_finished()) (void)VipCQDone(cq_, &vi, &receive);
    partner.finish();
  }

  const TwoEnds hosts_;
  const unsigned milliseconds_;
  Shared* shared_ = nullptr;
  std::vector<std::unique_ptr<Sender>> senders_;
  std::vector<Partner> partners_;
  ViplAdapter adapter_;
  VIP_CQ_HANDLE cq_ = nullptr;
  std::optional<Memory> memory_;
};

}  // namespace

Result<Lab> fork_senders(unsigned milliseconds) {
  return Lab::fork([=]() -> Result<Lab::Measurements> {
    VIADUCT_TRY(const TwoNetworks* networks, join_networks({1500}));
    VIADUCT_TRY(Receiver * receiver, Receiver::make(*networks, milliseconds));
    auto* const all = new TwoNumbers([=] { return receiver->measure(kSenders); });
    return Lab::Measurements{[=] { return all->first(); }, [=] { return all->second(); },
                             [=] { return receiver->measure(1).first; }};
  });
}

}  // namespace viaduct::bench
