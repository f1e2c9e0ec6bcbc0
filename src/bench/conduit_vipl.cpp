#include "bench/conduit_vipl.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <viaduct/adma.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "bench/copy_buffers.hpp"

namespace viaduct::bench {

namespace {

double processor_ms() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

using Completion = ViplOptions::Completion;
using Source = ViplOptions::Source;
using Transfer = ViplOptions::Transfer;

class Vipl final : public ViplConduit {
 public:
  Vipl(const ViplOptions& options, Meeting meeting, std::string name)
      : options_(options), meeting_(std::move(meeting)), name_(std::move(name)) {}

  void open(Side side) override;
  void close() override;
  void send(std::size_t size) override;
  void receive(std::size_t size) override;
  void settle() override;
  bool turn() override;
  void ping(std::uint32_t count, std::size_t size) override;
  void pong(std::uint32_t count, std::size_t size) override;
  void stream(std::uint32_t count, std::size_t size) override;
  void drain(std::uint32_t count, std::size_t size) override;
  double idle_processor_ms(unsigned milliseconds) override;

 private:
  static constexpr std::uint32_t kReceives = kWindow + 8;  // messages that say something about the stream have place
  static constexpr std::uint32_t kSends = kWindow;

  VIP_DESCRIPTOR* receive_descriptor(std::uint32_t i) { return descriptors_ + i; }
  VIP_DESCRIPTOR* send_descriptor(std::uint32_t i) { return descriptors_ + kReceives + i % kSends; }
  void make_memory();
  void connect(VIP_VI_HANDLE vi, const std::string& name) {
    adapter_.connect(vi, side_, name, options_.hosts ? options_.hosts->near : std::string());
  }
  void connect_idle_vis();
  void learn_remote_memory();

  void post(VIP_DESCRIPTOR* descriptor, VIP_UINT16 control, std::size_t size);
  void reap(std::uint32_t most_under_way);
  void take_receive();
  void repost();
  void rdma(std::size_t size, bool tell);
  void notified(VIP_DESCRIPTOR* descriptor);
  void play(std::uint32_t count, std::size_t size);
  static void ignore(VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR*) {}
  static void on_receive(VIP_PVOID self, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR* descriptor) {
    static_cast<Vipl*>(self)->notified(descriptor);
  }

  const ViplOptions options_;
  Meeting meeting_;
  const std::string name_;
  Side side_ = Side::here;
  ViplAdapter adapter_;
  VIP_CQ_HANDLE cq_ = nullptr;
  VIP_VI_HANDLE vi_ = nullptr;
  std::vector<VIP_VI_HANDLE> idle_;

  std::unique_ptr<Memory> memory_;    // descriptors, and data unless that is the engine's
  std::unique_ptr<Memory> unplaced_;  // what a send begins with where its memory is not registered
  VIP_DESCRIPTOR* descriptors_ = nullptr;
  std::byte* data_ = nullptr;
  VIP_MEM_HANDLE descriptors_handle_ = 0;
  VIP_MEM_HANDLE data_handle_ = 0;
  struct RemoteMemory {
    std::uint64_t address;
    VIP_MEM_HANDLE handle;
    VIP_UINT32 unused;
  } remote_{};

  std::uint32_t next_send_ = 0;
  std::uint32_t sends_under_way_ = 0;
  VIP_DESCRIPTOR* to_repost_ = nullptr;

