#include "copy/cuda_channel.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/waiter.hpp"
#include "copy/work_queue.hpp"

namespace viaduct::copy {

CudaSettings CudaSettings::from_config() {
  const Config& config = Config::process();
  CudaSettings settings;
  settings.library = config.text("VIADUCT_CUDA_LIBRARY");
  settings.pin_cache = config.number("VIADUCT_PIN_CACHE");
  settings.tuning.spin_ns = config.number("VIADUCT_SPIN_US") * 1000;
  return settings;
}

namespace {

class CudaPinner final : public Pinner {
 public:
  explicit CudaPinner(const CudaDriver& driver) : driver_(driver) {}

  int register_range(const AddressRange& range) override {
    switch (driver_.host_register(reinterpret_cast<void*>(range.begin), range.length(), cuda::kHostRegisterPortable)) {
      case cuda::kSuccess:
        return 0;
      case cuda::kOutOfMemory:
        return ENOMEM;
      case cuda::kAlreadyRegistered:
        return EALREADY;
      default:
        return EINVAL;  // memory the driver does not pin, such as a file's read-only pages
    }
  }
  void unregister_range(const AddressRange& range) override {
    (void)driver_.host_unregister(reinterpret_cast<void*>(range.begin));
  }

 private:
  const CudaDriver& driver_;
};

// What a GPU behind PCIe 5 needs; replaced by measurement.
constexpr Cost kTypicalCost{36'000, 0.022};
constexpr double kTypicalPinNsPerByte = 0.05;

class CudaCopyChannel final : public CudaChannel {
 public:
  CudaCopyChannel(const CudaDriver& driver, CudaDevice device, CudaContext context, const CudaSettings& settings,
                  OperationTable& table)
      : table_(table),
        driver_(driver),
        device_(device),
        context_(context),
        spin_ns_(settings.tuning.spin_ns),
        pinner_(driver_) {
    work_word_.promise_heavy_fence();
    name_ = fmt::format("cuda {}", settings.device);
    pins_ = std::make_unique<PinCache>(
        pinner_, PinCache::Settings{settings.pin_cache, settings.keep, [this] { want_reaping(); }});
  }
  Status set_up(const CudaSettings& settings);
  ~CudaCopyChannel() override;

  std::string name() const override { return name_; }
  bool accepts(const OperationRecord& operation) const override {
    return operation.manner.work == Work::copy && !operation.manner.overlapping &&
           !disabled_.load(std::memory_order_relaxed);
  }
  Cost cost(bool) const override { return cost_; }
  std::size_t queued_bytes() const override { return queued_.load(std::memory_order_relaxed); }
  void submit(OperationRecord& operation) override;
  bool help(OperationRecord& operation) override;

  bool touches_device(const OperationRecord& operation) const override;
  void declare_stable(const void* address, std::size_t length) override { pins_->declare_stable(address, length); }
  void retract(const void* address, std::size_t length) override { pins_->retract(address, length); }
  std::string detail() const override {
    std::string text = fmt::format("{}; {}", hardware_, pins_->status());
    if (hit_ns_ > 0) text += fmt::format("; a range that is still pinned costs {:.2f} us", hit_ns_ / 1000);
    return text;
  }

 private:
  bool start_thread();
  void run();
  bool step();
  void finish(OperationRecord& operation, int error);
  void want_reaping();
  void measure();
  double time_of(std::byte* memory, std::size_t length);
  double time_of_hit();

  OperationTable& table_;
  const CudaDriver driver_;
  const CudaDevice device_;
  const CudaContext context_;
  const std::uint64_t spin_ns_;
  const pid_t owner_ = ::getpid();
  std::string name_;
  std::string hardware_;
  Cost cost_ = kTypicalCost;
  double pin_ns_per_byte_ = kTypicalPinNsPerByte;
  double hit_ns_ = 0;  // of the pin cache, for people; 0: not measured

  CudaPinner pinner_;
  std::unique_ptr<PinCache> pins_;
  std::unique_ptr<CudaPipeline> pipeline_;

  WorkQueue<OperationRecord*> queue_{4096};  // as many as the engine has operations
  WaitWord work_word_;
  std::atomic<std::size_t> queued_{0};
  std::atomic<bool> disabled_{false};
  std::atomic<bool> reap_wanted_{false};
  std::atomic<bool> stopping_{false};
  OperationRecord* held_ = nullptr;  // taken from the queue, waits until the pipeline is idle

  std::once_flag started_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};
};

Status CudaCopyChannel::set_up(const CudaSettings& settings) {
  {
    const CudaScope scope(driver_, context_);
    char label[128] = {};
    int engines = 0;
    (void)driver_.device_name(label, sizeof label - 1, device_);
    if (const CudaResult result = driver_.device_attribute(&engines, cuda::kAsyncEngineCount, device_);
        result != cuda::kSuccess)
      return driver_.error(result, "cuDeviceGetAttribute");
    if (engines == 0) return Error(ENODEV, fmt::format("{} has no copy engine", label));
    hardware_ = fmt::format("{}, {} copy engine{}", label, engines, engines == 1 ? "" : "s");
    VIADUCT_TRY(pipeline_, CudaPipeline::make(driver_, *pins_, settings.tuning, name_));
  }
  if (settings.measure) measure();
  // Where nothing stays pinned, every byte pays for it on both sides.
  if (!pins_->keeps_ordinary_memory()) cost_.ns_per_byte += 2 * pin_ns_per_byte_;
  return {};
}

CudaCopyChannel::~CudaCopyChannel() {
  if (::getpid() != owner_) {
    if (thread_.joinable()) thread_.detach();
    (void)pipeline_.release();  // leaves the parent's device alone
    return;
  }
  stopping_.store(true, std::memory_order_seq_cst);
  work_word_.wake_if_armed();
  if (thread_.joinable()) thread_.join();
  {
    const CudaScope scope(driver_, context_);
    pipeline_.reset();
    pins_.reset();
  }
  (void)driver_.primary_release(device_);
}

// ---- the caller's side

bool CudaCopyChannel::start_thread() {
  std::call_once(started_, [this] {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the host program's signals are not for our thread
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& fault) {
      disabled_.store(true, std::memory_order_relaxed);
      log::fault(fmt::format("{}: not used, there is no thread for it: {}", name_, fault.what()));
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  });
  return thread_.joinable();
}

// The reference keeps the record alive until finish() has returned: its cookie may be reaped before that.
void CudaCopyChannel::submit(OperationRecord& operation) {
  operation.add_references(1);
  queued_.fetch_add(operation.length, std::memory_order_relaxed);
  if (!start_thread() || !queue_.try_push(&operation)) return finish(operation, EAGAIN);
  work_word_.wake_if_armed();
}

// A coroutine that goes on in the channel's own thread and waits there for another operation: nobody else would do it.
bool CudaCopyChannel::help(OperationRecord&) {
  return thread_id_.load(std::memory_order_relaxed) == std::this_thread::get_id() && step();
}

bool CudaCopyChannel::touches_device(const OperationRecord& operation) const {
  const auto either = [&](const void* source, const void* destination) {
    return driver_.is_device_memory(destination) || (source != nullptr && driver_.is_device_memory(source));
  };
  if (operation.pieces.empty()) return either(operation.source, operation.destination);
  return std::any_of(operation.pieces.begin(), operation.pieces.end(),
                     [&](const Piece& piece) { return piece.length > 0 && either(piece.source, piece.destination); });
}

void CudaCopyChannel::want_reaping() {
  reap_wanted_.store(true, std::memory_order_release);
  work_word_.wake_if_armed();
}

// ---- the thread's side

void CudaCopyChannel::finish(OperationRecord& operation, int error) {
  queued_.fetch_sub(operation.length, std::memory_order_relaxed);
  operation.finish(error);
  table_.drop(operation);
}

// Does a bit of what there is to do; false: nothing. May be entered again from finish(), which therefore comes last.
bool CudaCopyChannel::step() {
  while (held_ != nullptr || !queue_.empty()) {
    if (held_ == nullptr && !queue_.try_pop(held_)) break;
    if (pipeline_->lost()) return finish(*std::exchange(held_, nullptr), EIO), true;
    if (!pipeline_->wants_operation() || !pipeline_->begin(*held_)) break;
    held_ = nullptr;
  }
  if (pipeline_->idle()) return false;
  const CudaPipeline::Ended ended =
      pipeline_->advance([this] { return held_ == nullptr && !queue_.empty() && pipeline_->wants_operation(); });
  if (pipeline_->lost()) disabled_.store(true, std::memory_order_relaxed);
  if (ended.operation != nullptr) finish(*ended.operation, ended.error);
  return true;
}

void CudaCopyChannel::run() {
  ::pthread_setname_np(::pthread_self(), "viaduct-cuda");
  thread_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  (void)driver_.set_current(context_);  // where it fails, so does every call below, and each operation says so
  Waiter waiter(spin_ns_);
  FutexSleeper sleeper;
  for (;;) {
    while (step()) continue;
    if (reap_wanted_.exchange(false, std::memory_order_acq_rel)) pins_->reap();
    const auto wanted = [this] {
      return !queue_.empty() || stopping_.load(std::memory_order_acquire) ||
             reap_wanted_.load(std::memory_order_acquire);
    };
    if (stopping_.load(std::memory_order_acquire) && queue_.empty()) return;
    (void)waiter.wait(work_word_, sleeper, Deadline::never(), wanted);
  }
}

// ---- what it costs

double CudaCopyChannel::time_of(std::byte* memory, std::size_t length) {
  Waiter waiter(1'000'000);
  FutexSleeper sleeper;
  std::uint64_t best = UINT64_MAX;
  for (int round = 0; round < 4; ++round) {  // the first pins
    OperationRecord* const operation = table_.claim();
    if (operation == nullptr) return 0;
    operation->source = memory;
    operation->destination = memory + length;
    operation->length = length;
    const std::uint64_t start = Clock::steady().now_ns();
    submit(*operation);
    const auto finished = [&] { return operation->finished(); };
    while (waiter.wait(operation->done_word(), sleeper, Deadline::never(), finished) != WaitResult::ready) continue;
    best = std::min(best, Clock::steady().now_ns() - start);
    const bool failed = operation->error() != 0;
    table_.drop(*operation);
    if (failed) return 0;
  }
  return static_cast<double>(best);
}

// Two lengths give a line; pinning is timed as well.
double CudaCopyChannel::time_of_hit() {
  if (!pins_->keeps_ordinary_memory()) return 0;
  constexpr std::size_t kLength = 1 << 20;
  void* const memory =
      ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return 0;
  const CudaScope scope(driver_, context_);
  const auto pin_once = [&] { const PinCache::Pin pin = pins_->pin(memory, kLength); };
  pin_once();
  constexpr int kHits = 200;
  const std::uint64_t start = Clock::steady().now_ns();
  for (int i = 0; i < kHits; ++i) pin_once();
  const double each = static_cast<double>(Clock::steady().now_ns() - start) / kHits;
  pins_->invalidate(memory, kLength);
  ::munmap(memory, kLength);
  return each;
}

void CudaCopyChannel::measure() {
  constexpr std::size_t kShort = std::size_t{256} << 10, kLong = std::size_t{8} << 20;
  void* const mapped =
      ::mmap(nullptr, 2 * kLong, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED) return;
  auto* const memory = static_cast<std::byte*>(mapped);
  {
    const CudaScope scope(driver_, context_);
    const AddressRange range = pages_of(memory, 2 * kLong);
    const std::uint64_t start = Clock::steady().now_ns();
    if (pinner_.register_range(range) == 0) {
      pinner_.unregister_range(range);
      pin_ns_per_byte_ = static_cast<double>(Clock::steady().now_ns() - start) / (2 * kLong);
    }
  }
  pins_->declare_stable(memory, 2 * kLong);
  const double brief = time_of(memory, kShort), lengthy = time_of(memory, kLong);
  pins_->retract(memory, 2 * kLong);
  if (brief > 0 && lengthy > brief) {
    cost_.ns_per_byte = (lengthy - brief) / (kLong - kShort);
    cost_.start_ns = std::max(brief - cost_.ns_per_byte * kShort, 0.0);
  }
  ::munmap(mapped, 2 * kLong);
  hit_ns_ = time_of_hit();
}

}  // namespace

Result<std::unique_ptr<CudaChannel>> make_cuda_channel(const CudaSettings& settings, OperationTable& table) {
  VIADUCT_TRY(const CudaDriver driver, CudaDriver::load(settings.library));
  if (const CudaResult result = driver.init(0); result != cuda::kSuccess) return driver.error(result, "cuInit");
  int devices = 0;
  if (const CudaResult result = driver.device_count(&devices); result != cuda::kSuccess)
    return driver.error(result, "cuDeviceGetCount");
  if (settings.device >= devices)
    return Error(ENODEV, devices == 0 ? "the NVIDIA driver sees no GPU"
                                      : fmt::format("there is no GPU {}, only {}", settings.device, devices));
  CudaDevice device = 0;
  if (const CudaResult result = driver.device_get(&device, settings.device); result != cuda::kSuccess)
    return driver.error(result, "cuDeviceGet");
  CudaContext context = nullptr;
  if (const CudaResult result = driver.primary_retain(&context, device); result != cuda::kSuccess)
    return driver.error(result, "cuDevicePrimaryCtxRetain");
  auto channel = std::make_unique<CudaCopyChannel>(driver, device, context, settings, table);
  VIADUCT_CHECK(channel->set_up(settings));
  return std::unique_ptr<CudaChannel>(std::move(channel));
}

}  // namespace viaduct::copy