  // A ping-pong by notify functions: how many receives are still to come, and what to answer with.
  std::atomic<std::uint32_t> left_{0};
  std::uint32_t answers_left_ = 0;
  std::size_t answer_size_ = 0;
  bool idle_request_ = false;
};

void Vipl::make_memory() {
  constexpr std::size_t kDescriptorBytes = 65536;
  static_assert((kReceives + kSends) * sizeof(VIP_DESCRIPTOR) <= kDescriptorBytes);
  auto memory = Memory::make(kDescriptorBytes + kMostBytes);
  auto unplaced = Memory::make(kMostBytes);
  if (!memory || !unplaced) give_up("no memory");
  memory_ = std::make_unique<Memory>(std::move(*memory));
  unplaced_ = std::make_unique<Memory>(std::move(*unplaced));
  descriptors_ = reinterpret_cast<VIP_DESCRIPTOR*>(memory_->data());
  std::memset(memory_->data(), 0, kDescriptorBytes);
  descriptors_handle_ = adapter_.register_memory(descriptors_, kDescriptorBytes);
  data_ = memory_->data() + kDescriptorBytes;
  if (options_.engine_memory) {
    data_ = static_cast<std::byte*>(adma_alloc(kMostBytes));
    if (data_ == nullptr) give_up("no memory of the copy engine");
    std::memset(data_, 1, kMostBytes);
  }
  data_handle_ = adapter_.register_memory(data_, kMostBytes);
}

void Vipl::open(Side side) {
  side_ = side;
  meeting_.choose(side);
  if (options_.hosts) options_.hosts->enter(side == Side::here);
  adapter_.open();
  make_memory();
  if (options_.completion == Completion::completion_queue)
    must(VipCreateCQ(adapter_.nic(), 2 * (kReceives + options_.idle_vis), &cq_), "VipCreateCQ");
  vi_ = adapter_.create_vi(options_.level, kMostBytes, cq_);
  for (std::uint32_t i = 0; i < kReceives; ++i) {
    VIP_DESCRIPTOR* const descriptor = receive_descriptor(i);
    descriptor->CS.SegCount = 1;
    descriptor->CS.Length = kMostBytes;
    descriptor->DS[0].Local = {{.Address = data_}, data_handle_, static_cast<VIP_UINT32>(kMostBytes)};
    must(VipPostRecv(vi_, descriptor, descriptors_handle_), "VipPostRecv");
  }
  connect(vi_, name_);
  connect_idle_vis();
  learn_remote_memory();
}

// Each has a receive posted and a connection of its own; nothing is ever sent.
void Vipl::connect_idle_vis() {
  constexpr std::size_t kSmall = 4096;
  for (std::uint32_t i = 0; i < options_.idle_vis; ++i) {
    idle_.push_back(adapter_.create_vi(options_.level, kSmall, cq_));
    connect(idle_.back(), name_ + "i");
  }
}

void Vipl::learn_remote_memory() {
  const RemoteMemory mine{reinterpret_cast<std::uint64_t>(data_), data_handle_, 0};
  meeting_.tell(&mine, sizeof mine);
  meeting_.hear(&remote_, sizeof remote_);
}

void Vipl::close() {
  for (const VIP_VI_HANDLE vi : idle_) (void)VipDisconnect(vi);
  (void)VipDisconnect(vi_);
  VIP_DESCRIPTOR* flushed = nullptr;
  while (VipRecvDone(vi_, &flushed), flushed != nullptr) continue;
  while (VipSendDone(vi_, &flushed), flushed != nullptr) continue;
  for (const VIP_VI_HANDLE vi : idle_) must(VipDestroyVi(vi), "VipDestroyVi");
  must(VipDestroyVi(vi_), "VipDestroyVi");
  if (cq_ != nullptr) must(VipDestroyCQ(cq_), "VipDestroyCQ");
  adapter_.deregister_memory(data_, data_handle_);
  adapter_.deregister_memory(descriptors_, descriptors_handle_);
  adapter_.close();
  if (options_.engine_memory) adma_free(data_);
}

// ---- sending

void Vipl::post(VIP_DESCRIPTOR* descriptor, VIP_UINT16 control, std::size_t size) {
  const bool rdma = (control & VIP_CONTROL_OP_MASK) != VIP_CONTROL_OP_SENDRECV;
  descriptor->CS.Control = control;
  descriptor->CS.SegCount = rdma ? 2 : 1;
  descriptor->CS.Length = static_cast<VIP_UINT32>(size);
  if (rdma) descriptor->DS[0].Remote = {{.AddressBits = remote_.address}, remote_.handle, 0};
  VIP_DATA_SEGMENT& segment = descriptor->DS[rdma ? 1 : 0].Local;
  segment = {{.Address = data_}, data_handle_, static_cast<VIP_UINT32>(size)};
  if (options_.source == Source::copied) std::memcpy(data_, unplaced_->data(), size);
  if (options_.source == Source::registered_each_time)
    segment = {{.Address = unplaced_->data()},
               adapter_.register_memory(unplaced_->data(), size),
               static_cast<VIP_UINT32>(size)};
  must(VipPostSend(vi_, descriptor, descriptors_handle_), "VipPostSend");
  ++sends_under_way_;
}

// Takes back what was sent until at most so many are under way.
void Vipl::reap(std::uint32_t most_under_way) {
  while (sends_under_way_ > most_under_way) {
    VIP_DESCRIPTOR* done = nullptr;
    const VIP_RETURN result =
        options_.completion == Completion::blocking ? VipSendWait(vi_, VIP_INFINITE, &done) : VipSendDone(vi_, &done);
    if (result == VIP_NOT_DONE) continue;
    must(result, "VipSendDone");
    --sends_under_way_;
    if (options_.source == Source::registered_each_time)
      adapter_.deregister_memory(unplaced_->data(), done->DS[0].Local.Handle);
  }
}

// The message first; what can be done while it is under way comes after.
void Vipl::send(std::size_t size) {
  post(send_descriptor(next_send_++), VIP_CONTROL_OP_SENDRECV, size);
  repost();
  reap(options_.source == Source::registered ? kSends - 1 : 0);
}

void Vipl::settle() {
  reap(0);
  repost();
}

// Between hosts the last acknowledgement leaves when this process calls again.
bool Vipl::turn() {
  if (!options_.hosts) return false;
  VIP_DESCRIPTOR* none = nullptr;
  if (VipRecvDone(vi_, &none) == VIP_SUCCESS) give_up("a message nobody sent");
  return true;
}

// ---- receiving

void Vipl::take_receive() {
  VIP_RETURN result = VIP_NOT_DONE;
  switch (options_.completion) {
    case Completion::blocking:
      result = VipRecvWait(vi_, VIP_INFINITE, &to_repost_);
      break;
    case Completion::completion_queue: {
      VIP_VI_HANDLE vi = nullptr;
      VIP_BOOLEAN receive = VIP_FALSE;
      while (VipCQDone(cq_, &vi, &receive) == VIP_NOT_DONE) continue;
      result = VipRecvDone(vi, &to_repost_);
      break;
    }
    default:
      while ((result = VipRecvDone(vi_, &to_repost_)) == VIP_NOT_DONE) continue;
  }
  must(result, "receive");
}

void Vipl::receive(std::size_t) {
  repost();
  take_receive();
}

void Vipl::repost() {
  if (to_repost_ == nullptr) return;
  must(VipPostRecv(vi_, to_repost_, descriptors_handle_), "VipPostRecv");
  to_repost_ = nullptr;
}

// ---- ping-pong

void Vipl::ping(std::uint32_t count, std::size_t size) {
  if (options_.completion != Completion::notify) return Conduit::ping(count, size);
  answers_left_ = count - 1;
  send(size);
  play(count, size);
}

void Vipl::pong(std::uint32_t count, std::size_t size) {
  if (options_.completion != Completion::notify) return Conduit::pong(count, size);
  answers_left_ = count;
  play(count, size);
}

// The notify thread does everything; this one sleeps until the last message has come.
void Vipl::play(std::uint32_t count, std::size_t size) {
  answer_size_ = size;
  left_.store(count, std::memory_order_release);
  must(VipRecvNotify(vi_, this, on_receive), "VipRecvNotify");
  for (std::uint32_t left; (left = left_.load(std::memory_order_acquire)) != 0;) left_.wait(left);
}

void Vipl::notified(VIP_DESCRIPTOR* descriptor) {
  to_repost_ = descriptor;
  if (answers_left_ != 0) {
    --answers_left_;
    send(answer_size_);
  }
  repost();
  const std::uint32_t left = left_.load(std::memory_order_relaxed) - 1;
  if (left != 0) must(VipRecvNotify(vi_, this, on_receive), "VipRecvNotify");
  left_.store(left, std::memory_order_release);
  if (left == 0) left_.notify_one();
}

// ---- streams

// A receiver takes no more than it has posted receives for: it tells after every half window that they are free again.
void Vipl::stream(std::uint32_t count, std::size_t size) {
  if (options_.transfer != Transfer::send) {
    for (std::uint32_t i = 0; i < count; ++i) rdma(size, i + 1 == count && options_.transfer == Transfer::rdma_write);
    reap(0);
    if (options_.transfer == Transfer::rdma_read) send(1);
    return;
  }
  constexpr std::uint32_t kHalf = kWindow / 2;
  std::uint32_t free_again = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (; i - free_again >= kWindow; free_again += kHalf) receive(1);
    send(size);
  }
  for (; free_again + kHalf <= count; free_again += kHalf) receive(1);
}

void Vipl::drain(std::uint32_t count, std::size_t size) {
  if (options_.transfer != Transfer::send) return receive(0);  // it ends with a word
  for (std::uint32_t i = 0; i < count; ++i) {
    receive(size);
    if ((i + 1) % (kWindow / 2) == 0) send(1);
  }
}

void Vipl::rdma(std::size_t size, bool tell) {
  const VIP_UINT16 operation =
      options_.transfer == Transfer::rdma_write ? VIP_CONTROL_OP_RDMAWRITE : VIP_CONTROL_OP_RDMAREAD;
  post(send_descriptor(next_send_++), static_cast<VIP_UINT16>(operation | (tell ? VIP_CONTROL_IMMEDIATE : 0)), size);
  reap(kSends - 1);
}

// ---- doing nothing

double Vipl::idle_processor_ms(unsigned milliseconds) {
  const double before = processor_ms();
  VIP_DESCRIPTOR* none = nullptr;
  VIP_VI_HANDLE vi = nullptr;
  VIP_BOOLEAN receive = VIP_FALSE;
  switch (options_.completion) {
    case Completion::blocking:
      if (VipRecvWait(vi_, milliseconds, &none) != VIP_TIMEOUT) give_up("a message nobody sent");
      break;
    case Completion::completion_queue:
      if (VipCQWait(cq_, milliseconds, &vi, &receive) != VIP_TIMEOUT) give_up("a message nobody sent");
      break;
    case Completion::notify: {
      if (!std::exchange(idle_request_, true)) must(VipRecvNotify(vi_, nullptr, ignore), "VipRecvNotify");
      const timespec nap = to_timespec(std::uint64_t{milliseconds} * 1'000'000);
      (void)::clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);  // the notify thread waits
      break;
    }
    case Completion::polling: {
      const std::uint64_t end = Clock::steady().now_ns() + std::uint64_t{milliseconds} * 1'000'000;
      while (Clock::steady().now_ns() < end) (void)VipRecvDone(vi_, &none);
    }
  }
  return processor_ms() - before;
}

}  // namespace

Result<std::unique_ptr<ViplConduit>> make_vipl(const ViplOptions& options) {
  static int number = 0;
  Meeting meeting;
  VIADUCT_CHECK(meeting.prepare());
  // Every VI needs a few descriptors on either side.
  constexpr rlim_t kDescriptorsPerVi = 4, kOthers = 512;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (const rlim_t wanted = kOthers + kDescriptorsPerVi * options.idle_vis; limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    if (wanted > limit.rlim_max || ::setrlimit(RLIMIT_NOFILE, &limit) != 0)
      return Error(EMFILE, fmt::format("{} idle VIs need {} open files, and only {} are allowed", options.idle_vis,
                                       wanted, limit.rlim_max));
  }
  return std::unique_ptr<ViplConduit>(
      std::make_unique<Vipl>(options, std::move(meeting), fmt::format("bench.{}.{}", ::getpid(), ++number)));
}

}  // namespace viaduct::bench
